"""A stranger's adapter, in a package of its own: all that MAM needs to know of a new agent CLI."""

from collections.abc import Sequence
from pathlib import Path

from mam.agents.protocol import Launch, Permissions, Seat
from mam.agents.scripted import draft, read

name = "parrot"
ready_within_s = 5.0
submit_pause_s = 0.05
instruction_file = "PARROT.md"


def new_conversation() -> str | None:
    return None


def launch(seat: Seat) -> Launch:
    words = [word for word in seat.args if word != "--careful"]
    return Launch([seat.mam, "play", "--name", seat.name, "--memory", str(seat.run_dir / "parrot.json"), *words])


def resume(seat: Seat) -> Launch | None:
    return None


def conversation_files(seat: Seat) -> Sequence[Path]:
    memory = seat.run_dir / "parrot.json"
    return [memory] if memory.exists() else []


def grants(permissions: Permissions) -> Sequence[str]:
    return ["--careful"]


__all__ = ["draft", "read"]
