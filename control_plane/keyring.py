"""The keys of jobs and sessions, read once each from their 0600 files."""

from mam.broker import keys
from mam.broker.errors import FileRefused
from mam.control_plane.settings import Layout

CACHED_AT_MOST = 20_000


class Keyring:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._jobs: dict[str, dict[str, bytes]] = {}
        self._sessions: dict[str, dict[str, bytes]] = {}

    def job(self, job_id: str) -> dict[str, bytes]:
        """The keys of a job by kid; empty where there are none (archived, foreign, or unreadable)."""
        return self._cached(self._jobs, job_id, "job")

    def session(self, name: str) -> dict[str, bytes]:
        return self._cached(self._sessions, name, "session")

    def control(self) -> bytes:
        """Raises FileRefused."""
        return keys.load(self._layout.control_key)

    def forget_job(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

    def forget_session(self, name: str) -> None:
        self._sessions.pop(name, None)

    def _cached(self, cache: dict[str, dict[str, bytes]], name: str, kind: str) -> dict[str, bytes]:
        found = cache.get(name)
        if found is not None:
            return found
        path = self._layout.job_key(name) if kind == "job" else self._layout.session_key(name)
        try:
            found = {"k1": keys.load(path)}
        except FileRefused:
            return {}  # not cached: it may be there the next time
        if len(cache) >= CACHED_AT_MOST:
            cache.clear()
        cache[name] = found
        return found
