"""
Worktrees for writers: prepared, listed, removed. What cannot be undone is checked first, twice.

Only rows of ours are ever acted on, each by its exact path. A row says what was
begun, so a verb that died in the middle is simply run again.
"""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mam.broker import faults, topics
from mam.broker.bodies import now_ms
from mam.broker.errors import MamError
from mam.control_plane import locks, outfit, tree_names
from mam.control_plane.registry import Transaction
from mam.control_plane.rows import LIVE, Worktree
from mam.control_plane.tree_names import BranchTaken, NoCommit, PathTaken
from mam.control_plane.view import View
from mam.control_plane.wiring import Mam
from mam.wrappers import dirt, git, gitfiles, trees
from mam.wrappers.git import GitFailed

Say = Callable[[str], None]


class UnknownWorktree(MamError):
    code = "unknown_worktree"
    exit_code = 2
    message = "there is no worktree {name!r}"
    remedy_text = "`mam worktree list` shows them; `mam worktree prepare {name}` makes it"


class Wish(NamedTuple):
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
    shared = gitfiles.shared_dir(mam.layout.root)
    if shared is None:
        raise git.NoRepository(folder=str(mam.layout.root))
    with locks.hold(shared / trees.LOCK, wait_s=60):
        yield


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


def prepare(mam: Mam, wish: Wish, say: Say = lambda _: None) -> Worktree:
    """
    A worktree that a creator can work in: branch, tree, submodules, excludes, its own venv.

    Done again it completes what an interrupted one began and heals a tree that was
    removed by hand. When it raises, branch, tree and row of a new one are gone.

    Raises: BadName, PathTaken, BranchTaken, NoCommit, OutfitFailed, GitFailed, Busy.
    """
    topics.check_name(wish.name, "worktree")
    with alone(mam, wish.name):
        row = _begun(mam, wish)
        try:
            if _tree(mam, row, say) or row.state != "ready":
                with repository_lock(mam):  # both write what all worktrees share
                    git.exclude(mam.layout.root, *outfit.EXCLUDED)
                    outfit.submodules(mam.layout.root, Path(row.path), say)
                faults.point("worktree.submodules")
                outfit.environment(mam, Path(row.path), venv=wish.venv, setup=wish.setup, say=say)
                faults.point("worktree.fitted")
            with mam.registry.transaction() as tx:
                ready = replace(row, state="ready", updated_at=now_ms(), head_sha=None, detail=None)
                tx.put(ready)
                _note_branch(tx, mam)
        except BaseException:
            if row.state == "preparing":
                _roll_back(mam, row)
            raise
    return ready


def _begun(mam: Mam, wish: Wish) -> Worktree:
    """The row to work on: the one that is there, or a new, checked plan."""
    with mam.registry.view() as view:
        row = view.worktree(wish.name)
    if row is None or row.state == "removed":
        kept = row is not None and git.branch_tip(mam.layout.root, row.branch) is not None
        return _planned(mam, wish._replace(branch=wish.branch or (row.branch if row and kept else None)))
    if wish.branch not in (None, row.branch):
        hint = f"`mam worktree remove {row.name}` first, or choose another name"
        raise BranchTaken(branch=str(wish.branch), why=f"{row.name} is on {row.branch}", hint=hint)
    return row


def _note_branch(tx: Transaction, mam: Mam) -> None:
    """From the first worktree on the main checkout stays on its branch: the monitor reports a switch."""
    branch = gitfiles.branch_of(mam.layout.root)
    if branch and tx.meta("main_branch") is None:
        tx.set_meta("main_branch", branch)


def _planned(mam: Mam, wish: Wish) -> Worktree:
    """The checked plan as a row `preparing`. Raises before anything is touched."""
    root = mam.layout.root
    branch = tree_names.check_branch(root, wish.branch or wish.name)
    path = wish.path or mam.layout.worktrees / wish.name
    tree_names.check_path(root, path)
    tip = git.branch_tip(root, branch)
    if wish.branch is None and tip is not None:
        raise BranchTaken(branch=branch, why="it exists", hint=f"--branch {branch} takes it as it is")
    tree_names.check_free(root, branch, exists=tip is not None)
    base = tip or git.resolve(root, wish.base)
    if base is None:
        raise NoCommit(revision=wish.base, folder=str(root), hint="make a first commit, or correct --base")
    now = now_ms()
    row = Worktree(wish.name, str(path), branch, base, "preparing", int(tip is None), now, now)
    try:
        with mam.registry.transaction() as tx:
            tx.put(row)
    except sqlite3.IntegrityError as error:
        raise BranchTaken(branch=branch, why="another worktree has its path or its branch", hint="--branch") from error
    faults.point("worktree.row")
    return row


def _tree(mam: Mam, row: Worktree, say: Say) -> bool:
    """Have the tree of *row* as it must be: kept, healed, or added; True where it was made now."""
    root, path = mam.layout.root, Path(row.path)
    with repository_lock(mam):
        entry = trees.find(root, path)
        if entry is not None and not trees.half_made(entry):
            if entry.branch != row.branch:
                why = f"the worktree {row.name} is on {entry.branch or 'no branch'}"
                raise BranchTaken(branch=row.branch, why=why, hint=f"git -C {path} switch {row.branch}")
            return False
        if entry is not None:
            say(f"healing {path}")
            if path.is_dir() and row.state == "ready" and any(path.iterdir()):
                raise PathTaken(path=str(path), why="its .git is gone but files are there", hint="move them away")
            trees.discard(root, path)
        say(f"adding {path} on {row.branch}")
        if git.branch_tip(root, row.branch) is None:
            trees.add_branch(root, path, row.branch, row.head_sha or row.base_sha)
        else:
            trees.add_existing(root, path, row.branch)
    return True


def _roll_back(mam: Mam, row: Worktree) -> None:
    """Leave nothing of a worktree that never was ready; where somebody worked in it already, leave everything."""
    path = Path(row.path)
    if gitfiles.own_dir(path) is not None and _worked_in(path, row):
        return
    with repository_lock(mam):
        trees.discard(mam.layout.root, path)
        if row.new_branch:
            trees.drop_branch(mam.layout.root, row.branch, row.base_sha)
    with mam.registry.transaction() as tx:
        tx.drop(row)


def _worked_in(path: Path, row: Worktree) -> bool:
    try:
        return git.resolve(path, "HEAD") != row.base_sha or any(d.what != "untracked" for d in dirt.look(path))
    except GitFailed:
        return False  # half made


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
    there = {tree.path.resolve(): tree for tree in trees.listed(mam.layout.root)[1:]}
    found = []
    for row in rows:
        entry = there.pop(Path(row.path).resolve(), None)
        agents = [session.name for session in sessions if _lives_in(session.cwd, row.path)]
        state = row.state
        if row.state == "ready" and (entry is None or trees.half_made(entry)):
            state = "missing"
        head = entry.head if entry is not None and entry.head else row.head_sha or row.base_sha
        found.append(Listed(row.name, state, row.branch, head, row.path, agents))
    reviews = mam.layout.reviews.resolve()
    for path, tree in there.items():
        if not path.is_relative_to(reviews):
            agents = [session.name for session in sessions if _lives_in(session.cwd, str(path))]
            state = "missing" if tree.missing else "not ours"
            found.append(Listed("-", state, tree.branch or "(detached)", tree.head or "", str(path), agents))
    return found


def _lives_in(cwd: str, path: str) -> bool:
    return Path(cwd).resolve().is_relative_to(Path(path).resolve())


def residents(view: View, path: str) -> list[str]:
    """Sessions whose directory lies in *path*, whatever their state."""
    return [session.name for session in view.sessions() if _lives_in(session.cwd, path)]


class NotAsExpected(MamError):
    code = "not_as_expected"
    message = "{path} is not as expected: {why}"
    remedy_text = "look what happened there (git -C {path} log), then name the {what} that you mean"


def commit(mam: Mam, name: str, message: str, *, expect_head: str | None = None) -> str:
    """
    Commit everything in a worktree of ours, only on its own branch and on the expected head; the new sha.

    Hooks of the repository do not run. Raises UnknownWorktree, NotAsExpected, NoCommit, GitFailed, Busy.
    """
    with alone(mam, name):
        with mam.registry.view() as view:
            row = need(view, name)
        path = Path(row.path)
        on = gitfiles.branch_of(path)
        if on != row.branch:
            raise NotAsExpected(path=row.path, why=f"it is on {on or 'no branch'}, not on {row.branch}", what="branch")
        head = git.resolve(path, "HEAD")
        if expect_head is not None:
            wanted = git.resolve(path, expect_head)
            if wanted is None:
                raise NoCommit(revision=expect_head, folder=row.path, hint="name the commit that you looked at")
            if wanted != head:
                raise NotAsExpected(path=row.path, why=f"its head is {head}, not {wanted}", what="head")
        going_on = dirt.unfinished(path)
        if going_on:
            raise NotAsExpected(path=row.path, why=going_on[0].what, what="operation")
        git.act(path, "add", "--all")
        git.act(path, "commit", "--quiet", "-m", message)
        return str(git.resolve(path, "HEAD"))
