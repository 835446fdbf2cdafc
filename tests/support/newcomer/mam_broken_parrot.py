"""A stranger's adapter that starts its agent and then fails in everything that it is asked about it."""

from collections.abc import Sequence
from pathlib import Path

from mam.agents.protocol import Screen, ScreenState, Seat
from mam.agents.scripted import launch, resume

name = "broken-parrot"
ready_within_s = 5.0
submit_pause_s = 0.05
instruction_file = "PARROT.md"


def new_conversation() -> str | None:
    return "c-1"


def read(screen: Screen) -> ScreenState:
    return [ScreenState.READY][len(screen.text)]


def conversation_files(seat: Seat) -> Sequence[Path]:
    raise RuntimeError(f"nothing is known of {seat.name}")


__all__ = ["launch", "resume"]
