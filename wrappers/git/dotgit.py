"""Where git keeps what: read from its files, without a process and without git itself. Standard library only."""

import contextlib
import re
import shutil
import time
from pathlib import Path

_COMMON_DATA = ("objects", "refs", "logs", "reftable", "lfs", "rr-cache")
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
ABANDONED_S = 5.0
BEGUN = "initializing"  # git's own lock on a tree that it has begun to check out


def own_dir(tree: Path) -> Path | None:
    """The git directory of the work tree whose top is *tree*, or of a bare repository; None where there is none."""
    named = named_dir(tree)
    if named is None and not (tree / ".git").exists() and is_bare_folder(tree):
        return tree
    return named if named is not None and named.is_dir() else None


def named_dir(tree: Path) -> Path | None:
    """The git directory that *tree* says is its own, whether it is there or not; None where it says nothing."""
    dot_git = tree / ".git"
    if dot_git.is_dir():
        return dot_git
    try:
        text = dot_git.read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    named = text.removeprefix("gitdir:").strip()  # a torn file names nothing
    return tree / named if named else None


def top_of(folder: Path) -> Path | None:
    """The top of the work tree that holds *folder*; None where there is none."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


def is_bare_folder(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def says_bare(tree: Path) -> bool:
    """Whether the configuration of *tree*'s repository calls it bare, in the words that git itself writes."""
    shared, said = shared_dir(tree), ""
    for path in [shared / "config", shared / "config.worktree"] if shared is not None else []:
        with contextlib.suppress(OSError):
            said += path.read_text("utf-8", "replace") + "\n"
    return re.search(r"^\s*bare = true$", said, re.MULTILINE) is not None


def shared_dir(tree: Path) -> Path | None:
    """The directory that all work trees of *tree*'s repository share, resolved; None where there is none."""
    own = own_dir(tree)
    if own is None:
        return None
    try:
        own = own / (own / "commondir").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        pass  # the main work tree has none: it is the shared one itself
    return own.resolve()


def written_by_commits(tree: Path) -> list[Path]:
    """
    The folders that commits, branches and stashes in the linked work tree *tree* are written to; none for others.

    Hooks and configuration are not among them: who can write those has programs run by whoever uses git next.
    """
    own, shared = own_dir(tree), shared_dir(tree)
    if own is None or shared is None or own.resolve() == shared:
        return []
    return [own.resolve(), *(folder for name in _COMMON_DATA if (folder := shared / name).is_dir())]


def is_registered(root: Path, tree: Path) -> bool:
    """Whether the repository of *root* has an entry for a linked work tree at *tree*, be it there or gone."""
    shared, place = shared_dir(root), tree.resolve()
    for note in (shared / "worktrees").glob("*/gitdir") if shared else ():
        try:
            if Path(note.read_text("utf-8", "surrogateescape").rstrip("\n")).parent.resolve() == place:
                return True
        except OSError:
            continue  # it is being removed at this moment
    return False


def is_linked(root: Path, tree: Path) -> bool:
    """Whether there is a whole work tree at *tree* that *root*'s repository has an entry for, each naming the other."""
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
    """What HEAD of *tree* says: a full sha where it is detached, else `ref: refs/heads/…`; empty where unreadable."""
    own = own_dir(tree)
    try:
        return (own / "HEAD").read_text("utf-8", "surrogateescape").strip() if own else ""
    except OSError:
        return ""


def branch_of(tree: Path) -> str | None:
    """The branch that *tree* is on; None where its HEAD is detached or unreadable."""
    head = head_of(tree)
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def commit_of(tree: Path) -> str | None:
    """The full sha that HEAD of *tree* names; None for an unborn branch, and where the files do not say it."""
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
    Remove what a killed git left as its lock on *refs* (full names) of *tree*'s repository.

    git's locks name no owner, so age decides: whoever lives holds one for milliseconds, and is waited for. For refs
    that nobody but the caller writes at this moment, and that a git of its own may have been killed at.
    """
    shared = shared_dir(tree)
    for lock in [shared / f"{ref}.lock" for ref in refs] if shared is not None else []:
        if _abandoned(lock):
            lock.unlink(missing_ok=True)


def drop_stump(root: Path, tree: Path) -> None:
    """Remove the entry of a linked work tree at *tree* that a killed git began, and wrote no place into yet."""
    shared = shared_dir(root)
    entry = shared / "worktrees" / tree.name if shared is not None else None
    if entry is None or (entry / "gitdir").exists():
        return
    if _abandoned(entry) and not (entry / "gitdir").exists():
        shutil.rmtree(entry)


def _abandoned(path: Path) -> bool:
    """True where *path* has been there, unchanged, for ABANDONED_S; False as soon as it is gone."""
    waited_until = time.monotonic() + ABANDONED_S
    while True:
        try:
            age_s = time.time() - path.lstat().st_mtime
        except OSError:
            return False
        if age_s > ABANDONED_S or time.monotonic() > waited_until:
            return True
        time.sleep(0.05)
