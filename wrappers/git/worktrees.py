"""The worktrees of a repository: listed, added, discarded. The caller must hold the repository's worktree lock."""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mam.broker.errors import MamError
from mam.broker.host import fault_points
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit
from mam.wrappers.git.command import GitFailed

LOCK = "mam-worktrees.lock"  # in the shared git directory, since git itself lets two adds race
_WORDS = frozenset({"worktree", "HEAD", "branch", "detached", "bare", "locked", "prunable"})
PRUNED_S = 0.02  # a prune that saw a half-made entry removes it a moment later


class TreeLocked(MamError):
    """A person has locked the worktree (`git worktree lock`), so it must not be removed."""

    path: str
    reason: str

    code = "tree_locked"
    exit_code = 5
    message = "the worktree {path} is locked: {reason}"
    remedy_text = "`git worktree unlock {path}` if that no longer holds"


class WorktreeEntry(NamedTuple):
    """One entry of `git worktree list`. *locked* is the reason, maybe empty; None where the tree is not locked."""

    path: Path
    head: str | None
    branch: str | None
    bare: bool
    locked: str | None
    missing: bool


def listed(folder: Path) -> list[WorktreeEntry]:
    """Return all worktrees of the repository, the main one first. Raises NoRepository, GitFailed."""
    try:
        said = _patiently(lambda: git.ask(folder, "worktree", "list", "--porcelain", "-z"))
    except GitFailed as error:
        if dotgit.shared_dir(folder) is None:
            raise git.NoRepository(folder=str(folder)) from error
        raise
    return parse_list(said, folder)


def parse_list(text: str, folder: Path) -> list[WorktreeEntry]:
    """Return what `worktree list --porcelain -z` printed in *folder*. Raises GitFailed for a line of another form."""
    found = []
    for record in text.rstrip("\0").split("\0\0"):
        of: dict[str, str] = {}
        for line in record.split("\0"):
            name, _, value = line.partition(" ")
            if name not in _WORDS or (name == "worktree") != (not of):
                raise git.unknown(folder, "worktree list", line)
            of[name] = value
        path = Path(of["worktree"])
        branch = of["branch"].removeprefix("refs/heads/") if "branch" in of else None
        found.append(WorktreeEntry(path, of.get("HEAD"), branch, "bare" in of, of.get("locked"), not path.is_dir()))
    return found


def _patiently(call: Callable[[], str]) -> str:
    """Call, and try again where git trips over the half-written files of a worktree that another process adds now."""
    for wait_s in (0.05, 0.2, 0.5):
        try:
            return call()
        except GitFailed as error:
            if not _tripped(error):
                raise
            time.sleep(wait_s)
    return call()


def _tripped(error: GitFailed) -> bool:
    """Whether git failed because another program changed the repository's worktrees without MAM's lock."""
    why = error.why
    words = ("failed to read", "No such file or directory", "not a git repository")
    return "worktrees/" in why and any(each in why for each in words)


def find(folder: Path, path: Path) -> WorktreeEntry | None:
    """Return the entry of *path*, in whatever spelling; None where there is none."""
    wanted = path.resolve()
    return next((tree for tree in listed(folder) if tree.path.resolve() == wanted), None)


def holder(folder: Path, branch: str) -> Path | None:
    """Return the worktree that has *branch* checked out, or None."""
    return next((tree.path for tree in listed(folder) if tree.branch == branch), None)


def half_made(tree: WorktreeEntry) -> bool:
    """Whether an `add` was interrupted: git's own mark is still there, or the entry has no work tree."""
    return tree.locked == dotgit.BEGUN or tree.missing or dotgit.own_dir(tree.path) is None


def is_ours(folder: Path, tree: WorktreeEntry) -> bool:
    """Whether the work tree of this entry itself names *folder*'s repository as its own."""
    return _says_ours(folder, tree.path)


def _says_ours(folder: Path, path: Path) -> bool:
    own, shared = dotgit.named_dir(path), dotgit.shared_dir(folder)
    return own is not None and shared is not None and own.parent.resolve() == shared / "worktrees"


def forget_foreign(folder: Path) -> list[Path]:
    """
    Drop the entries of worktrees that belong to the original of this copied repository, and return their paths.

    An entry is dropped only where its tree exists and names another repository that exists as well.
    """
    shared, gone = dotgit.shared_dir(folder), []
    for admin in sorted((shared / "worktrees").glob("*")) if shared is not None else []:
        try:
            tree = Path((admin / "gitdir").read_text("utf-8", "surrogateescape").removesuffix("\n")).parent
        except OSError:
            continue
        if dotgit.shared_dir(tree) not in (None, shared):
            shutil.rmtree(admin)
            gone.append(tree)
    return gone


def check_unlocked(tree: WorktreeEntry) -> None:
    """Raise TreeLocked where a person has locked the tree, even where the tree is gone at the moment."""
    if tree.locked not in (None, dotgit.BEGUN):
        raise TreeLocked(path=str(tree.path), reason=tree.locked or "no reason given")


def add_branch(folder: Path, path: Path, branch: str, base_sha: str) -> None:
    """
    Add a worktree on a new branch that begins at *base_sha*. When it raises, neither is left.

    The branch is made first and by itself, since only then is it certain that this call may delete it. It is made by
    sha and without tracking, since git fails where two processes write the shared configuration at once.
    """
    nothing = "0" * len(base_sha)
    dotgit.unlock(folder, f"refs/heads/{branch}")
    git.act(folder, "update-ref", "-m", f"mam: worktree {path.name}", f"refs/heads/{branch}", base_sha, nothing)
    try:
        add_existing(folder, path, branch)
    except BaseException:
        drop_branch(folder, branch, base_sha)
        raise


def add_existing(folder: Path, path: Path, branch: str) -> None:
    """Add a worktree on an existing branch. When it raises, no tree is left."""
    dotgit.unlock(folder, f"refs/heads/{branch}")  # git locks it at the end of a checkout, and may be killed there
    try:
        fault_points.point("tree.add")
        _add(folder, path, "--", str(path), branch)
        fault_points.point("tree.added")
    except BaseException:
        discard(folder, path)
        raise


def add_detached(folder: Path, path: Path, sha: str) -> None:
    """Add a worktree whose detached HEAD is *sha*. When it raises, no tree is left."""
    try:
        fault_points.point("review.tree.add")
        _add(folder, path, "--detach", "--", str(path), sha)
        fault_points.point("review.tree.added")
    except BaseException:
        discard(folder, path)
        raise


def _add(folder: Path, path: Path, *words: str) -> None:
    """
    Run `git worktree add`, and try again where another program's `git worktree prune` removed the entry meanwhile.

    Git may even report success then, so the entry is checked. Raises GitFailed.
    """
    was_empty = not path.is_dir() or not any(path.iterdir())
    for left in range(4, -1, -1):
        try:
            git.act(folder, "worktree", "add", *words)
            time.sleep(PRUNED_S)
            if dotgit.is_linked(folder, path):
                return
        except GitFailed as error:
            if not left or not _tripped(error):
                raise
        if was_empty and _says_ours(folder, path):
            shutil.rmtree(path)
        discard(folder, path)
    raise GitFailed(words="worktree add", folder=str(folder), why=f"the entry of {path} was removed while it was made")


def discard(folder: Path, path: Path) -> None:
    """
    Remove one worktree with everything in it, in whatever state an interruption left it. Discarding twice is harmless.

    Only this entry is removed: `git worktree prune` would also forget trees on a disk that is not mounted. Files are
    removed only where the entry and the tree name each other; other files at *path* stay. The tree is first renamed in
    one step, so that a half-deleted tree never looks like one with changes.

    Raises TreeLocked, and GitFailed where other files lie in its place.
    """
    aside = _aside(path)
    shutil.rmtree(aside, ignore_errors=True)  # left by an interrupted discard
    entry = find(folder, path)
    if entry is not None:
        check_unlocked(entry)
        if is_ours(folder, entry):
            fault_points.point("tree.discard")
            entry.path.rename(aside)
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(OSError):
            path.rmdir()  # an add that was interrupted early leaves an empty directory
    if entry is not None:
        if entry.locked == dotgit.BEGUN:
            git.act(folder, "worktree", "unlock", str(entry.path))
        git.act(folder, "worktree", "remove", "--force", "--", str(entry.path))
    dotgit.drop_stump(folder, path)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(path: Path) -> Path:
    """Return the path of a tree while it is deleted: beside its own, with a name that no tree has."""
    return path.with_name(f".mam-gone-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}")


def drop_branch(folder: Path, branch: str, base_sha: str) -> bool:
    """Delete *branch* if it still points at *base_sha*. Returns whether it was deleted."""
    dotgit.unlock(folder, f"refs/heads/{branch}")
    try:
        git.act(folder, "update-ref", "-d", f"refs/heads/{branch}", base_sha)
    except GitFailed:
        return False
    return True
