"""
A reviewer's bench for one round: a detached tree of exactly one commit, and folders to write in, outside of it.

Opened before the reviewer is asked, checked before its verdict counts, and
removed then; those of a dead loop are removed by the process that takes the loop up.
"""

import contextlib
import os
import shutil
from pathlib import Path

from mam.broker.errors import MamError
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import write_json
from mam.broker.host.progress import silent
from mam.broker.host.text import clean
from mam.control_plane.control_root.context import Mam
from mam.control_plane.loops.briefs import ReviewTree
from mam.control_plane.registry.records import Loop
from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees import provision
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, snapshot, uncommitted
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.command import GitFailed
from mam.wrappers.git.snapshot import CapturedCommit


class ReviewTreeFailed(MamError):
    """The tree for a reviewer could not be made."""

    path: str
    why: str
    loop: str

    code = "bench_failed"
    message = "no review tree could be made at {path}: {why}"
    remedy_text = "make room or set MAM_WORKTREES_DIR, then `mam loop resume {loop}`"


def folder(mam: Mam, loop_id: str, number: int, reviewer: str) -> Path:
    return mam.layout.reviews / loop_id / f"r{number}-{reviewer}"


def open_review_tree(
    mam: Mam, loop: Loop, number: int, reviewer: str, attempt: int, snap: CapturedCommit
) -> ReviewTree:
    """
    The bench of one reviewer, made where it is missing; with `in-place` isolation the worktree itself is the tree.

    Each attempt has one of its own: what an earlier one left in its tree must not spoil the next one's verdict.

    Raises BenchFailed.
    """
    place = folder(mam, loop.id, number, reviewer)
    isolated = loop.isolation == "worktree"
    tree = place / "tree" if isolated else Path(loop.worktree)
    bench = ReviewTree(tree, place / "out", place / "tmp", _python(mam, loop), isolated)
    made = place / "bench.json"
    try:
        known = atomic_files.read(made)
        if (known.get("head"), known.get("attempt")) != (snap.head, attempt) or dotgit.commit_of(tree) is None:
            close(mam, loop.id, number, reviewer)
            for each in (bench.out, bench.tmp):
                each.mkdir(mode=0o700, parents=True)
            if isolated:
                _add_tree(mam, loop, tree, snap.head)
            what: dict[str, object] = {"head": snap.head, "attempt": attempt, "loop": loop.id, "round": number}
            write_json(made, {**what, "reviewer": reviewer})
    except (OSError, MamError) as error:
        raise ReviewTreeFailed(path=str(place), why=str(error), loop=loop.id) from error
    return bench


def _add_tree(mam: Mam, loop: Loop, tree: Path, head: str) -> None:
    with worktrees.repository_lock(mam):
        git_worktrees.add_detached(mam.layout.root, tree, head)
        _with_change(tree, f"{loop.base_sha}...{head}")
        if (tree / ".gitmodules").exists():
            provision.submodules(Path(loop.worktree), tree, silent)
    own = dotgit.own_dir(tree)
    if own is not None:
        # As it was made: what a reviewer sets in the real index (assume-unchanged, say) hides nothing from the check.
        shutil.copy2(own / "index", tree.parent / "index")


def _with_change(tree: Path, change: str) -> None:
    """Where the main checkout is sparse, the tree is as well: have at least every file of the change in it."""
    own = dotgit.own_dir(tree)
    if own is None or not (own / "info" / "sparse-checkout").exists():
        return
    words = ("--name-only", "-z", "--no-renames", "--diff-filter=d", "--no-ext-diff", "--ignore-submodules=none")
    names = git.ask(tree, "diff", *words, change)
    if names:
        from_list = ("--ignore-skip-worktree-bits", "--pathspec-from-file=-", "--pathspec-file-nul")
        git.act(tree, "--literal-pathspecs", "checkout", "--quiet", *from_list, stdin=names)


def _python(mam: Mam, loop: Loop) -> str:
    """The interpreter for what a review starts: the writer's own, else the control root's, else the system's."""
    for root in (Path(loop.worktree), mam.layout.root):
        candidate = root / ".venv" / "bin" / "python"
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which("python3", path=mam.settings.environ.get("PATH", os.defpath)) or "python3"


def check(mam: Mam, loop: Loop, number: int, reviewer: str, snap: CapturedCommit) -> str:
    """Why what a reviewer tried is not the commit that it was given; empty where it is."""
    if loop.remote is not None:
        return ""  # it worked on another machine: its signed report names the commit
    try:
        if loop.isolation != "worktree":
            return "" if snapshot.still(Path(loop.worktree), snap) else _moved(Path(loop.worktree), snap)
        place = folder(mam, loop.id, number, reviewer)
        if (place / "tree").is_symlink() or not (place / "tree").is_dir():
            return "its tree is gone"
        head = dotgit.commit_of(place / "tree")
        if head != snap.head:
            return f"its tree is at {head or 'no commit'}, not at {snap.head}"
        changed = uncommitted.status(place / "tree", place / "index")
    except GitFailed as error:
        return f"its tree could not be looked at: {error}"
    shown = ", ".join(str(item) for item in changed[:3])
    return f"its tree was changed: {shown}" if changed else ""


def _moved(tree: Path, snap: CapturedCommit) -> str:
    what = ", ".join(clean(each) for each in snapshot.moved(tree, snap)[:3])
    way_out = "undo that before the loop goes on, or cancel it and begin another one"
    return f"the worktree changed during the review ({what}): {way_out}"


def close(mam: Mam, loop_id: str, number: int, reviewer: str) -> None:
    """Remove one bench with everything in it; twice is harmless."""
    _remove(mam, folder(mam, loop_id, number, reviewer))


def close_all(mam: Mam, loop_id: str) -> int:
    """Remove every bench of a loop; how many there were."""
    found = sorted((mam.layout.reviews / loop_id).glob("r*"))
    for place in found:
        _remove(mam, place)
    for empty in (mam.layout.reviews / loop_id, mam.layout.reviews, mam.layout.worktrees):
        try:
            empty.rmdir()
        except OSError:
            break  # others are there
    return len(found)


def _remove(mam: Mam, place: Path) -> None:
    for link in (place.parent, place):
        if link.is_symlink():
            link.unlink()  # a reviewer made it: what it leads to must stay
    tree = place / "tree"
    # Also where the reviewer removed it: git keeps its entry, and would refuse to make another one in its place.
    if not place.exists() and not dotgit.is_registered(mam.layout.root, tree):
        return
    with worktrees.repository_lock(mam):
        _delete(tree)
        if dotgit.is_registered(mam.layout.root, tree):
            try:
                git.act(mam.layout.root, "worktree", "remove", "--force", "--", str(tree))
            except GitFailed:
                git_worktrees.discard(mam.layout.root, tree)  # locked by an add that was interrupted
    _delete(place)


def _delete(path: Path) -> None:
    """Whatever a reviewer made of it: links are not followed, and folders without write permission are opened."""
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    for folder, names, _ in os.walk(path):
        for name in ("", *names):
            each = Path(folder, name)
            if not each.is_symlink() and not os.access(each, os.R_OK | os.W_OK | os.X_OK):
                with contextlib.suppress(OSError):  # it belongs to another user: what is left of it shows below
                    each.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def left(mam: Mam) -> dict[str, int]:
    """Loops that have benches, and how many. A sandbox that runs just now may hold places there, like `.git`."""
    if not mam.layout.reviews.is_dir():
        return {}
    loops = [each for each in mam.layout.reviews.iterdir() if each.is_dir() and not each.name.startswith(".")]
    return {each.name: len(list(each.glob("r*"))) for each in loops}
