"""A stranger's adapter, in a package of its own: all that MAM needs to know of a new agent CLI."""

from mam.agents.protocol import Launch, Seat, no_conversation_files, no_grants
from mam.agents.scripted import draft, read

name = "parrot"
ready_within_s = 5.0
submit_pause_s = 0.05
instruction_file = "PARROT.md"
grants = no_grants
conversation_files = no_conversation_files


def new_conversation() -> str | None:
    return None


def launch(seat: Seat) -> Launch:
    return Launch([seat.mam, "play", "--name", seat.name, "--memory", str(seat.run_dir / "parrot.json")])


def resume(seat: Seat) -> Launch | None:
    return None


__all__ = ["draft", "read"]
