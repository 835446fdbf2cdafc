"""Git's own files, read without starting git. Standard library only."""

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

from mam.broker.host.waiting import wait_until

_COMMON_DATA = ("objects", "refs", "logs", "reftable", "lfs", "rr-cache")
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
ABANDONED_S = 5.0
BEGUN = "initializing"  # the reason with which git itself locks a tree that it has begun to check out


def own_dir(tree: Path) -> Path | None:
    """Return the git directory of the work tree whose top is *tree*, or of a bare repository; else None."""
    named = named_dir(tree)
    if named is None and not (tree / ".git").exists() and is_bare_folder(tree):
        return tree
    return named if named is not None and named.is_dir() else None


def named_dir(tree: Path) -> Path | None:
    """Return the git directory that *tree* names as its own, even where that is gone; None where it names none."""
    dot_git = tree / ".git"
    if dot_git.is_dir():
        return dot_git
    try:
        text = dot_git.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    named = text.removeprefix("gitdir:").strip()  # empty in a torn file
    return tree / named if named else None


def top_of(folder: Path) -> Path | None:
    """Return the top of the work tree that holds *folder*; None where there is none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def is_bare_folder(folder: Path) -> bool:
    """Whether *folder* looks like a git directory itself."""
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def says_bare(tree: Path) -> bool:
    """Whether the configuration of *tree*'s repository says `bare = true`, spelled as git itself writes it."""
    shared, said = shared_dir(tree), ""
    for path in [shared / "config", shared / "config.worktree"] if shared is not None else []:
        with contextlib.suppress(OSError):
            said += path.read_text("utf-8", "replace") + "\n"
    return re.search(r"^\s*bare = true$", said, re.MULTILINE) is not None


def shared_dir(tree: Path) -> Path | None:
    """Return the resolved directory that all work trees of *tree*'s repository share; None where there is none."""
    own = own_dir(tree)
    if own is None:
        return None
    try:
        own = own / (own / "commondir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        pass  # the main work tree has no such file: its git directory is the shared one
    return own.resolve()


def written_by_commits(tree: Path) -> list[Path]:
    """
    Return the folders that commits, branches and stashes in the linked work tree *tree* are written to.

    The list is empty for any other tree. Hooks and configuration are left out: a process that can write those can make
    the next user of git run its programs.
    """
    own, shared = own_dir(tree), shared_dir(tree)
    if own is None or shared is None or own.resolve() == shared:
        return []
    return [own.resolve(), *(folder for name in _COMMON_DATA if (folder := shared / name).is_dir())]


def is_registered(root: Path, tree: Path) -> bool:
    """Whether the repository of *root* has an entry for a linked work tree at *tree*. The tree itself may be gone."""
    shared, place = shared_dir(root), tree.resolve()
    for note in (shared / "worktrees").glob("*/gitdir") if shared else ():
        try:
            if Path(note.read_text("utf-8", "surrogateescape").rstrip("\n")).parent.resolve() == place:
                return True
        except OSError:
            continue  # it is being removed at this moment
    return False


def is_linked(root: Path, tree: Path) -> bool:
    """Whether *tree* is a whole linked work tree of *root*'s repository: the tree and its entry name each other."""
    own, shared = own_dir(tree), shared_dir(root)
    if own is None or shared is None or own.parent.resolve() != shared / "worktrees":
        return False
    try:
        place = Path((own / "gitdir").read_text("utf-8", "surrogateescape").rstrip("\n"))
        half_made = (own / "locked").exists() and (own / "locked").read_text("utf-8", "replace").strip() == BEGUN
    except OSError:
        return False  # it is being removed at this moment
    return (own / place).parent.resolve() == tree.resolve() and not half_made


def head_of(tree: Path) -> str:
    """Return the text of HEAD: a full sha where it is detached, else `ref: refs/heads/…`; empty if unreadable."""
    own = own_dir(tree)
    try:
        return (own / "HEAD").read_text("utf-8", "surrogateescape").strip() if own else ""
    except OSError:
        return ""


def branch_of(tree: Path) -> str | None:
    """Return the branch that *tree* is on; None where its HEAD is detached or unreadable."""
    head = head_of(tree)
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def commit_of(tree: Path) -> str | None:
    """Return the full sha that HEAD of *tree* names; None for an unborn branch, and where the files do not tell."""
    head = head_of(tree)
    if not head.startswith("ref: "):
        return head if _SHA.fullmatch(head) else None
    name, shared = head.removeprefix("ref: "), shared_dir(tree)
    if shared is None:
        return None
    try:
        sha = (shared / name).read_text("ascii").strip()
        return sha if _SHA.fullmatch(sha) else None
    except (OSError, ValueError):
        return _packed(shared, name)


def _packed(shared: Path, name: str) -> str | None:
    try:
        lines = (shared / "packed-refs").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    return next((line[: -len(name) - 1] for line in lines if line.endswith(f" {name}") and line[0] not in "#^"), None)


def unlock(tree: Path, *refs: str) -> None:
    """
    Remove the locks on *refs* (full names) that a killed git left in *tree*'s repository.

    A lock of git names no owner, so its age decides: a living git holds it for milliseconds, and this waits for it. The
    caller must be the only one that writes these refs now.
    """
    shared = shared_dir(tree)
    for lock in [shared / f"{ref}.lock" for ref in refs] if shared is not None else []:
        if _abandoned(lock):
            lock.unlink(missing_ok=True)


def drop_stump(root: Path, tree: Path) -> None:
    """Remove the entry of a linked work tree at *tree* that a killed git had begun without noting the tree's path."""
    shared = shared_dir(root)
    entry = shared / "worktrees" / tree.name if shared is not None else None
    if entry is None or (entry / "gitdir").exists():
        return
    if _abandoned(entry) and not (entry / "gitdir").exists():
        shutil.rmtree(entry)


def _abandoned(path: Path) -> bool:
    """Whether *path* has existed unchanged for ABANDONED_S. Waits for that, and returns False as soon as it is gone."""

    def gone_or_old() -> bool:
        try:
            return time.time() - path.lstat().st_mtime > ABANDONED_S
        except OSError:
            return True

    wait_until(gone_or_old, ABANDONED_S, every_s=0.05)
    return os.path.lexists(path)
