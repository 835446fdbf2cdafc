"""Any command line as an agent: it gets its prompts typed on its terminal."""

from collections.abc import Sequence

from mam.agents.protocol import Launch, Screen, ScreenState, Seat
from mam.agents.screen import tail
from mam.broker.errors import Usage

name = "command"
ready_within_s = 5.0
submit_pause_s = 0.05
instruction_file = "AGENTS.md"


def new_conversation() -> str | None:
    """Return None: a plain command has no conversations."""
    return None


def launch(seat: Seat) -> Launch:
    """Return the user's own command line, as given after ``--``. Raises Usage where there is none."""
    argv: Sequence[str] = [seat.program, *seat.args] if seat.program else list(seat.args)
    if not argv:
        raise Usage(
            what="an agent of kind `command` needs a command", hint="mam agent create NAME --agent command -- CMD ARG…"
        )
    return Launch(argv)


def resume(seat: Seat) -> Launch | None:
    """Return None: a plain command keeps no conversation, so a resume starts it anew."""
    return None


def read(screen: Screen) -> ScreenState:
    """Return READY as soon as the terminal shows anything: more cannot be known of an unknown program."""
    return ScreenState.READY if tail(screen) else ScreenState.STARTING
