"""
Worktrees for writers: prepared, listed, removed. What cannot be undone is checked first, twice.

Only rows of ours are ever acted on, each by its exact path. A row says what was
begun, so a verb that died in the middle is simply run again.
"""

import contextlib
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import fault_points, locks
from mam.broker.host.progress import Progress, silent
from mam.broker.host.text import clean
from mam.control_plane.config.settings import absolute
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Worktree
from mam.control_plane.registry.transactions import Transaction
from mam.control_plane.sessions.occupancy import TreeUnready
from mam.control_plane.worktrees import naming, provision
from mam.control_plane.worktrees.naming import BranchTaken, NoCommit, PathTaken
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, uncommitted
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.command import GitFailed


class UnknownWorktree(MamError):
    """No worktree of MAM has this name."""

    name: str

    code = "unknown_worktree"
    exit_code = 2
    message = "there is no worktree {name!r}"
    remedy_text = "`mam worktree list` shows them; `mam worktree prepare {name}` makes it"


class WorktreeRequest(NamedTuple):
    """What `worktree prepare` was asked for. *branch* None: a new one of the worktree's own name."""

    name: str
    branch: str | None = None
    base: str = "HEAD"
    venv: bool | None = None  # None: where the project is Python
    setup: str = ""
    path: Path | None = None


@contextmanager
def repository_lock(mam: Mam) -> Generator[None]:
    """One at a time adds or removes worktrees of this repository. Raises Busy after 60 s, NoRepository."""
    shared = dotgit.shared_dir(mam.layout.root)
    if shared is None:
        raise git.NoRepository(folder=str(mam.layout.root))
    with locks.hold(shared / git_worktrees.LOCK, wait_s=60) as lock, git.keeping(lock):
        yield


def repository_is_busy(mam: Mam) -> bool:
    """Whether a worktree is being added or removed at the moment; for callers that must not wait."""
    shared = dotgit.shared_dir(mam.layout.root)
    return shared is not None and locks.is_held(shared / git_worktrees.LOCK)


@contextmanager
def alone(mam: Mam, name: str) -> Generator[None]:
    """One verb at a time works on one worktree. Raises Busy after 30 s."""
    mam.check_place()
    mam.layout.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.hold(mam.layout.run / f"worktree-{name}.lock"):
        yield


def is_worked_on(mam: Mam, name: str) -> bool:
    """Whether some verb works on this worktree at the moment."""
    return locks.is_held(mam.layout.run / f"worktree-{name}.lock")


def need(view: View, name: str) -> Worktree:
    """The worktree called *name* that is there. Raises UnknownWorktree."""
    row = view.worktree(name)
    if row is None or row.state == "removed":
        raise UnknownWorktree(name=name)
    return row


def place_of(mam: Mam, name: str) -> Path:
    """The top of a prepared worktree. Raises UnknownWorktree, TreeUnready."""
    with mam.registry.view() as view:
        tree = need(view, name)
    if tree.state != "ready" or not Path(tree.path).is_dir():
        raise TreeUnready(worktree=name, state=tree.state if tree.state != "ready" else "gone")
    return Path(tree.path)


def path_of(mam: Mam, wanted: str) -> Path:
    """The path of a worktree by its name, or *wanted* itself as a path: of two of one name the worktree is meant."""
    with mam.registry.view() as view:
        row = view.worktree(wanted)
    if row is not None and row.state != "removed":
        return Path(row.path)
    return absolute(wanted, mam.settings.cwd)


def prepare(mam: Mam, wish: WorktreeRequest, say: Progress = silent) -> Worktree:
    """
    A worktree that a creator can work in: branch, tree, submodules, excludes, its own venv.

    Done again it completes what an interrupted one began and heals a tree that was
    removed by hand. When it raises, branch, tree and row of a new one are gone.

    Raises: BadName, PathTaken, BranchTaken, NoCommit, TreeLocked, OutfitFailed, GitFailed, Busy.
    """
    topics.check_name(wish.name, "worktree")
    with alone(mam, wish.name):
        with mam.registry.view() as view:
            known = view.worktree(wish.name)
        new = known is None or known.state == "removed"
        row = _planned(mam, wish, known) if known is None or new else _same(known, wish)
        if new and wish.base == "HEAD":
            _tell_left_behind(mam.layout.root, row, say)
        try:
            if _tree(mam, row, say) or row.state != "ready":
                with repository_lock(mam):  # both write what all worktrees share
                    git.exclude(mam.layout.root, *provision.EXCLUDED)
                    provision.submodules(mam.layout.root, Path(row.path), say)
                fault_points.point("worktree.submodules")
                provision.environment(mam, Path(row.path), venv=wish.venv, setup=wish.setup, say=say)
                fault_points.point("worktree.fitted")
            elif wish.setup:
                say(f"{row.name} is ready already: --setup was not run again; run it in {row.path} yourself")
            with mam.registry.transaction() as tx:
                ready = replace(row, state="ready", updated_at=now_ms(), head_sha=None, detail=None)
                tx.put(ready)
                _note_branch(tx, mam)
        except BaseException:
            if row.state == "preparing":
                _roll_back(mam, row, known if new else None, new=new)
            raise
    return ready


def _tell_left_behind(root: Path, row: Worktree, say: Progress) -> None:
    """Say what a new worktree lacks, since it begins at a commit: the main checkout's uncommitted changes."""
    if dotgit.says_bare(root):
        return
    try:
        changes = uncommitted.status(root)
    except GitFailed as error:
        say(f"whether {root} has uncommitted changes cannot be told: {error.why}")
        return
    if changes:
        first = ", ".join(clean(each.path) for each in changes[:3]) + (", …" if len(changes) > 3 else "")
        say(f"{root} has changes that are not committed, and {row.name} begins without them: {first}")


def _same(row: Worktree, wish: WorktreeRequest) -> Worktree:
    """The row that is there, where *wish* does not mean another one. Raises BranchTaken, PathTaken."""
    hint = f"`mam worktree remove {row.name}` first, or choose another name"
    if wish.branch not in (None, row.branch):
        raise BranchTaken(branch=str(wish.branch), why=f"{row.name} is on {row.branch}", hint=hint)
    if wish.path is not None and wish.path.resolve() != Path(row.path).resolve():
        raise PathTaken(path=str(wish.path), why=f"{row.name} is at {row.path}", hint=hint)
    return row


def _note_branch(tx: Transaction, mam: Mam) -> None:
    """From the first worktree on the main checkout stays on its branch: the monitor reports a switch."""
    branch = dotgit.branch_of(mam.layout.root)
    if branch and tx.meta("main_branch") is None:
        tx.set_meta("main_branch", branch)


def _planned(mam: Mam, wish: WorktreeRequest, before: Worktree | None) -> Worktree:
    """
    The checked plan as a row `preparing`. Raises before anything is touched.

    A worktree that was removed *before* comes back on its branch, and at its path: conversations belong to it.
    """
    root = mam.layout.root
    kept = before.branch if before is not None and git.branch_tip(root, before.branch) is not None else None
    wanted = kept if wish.branch is None else wish.branch
    branch = naming.check_branch(root, wish.name if wanted is None else wanted)
    path = wish.path or (Path(before.path) if before is not None else mam.layout.worktrees / wish.name)
    naming.check_path(root, path)
    tip = git.branch_tip(root, branch)
    if wanted is None and tip is not None:
        raise BranchTaken(branch=branch, why="it exists", hint=f"--branch {branch} takes it as it is")
    with mam.registry.view() as view:
        if branch == view.meta("main_branch"):
            raise BranchTaken(branch=branch, why="it is the main checkout's", hint="choose another branch")
    naming.check_free(root, branch, path, exists=tip is not None)
    base = tip or git.resolve(root, wish.base)
    if base is None:
        raise NoCommit(revision=wish.base, folder=str(root), hint="make a first commit, or correct --base")
    naming.make_parent(path)
    now = now_ms()
    row = Worktree(wish.name, str(path), branch, base, "preparing", int(tip is None), now, now)
    try:
        with mam.registry.transaction() as tx:
            tx.put(row)
    except sqlite3.IntegrityError as error:
        raise BranchTaken(
            branch=branch, why="another worktree has its path or its branch", hint="give another --branch"
        ) from error
    fault_points.point("worktree.row")
    return row


def _tree(mam: Mam, row: Worktree, say: Progress) -> bool:
    """Have the tree of *row* as it must be: kept, healed, or added; True where it was made now."""
    root, path = mam.layout.root, Path(row.path)
    with repository_lock(mam):
        entry = git_worktrees.find(root, path)
        if entry is not None and not git_worktrees.half_made(entry):
            if not git_worktrees.is_ours(root, entry):
                raise PathTaken(path=str(path), why="it is a worktree of another repository", hint="give --path")
            if entry.branch != row.branch:
                why = f"the worktree {row.name} is on {entry.branch or 'no branch'}"
                raise BranchTaken(branch=row.branch, why=why, hint=f"`git -C {path} switch {row.branch}`")
            return False
        if entry is not None:
            git_worktrees.check_unlocked(entry)
        if path.is_dir() and any(path.iterdir()) and not (entry is not None and entry.locked == dotgit.BEGUN):
            raise PathTaken(path=str(path), why="files are there that no worktree has", hint="move them away")
        if entry is not None:
            say(f"healing {path}")
        git_worktrees.discard(root, path)
        say(f"adding {path} on {row.branch}")
        if git.branch_tip(root, row.branch) is None:
            git_worktrees.add_branch(root, path, row.branch, row.head_sha or row.base_sha)
        else:
            git_worktrees.add_existing(root, path, row.branch)
    return True


def _roll_back(mam: Mam, row: Worktree, before: Worktree | None, *, new: bool) -> None:
    """
    Leave nothing of a worktree that never was ready, but the note of the one *before* it.

    Where work may have been done in it already (another call began it), everything stays.
    """
    path = Path(row.path)
    if dotgit.own_dir(path) is not None and _worked_in(path, row, new=new):
        return
    with repository_lock(mam):
        git_worktrees.discard(mam.layout.root, path)
        if row.new_branch:
            git_worktrees.drop_branch(mam.layout.root, row.branch, row.base_sha)
    with mam.registry.transaction() as tx:
        tx.drop(row) if before is None else tx.put(before)
    drop_empty(mam)


def drop_empty(mam: Mam) -> None:
    """Remove the folder of the worktrees where the last one is gone."""
    with contextlib.suppress(OSError):
        mam.layout.worktrees.rmdir()


def _worked_in(path: Path, row: Worktree, *, new: bool) -> bool:
    """Whether there are commits, or changes where the tree is not *new*: a setup that failed leaves some as well."""
    try:
        return git.resolve(path, "HEAD") != row.base_sha or (not new and bool(uncommitted.look(path)))
    except GitFailed:
        return True  # what could not be looked at may hold work
