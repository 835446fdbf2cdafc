"""
An agent that plays a script instead of asking a model. A shipped double: demo, tests and chaos use it.

Its program is the verb `mam play`; a script is a list of steps (see wrappers/player.py).
"""

from collections.abc import Sequence
from pathlib import Path

from mam.agents.protocol import Launch, Screen, ScreenState, Seat, no_grants, tail

name = "scripted"
ready_within_s = 5.0
submit_pause_s = 0.05
instruction_file = "AGENTS.md"

grants = no_grants

PROMPT = "scripted> "
BUSY = "scripted: working"
ASKS = "scripted: may I? (y/n)"


def new_conversation() -> str | None:
    return None


def launch(seat: Seat) -> Launch:
    """``mam play`` with the script that is named in the session's own arguments, or the default script."""
    return Launch([seat.mam, "play", "--name", seat.name, "--memory", str(seat.run_dir / "memory.json"), *seat.args])


def resume(seat: Seat) -> Launch | None:
    """The memory file is the conversation; a player that finds one goes on from it."""
    return launch(seat) if (seat.run_dir / "memory.json").exists() else None


def conversation_files(seat: Seat) -> Sequence[Path]:
    memory = seat.run_dir / "memory.json"
    return [memory] if memory.exists() else []


def read(screen: Screen) -> ScreenState:
    last = tail(screen, 1)
    if last.startswith(ASKS):
        return ScreenState.ASKING
    if last.startswith(BUSY):
        return ScreenState.WORKING
    return ScreenState.READY if last.startswith(PROMPT.rstrip()) else ScreenState.STARTING


def draft(screen: Screen) -> bool:
    """Text behind the prompt sign that no Enter has sent."""
    last = tail(screen, 1)
    return last.startswith(PROMPT.rstrip()) and len(last) > len(PROMPT.rstrip())
