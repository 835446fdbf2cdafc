"""Worktrees made in this process, and what a repository looks like around them."""

from pathlib import Path
from typing import Any

from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees.prepare import WorktreeRequest
from tests.support import Root, git


def prepare(root: Root, name: str = "one", **wish: Any) -> Path:
    """In this process: most of these need no other."""
    return Path(worktrees.prepare(root.parts, WorktreeRequest(name, **{"venv": False, **wish})).path)


def state(root: Root, name: str = "one") -> Any:
    with root.registry.view() as view:
        found = view.worktree(name)
    return None if found is None else found.state


def shape(root: Root) -> tuple[str, str, list[str]]:
    """All refs, git's own list, and what lies beside the repository."""
    beside = root.path.parent / f"{root.path.name}.worktrees"
    trees = sorted(str(path.relative_to(beside)) for path in beside.glob("*"))
    return git(root.path, "for-each-ref"), git(root.path, "worktree", "list", "--porcelain"), trees
