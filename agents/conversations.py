"""Which of the conversations that a CLI keeps under ids of its own is the one of a seat."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mam.agents.protocol import Seat


class KeptConversation(NamedTuple):
    """A conversation that was begun in the seat's folder."""

    id: str
    began: float  # seconds since the epoch
    where: Path


def own(
    seat: Seat,
    kept: Sequence[KeptConversation],
    words: Sequence[str],
    holds: Callable[[KeptConversation, Sequence[str]], bool],
) -> KeptConversation | None:
    """
    The one that the last launch continued, behind one of *words*, or else the only one that was begun since then;
    among several, the only one that *holds* a prompt of a job which was delivered here, given how those begin.
    None where that leaves a doubt.
    """
    argv, launched = _last_launch(seat)
    known = seat.conversation or next((after for word, after in pairwise(argv) if word in words), None)
    found = [one for one in kept if (one.id == known if known else one.began >= launched)]
    if len(found) > 1:
        prompts = [f"[MAM job {job}, attempt " for job in _delivered(seat)]
        found = [one for one in found if holds(one, prompts)]
    return found[0] if len(found) == 1 else None


def _last_launch(seat: Seat) -> tuple[Sequence[str], float]:
    """The command that last ran here and when it was written; nothing and the dawn of time where that is unknown."""
    path = seat.run_dir / "launch.json"
    try:
        argv = json.loads(path.read_text("utf-8", "surrogateescape"))["argv"]
        return [str(word) for word in argv], path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return [], 0.0


def _delivered(seat: Seat) -> set[str]:
    return {path.name.rpartition("-")[0] for path in (seat.run_dir / "deliveries").glob("[!.]*")}
