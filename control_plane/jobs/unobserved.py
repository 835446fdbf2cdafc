"""
Time in which no monitor looked: the machine slept, the clock was set forward, the monitor was stopped.

Limits count only the time in which prompts, heartbeats and reports could travel.
The clock is the same for every stamp in the registry, so a gap is told by it
alone: two looks that lie much further apart than they should.
"""

from collections.abc import Sequence
from pathlib import Path

from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import write_json

Gap = tuple[int, int]  # from, to: ms of the wall clock

LATE_MS = 15_000  # looks are a second apart; a multiplexer that does not answer holds one up for ten
KEPT = 100


def lasted(since: int, now: int, gaps: Sequence[Gap]) -> int:
    """Milliseconds from *since* to *now* without what lies in *gaps*."""
    return now - since - sum(max(0, min(now, end) - max(since, begin)) for begin, end in gaps)


class UnobservedTime:
    """The gaps that the monitors of one control root noticed, the youngest last; kept in the file *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: int | None = None
        self.found: list[Gap] = _read(path)

    def look(self, now: int) -> Gap | None:
        """Note a look, and return the gap before it. Raises OSError where a new one could not be kept on disk."""
        last, self._last = self._last, now
        if last is None:
            return None
        if now < last and any(end > now for _, end in self.found):
            # Set back again: the times that a gap bridged have not come yet, and no stamp of before it is older.
            self.found = [gap for gap in self.found if gap[1] <= now]
            self._keep()
        if now - last <= LATE_MS:
            return None
        gap = (last, now)
        self.found = [*self.found, gap][-KEPT:]
        self._keep()
        return gap

    def _keep(self) -> None:
        write_json(self._path, {"gaps": self.found})


def _read(path: Path) -> list[Gap]:
    noted = atomic_files.read(path).get("gaps")
    try:
        return [(int(begin), int(end)) for begin, end in noted] if isinstance(noted, list) else []
    except (ValueError, OverflowError, TypeError):
        return []  # torn: limits then count the time on the wall
