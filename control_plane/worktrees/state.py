"""What a prepared worktree is at this moment: the row and git's files together, without a process."""

from pathlib import Path

from mam.control_plane.registry.records import Worktree
from mam.wrappers.git import dotgit


def now(root: Path, row: Worktree) -> str:
    """The state of *row*, and of one that should be ready: `missing`, or `off branch`, where it is that."""
    path = Path(row.path)
    if row.state != "ready":
        return row.state
    if not dotgit.is_linked(root, path):
        return "missing"
    return "ready" if dotgit.branch_of(path) == row.branch else "off branch"
