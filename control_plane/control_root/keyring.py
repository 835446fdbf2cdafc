"""The keys of jobs and agents, read from their 0600 files when those are new."""

from typing import NamedTuple

from mam.broker.envelope import keys
from mam.broker.errors import FileUnusable
from mam.control_plane.config.layout import Layout

CACHED_AT_MOST = 20_000


class _Known(NamedTuple):
    mark: tuple[int, int]  # which file it was read from
    keys: dict[str, bytes]


class Keyring:
    """
    The keys of one control root, with a cache.

    A key is read again after `recheck` where its file has changed. A key that cannot be read is treated as missing.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._jobs: dict[str, _Known] = {}
        self._sessions: dict[str, _Known] = {}
        self._checked: set[tuple[str, str]] = set()  # the keys whose files were checked since `recheck`

    def recheck(self) -> None:
        """Check each key's file again before its next use. To be called at the beginning of a batch."""
        self._checked.clear()

    def job(self, job_id: str) -> dict[str, bytes]:
        """Return the keys of a job by key id; empty for a job that is archived, unknown, or whose key is unreadable."""
        return self._cached(self._jobs, job_id, "job")

    def session(self, name: str) -> dict[str, bytes]:
        """Return the keys of an agent by key id; empty where there is none, or it is unreadable."""
        return self._cached(self._sessions, name, "session")

    def control(self) -> bytes:
        """Return the key that signs the monitor's own messages. Raises FileUnusable."""
        return keys.load(self._layout.control_key)

    def _cached(self, cache: dict[str, _Known], name: str, kind: str) -> dict[str, bytes]:
        if (kind, name) in self._checked:
            return cache[name].keys
        path = self._layout.job_key(name) if kind == "job" else self._layout.session_key(name)
        try:
            info = path.stat()
            mark = (info.st_ino, info.st_mtime_ns)
            found = cache.get(name)
            if found is None or found.mark != mark:  # the file is new: the agent was removed and created again
                found = _Known(mark, {"k1": keys.load(path)})
        except (FileUnusable, OSError):
            cache.pop(name, None)
            return {}  # not cached, since the file may be there the next time
        if len(cache) >= CACHED_AT_MOST:
            cache.clear()
            self._checked.clear()
        cache[name] = found
        self._checked.add((kind, name))
        return found.keys
