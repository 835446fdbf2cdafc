"""The worktrees of a repository: listed, added, discarded. Who calls holds the repository's worktree lock."""

import shutil
from pathlib import Path
from typing import NamedTuple

from mam.broker import faults
from mam.wrappers import git, gitfiles
from mam.wrappers.git import GitFailed

LOCK = "mam-worktrees.lock"  # in the shared git directory: git itself lets two adds race


class Tree(NamedTuple):
    """One entry of `git worktree list`. *locked* is the reason, empty where none was given, None where not locked."""

    path: Path
    head: str | None
    branch: str | None
    bare: bool
    locked: str | None
    missing: bool


def listed(folder: Path) -> list[Tree]:
    """All worktrees of the repository, the main one first. Raises GitFailed."""
    found = []
    for record in git.ask(folder, "worktree", "list", "--porcelain", "-z").split("\0\0"):
        said: dict[str, str] = {}
        for line in record.strip("\0").split("\0"):
            name, _, value = line.partition(" ")
            said[name] = value
        if "worktree" in said:
            path = Path(said["worktree"])
            branch = said["branch"].removeprefix("refs/heads/") if "branch" in said else None
            missing = not path.is_dir()
            found.append(Tree(path, said.get("HEAD"), branch, "bare" in said, said.get("locked"), missing))
    return found


def find(folder: Path, path: Path) -> Tree | None:
    """The entry of exactly *path*, however it was spelled; None where there is none."""
    wanted = path.resolve()
    return next((tree for tree in listed(folder) if tree.path.resolve() == wanted), None)


def holder(folder: Path, branch: str) -> Path | None:
    """Where *branch* is checked out, or None."""
    return next((tree.path for tree in listed(folder) if tree.branch == branch), None)


def half_made(tree: Tree) -> bool:
    """Whether an `add` was interrupted: git marks that itself, or there is no work tree behind the entry."""
    return tree.locked == "initializing" or tree.missing or gitfiles.own_dir(tree.path) is None


def add_branch(folder: Path, path: Path, branch: str, base_sha: str) -> None:
    """
    Add a worktree on a new branch that begins at *base_sha*; when it raises, neither is left.

    By sha and without tracking: writing the shared configuration at once is what makes git fail.
    """
    try:
        faults.point("tree.add")
        git.act(folder, "worktree", "add", "--no-track", "-b", branch, "--", str(path), base_sha)
        faults.point("tree.added")
    except BaseException:
        discard(folder, path)
        drop_branch(folder, branch, base_sha)
        raise


def add_existing(folder: Path, path: Path, branch: str) -> None:
    """Add a worktree on an existing branch; when it raises, no tree is left."""
    try:
        faults.point("tree.add")
        git.act(folder, "worktree", "add", "--", str(path), branch)
        faults.point("tree.added")
    except BaseException:
        discard(folder, path)
        raise


def add_detached(folder: Path, path: Path, sha: str) -> None:
    """Add a worktree whose HEAD is exactly *sha*; when it raises, no tree is left."""
    try:
        faults.point("review.tree.add")
        git.act(folder, "worktree", "add", "--detach", "--", str(path), sha)
        faults.point("review.tree.added")
    except BaseException:
        discard(folder, path)
        raise


def discard(folder: Path, path: Path) -> None:
    """
    Remove one worktree of ours with everything in it, whatever state an interruption left it in; twice is harmless.

    Exactly this entry: `git worktree prune` would also forget trees on a disk that is not mounted.
    """
    shutil.rmtree(path, ignore_errors=True)
    entry = next((tree for tree in listed(folder) if tree.path == path or tree.path.resolve() == path.resolve()), None)
    if entry is None:
        return
    if entry.locked is not None:
        git.act(folder, "worktree", "unlock", str(entry.path))
    git.act(folder, "worktree", "remove", "--force", str(entry.path))


def drop_branch(folder: Path, branch: str, base_sha: str) -> bool:
    """Delete *branch* only while it still points at *base_sha*; True where it was deleted."""
    try:
        git.act(folder, "update-ref", "-d", f"refs/heads/{branch}", base_sha)
    except GitFailed:
        return False
    return True
