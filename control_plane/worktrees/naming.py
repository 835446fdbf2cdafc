"""What a worktree and its branch may be called, and where it may lie: checked before anything is touched."""

import errno
import os
from pathlib import Path

from mam.broker.errors import BadName, MamError
from mam.wrappers.git import command as git
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.command import GitFailed

BRANCH_BYTES = 200  # a file system takes 255, and git adds its own
NAME_BYTES = 200


class PathTaken(MamError):
    """The path of the worktree cannot be used. Nothing was made."""

    path: str
    why: str
    hint: str

    code = "path_taken"
    message = "{path} cannot become a worktree: {why}"
    remedy_text = "{hint}"


class BranchTaken(MamError):
    """The branch of the worktree cannot be used. Nothing was made."""

    branch: str
    why: str
    hint: str

    code = "branch_taken"
    message = "the branch {branch} cannot be used: {why}"
    remedy_text = "{hint}"


class NoCommit(MamError):
    """A revision does not name a commit."""

    revision: str
    folder: str
    hint: str

    code = "no_commit"
    exit_code = 2
    message = "{revision} names no commit in {folder}"
    remedy_text = "{hint}"


def check_branch(folder: Path, branch: str) -> str:
    """Return *branch*, or raise BadName for what git would take for something else, or could not keep."""
    rule = "a branch name as `git check-ref-format --branch` takes it, at most 200 bytes, no bare commit id"
    odd = branch.startswith("-") or branch == "@" or "@{" in branch or len(branch.encode()) > BRANCH_BYTES
    if odd or (len(branch) in (40, 64) and all(char in "0123456789abcdef" for char in branch)):
        raise BadName(kind="branch", name=branch, rule=rule)
    try:
        git.ask(folder, "check-ref-format", "--branch", branch)
    except GitFailed as error:
        raise BadName(kind="branch", name=branch, rule=rule) from error
    return branch


def check_path(root: Path, path: Path) -> None:
    """Raise PathTaken where no worktree can be made at *path*."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise PathTaken(path=str(path), why=str(error.strerror), hint="give another --path") from error
    if path.resolve().is_relative_to(root.resolve()):
        raise PathTaken(path=str(path), why="it lies inside the main checkout", hint="give --path beside it")
    if len(os.fsencode(path.name)) > NAME_BYTES:
        raise PathTaken(path=str(path), why=f"its name has more than {NAME_BYTES} bytes", hint="give a shorter --path")
    if path.is_symlink() or path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise PathTaken(path=str(path), why="something is there", hint="move it away, or give --path")
    entry = git_worktrees.find(root, path)
    if entry is not None and not entry.missing:
        raise PathTaken(path=str(path), why=f"it is a worktree on {entry.branch}", hint="give --path")
    if entry is not None:
        git_worktrees.check_unlocked(entry)


def make_parent(path: Path) -> None:
    """Make the folder that *path* is to lie in. Raises PathTaken where that cannot be."""
    above = next(folder for folder in path.parents if folder.exists())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A folder that is gone again does no harm, git makes it: the removal of its last worktree took it along.
        if not os.access(path.parent, os.W_OK | os.X_OK) and path.parent.exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        why = f"{above}: {error.strerror}"
        raise PathTaken(path=str(path), why=why, hint="set MAM_WORKTREES_DIR or give --path") from error


def check_free(root: Path, branch: str, path: Path, *, exists: bool) -> None:
    """
    Raise BranchTaken where *branch* is checked out elsewhere, or could not be made beside those that exist.

    A holder that is not there counts: its disk may come back. Only the entry of *path* itself is healed.
    """
    at = git_worktrees.holder(root, branch)
    if at is not None and at.resolve() != path.resolve():
        why = f"{at} has it checked out" + ("" if at.is_dir() else ", which is not there at the moment")
        hint = "work there, or choose another branch" if at.is_dir() else f"`git worktree remove {at}` if it is gone"
        raise BranchTaken(branch=branch, why=why, hint=hint)
    if exists:
        return
    names = git.ask(root, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()
    for other in names:
        if other.startswith(f"{branch}/") or branch.startswith(f"{other}/"):
            raise BranchTaken(branch=branch, why=f"the branch {other} is in its way", hint="choose another name")
