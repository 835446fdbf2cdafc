"""The worktrees of the repository, as the registry and git see them together."""

from pathlib import Path
from typing import NamedTuple

from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import LIVE
from mam.control_plane.sessions.occupancy import lives_in
from mam.control_plane.worktrees import state as worktree_state
from mam.wrappers.git import worktrees as git_worktrees


class Listed(NamedTuple):
    """A worktree as it is: *state* is what the row and the file system say together."""

    name: str
    state: str
    branch: str
    head: str
    path: str
    agents: list[str]


def listing(mam: Mam) -> list[Listed]:
    """Every worktree of the repository but reviewers' ones; those that MAM did not make have no name."""
    with mam.registry.view() as view:
        rows = view.worktrees()
        sessions = [session for session in view.sessions() if session.status in LIVE]
    there = {tree.path.resolve(): tree for tree in git_worktrees.listed(mam.layout.root)[1:]}
    found = []
    for row in rows:
        entry = there.pop(Path(row.path).resolve(), None)
        agents = [session.name for session in sessions if lives_in(session.cwd, row.path)]
        state = worktree_state.now(mam.layout.root, row)
        head = entry.head if entry is not None and entry.head else row.head_sha or row.base_sha
        found.append(Listed(row.name, state, row.branch, head, row.path, agents))
    reviews = mam.layout.reviews.resolve()
    for path, tree in there.items():
        if not path.is_relative_to(reviews):
            agents = [session.name for session in sessions if lives_in(session.cwd, str(path))]
            state = "missing" if tree.missing else "not ours"
            found.append(Listed("-", state, tree.branch or "(detached)", tree.head or "", str(path), agents))
    return found
