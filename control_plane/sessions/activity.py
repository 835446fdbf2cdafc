"""Signs of progress that an agent leaves in files: its conversation grows, its worktree's head moves."""

from pathlib import Path

from mam.agents import catalog
from mam.broker.errors import MamError
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import Session
from mam.control_plane.sessions import runtime
from mam.wrappers.git import dotgit

PATHS_KEPT_MS = 60_000  # to find the files of a conversation costs more than to look at them


class Activity:
    """What was last seen of each agent. A look costs a few file stats, and no process."""

    def __init__(self, mam: Mam) -> None:
        self._mam = mam
        self.trouble: dict[str, str] = {}  # session -> why its adapter could not name the files, at the last try
        self._paths: dict[str, tuple[int, list[Path]]] = {}
        self._heads: dict[str, tuple[str, int]] = {}

    def forget_but(self, names: set[str]) -> None:
        """Forget all agents but those in *names*."""
        self._paths = {name: known for name, known in self._paths.items() if name in names}
        self._heads = {name: known for name, known in self._heads.items() if name in names}
        self.trouble = {name: why for name, why in self.trouble.items() if name in names}

    def written_at(self, session: Session, now: int) -> int:
        """When the newest of the conversation's files last changed (ms); 0 where there is none or the adapter fails."""
        at, paths = self._paths.get(session.name, (0, []))
        if now - at > PATHS_KEPT_MS:
            self.trouble.pop(session.name, None)
            try:
                seat = runtime.place_of(self._mam, session)
                paths = catalog.find(session.agent).conversation_files(seat)
            except MamError as error:
                paths = []
                self.trouble[session.name] = str(error)
            self._paths[session.name] = (now, paths)
        return max((_changed_at(path) for path in paths), default=0)

    def committed_at(self, session: Session, now: int) -> int:
        """Return when the head of the agent's worktree was seen to move (ms since 1970); 0 before it moved."""
        top = dotgit.top_of(Path(session.cwd))
        head = (dotgit.commit_of(top) if top else None) or ""
        known = self._heads.get(session.name)
        if known is None or known[0] != head:
            self._heads[session.name] = (head, now if known is not None else 0)
        return self._heads[session.name][1]


def _changed_at(path: Path) -> int:
    try:
        return int(path.stat().st_mtime * 1000)
    except OSError:
        return 0
