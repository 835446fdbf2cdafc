"""The keys of jobs and sessions, read from their 0600 files where those are new."""

from typing import NamedTuple

from mam.broker.envelope import keys
from mam.broker.errors import FileUnusable
from mam.control_plane.config.layout import Layout

CACHED_AT_MOST = 20_000


class _Known(NamedTuple):
    mark: tuple[int, int]  # which file it was read from
    keys: dict[str, bytes]


class Keyring:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._jobs: dict[str, _Known] = {}
        self._sessions: dict[str, _Known] = {}
        self._checked: set[tuple[str, str]] = set()  # whose files were looked at since `recheck`

    def recheck(self) -> None:
        """Look at each key's file again before it is used: at the beginning of every batch."""
        self._checked.clear()

    def job(self, job_id: str) -> dict[str, bytes]:
        """The keys of a job by kid; empty where there are none (archived, foreign, or unreadable)."""
        return self._cached(self._jobs, job_id, "job")

    def session(self, name: str) -> dict[str, bytes]:
        return self._cached(self._sessions, name, "session")

    def control(self) -> bytes:
        """Raises FileRefused."""
        return keys.load(self._layout.control_key)

    def _cached(self, cache: dict[str, _Known], name: str, kind: str) -> dict[str, bytes]:
        if (kind, name) in self._checked:
            return cache[name].keys
        path = self._layout.job_key(name) if kind == "job" else self._layout.session_key(name)
        try:
            info = path.stat()
            mark = (info.st_ino, info.st_mtime_ns)
            found = cache.get(name)
            if found is None or found.mark != mark:  # made anew: a session of that name was removed and created
                found = _Known(mark, {"k1": keys.load(path)})
        except (FileUnusable, OSError):
            cache.pop(name, None)
            return {}  # not cached: it may be there the next time
        if len(cache) >= CACHED_AT_MOST:
            cache.clear()
            self._checked.clear()
        cache[name] = found
        self._checked.add((kind, name))
        return found.keys
