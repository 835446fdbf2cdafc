"""Which conversation belongs to a seat, among those that a CLI keeps under ids of its own."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from mam.agents.protocol import Seat


class KeptConversation(NamedTuple):
    """A conversation that was begun in the seat's folder, and the file or database that holds it."""

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
    Return the conversation of *seat* among *kept*; None where a doubt is left.

    It is the one that the last launch named behind one of *words*. Else it is the only one that was begun since that
    launch. Among several, it is the only one that *holds* the beginning of a prompt that was delivered here.
    """
    argv, launched = _last_launch(seat)
    known = seat.conversation or next((after for word, after in pairwise(argv) if word in words), None)
    found = [one for one in kept if (one.id == known if known else one.began >= launched)]
    if len(found) > 1:
        prompts = [f"[MAM job {job}, attempt " for job in _delivered(seat)]
        found = [one for one in found if holds(one, prompts)]
    return found[0] if len(found) == 1 else None


def _last_launch(seat: Seat) -> tuple[Sequence[str], float]:
    """Return the command that ran here last, and when it was written (s since 1970); ([], 0.0) where it is unknown."""
    path = seat.run_dir / "launch.json"
    try:
        argv = json.loads(path.read_text("utf-8", "surrogateescape"))["argv"]
        return [str(word) for word in argv], path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return [], 0.0


def _delivered(seat: Seat) -> set[str]:
    return {path.name.rpartition("-")[0] for path in (seat.run_dir / "deliveries").glob("[!.]*")}
