"""A stranger's adapter with nothing but what every adapter must have: written before there were capabilities."""

from mam.agents.protocol import Launch, Seat
from mam.agents.scripted import read

name = "early-bird"
ready_within_s = 5.0
submit_pause_s = 0.05
instruction_file = "BIRD.md"


def new_conversation() -> str | None:
    return None


def launch(seat: Seat) -> Launch:
    return Launch([seat.mam, "play", "--name", seat.name, "--memory", str(seat.run_dir / "bird.json"), *seat.args])


def resume(seat: Seat) -> Launch | None:
    return None


__all__ = ["read"]
