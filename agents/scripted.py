"""
An agent that plays a script instead of asking a model. A shipped double: demo, tests and chaos use it.

Its program is the verb `mam play`. A script is a list of steps (see wrappers/scripted_agent.py).
"""

from collections.abc import Sequence
from pathlib import Path

from mam.agents.protocol import Launch, Screen, ScreenState, Seat
from mam.agents.screen import tail

name = "scripted"
ready_within_s = 5.0
submit_pause_s = 0.05
instruction_file = "AGENTS.md"

PROMPT = "scripted> "
BUSY = "scripted: working"
ASKS = "scripted: may I? (y/n)"


def new_conversation() -> str | None:
    """Return None: its memory file is its only conversation."""
    return None


def launch(seat: Seat) -> Launch:
    """Return `mam play` with the script that the agent's own arguments name, else with the default script."""
    return Launch([seat.mam, "play", "--name", seat.name, "--memory", str(seat.run_dir / "memory.json"), *seat.args])


def resume(seat: Seat) -> Launch | None:
    """Return the same command where a memory file exists: the player goes on from it. Else None."""
    return launch(seat) if (seat.run_dir / "memory.json").exists() else None


def conversation_files(seat: Seat) -> Sequence[Path]:
    """Return the memory file, where it exists."""
    memory = seat.run_dir / "memory.json"
    return [memory] if memory.exists() else []


def read(screen: Screen) -> ScreenState:
    """Return what the last line of the screen says."""
    last = tail(screen, 1)
    if last.startswith(ASKS):
        return ScreenState.ASKING
    if last.startswith(BUSY):
        return ScreenState.WORKING
    return ScreenState.READY if last.startswith(PROMPT.rstrip()) else ScreenState.STARTING


def draft(screen: Screen) -> bool:
    """Whether text stands behind the prompt sign: it was typed without Enter."""
    last = tail(screen, 1)
    return last.startswith(PROMPT.rstrip()) and len(last) > len(PROMPT.rstrip())
