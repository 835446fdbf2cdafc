"""Review loops begun: what can be wrong with one is found before anything of it is there."""

import contextlib
import json
import secrets
import shlex
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import BadName, MamError, Usage
from mam.control_plane.control_root.context import Mam
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.loops import promote
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops import timeline as loop_timeline
from mam.control_plane.loops.state import LoopState
from mam.control_plane.loops.store import LoopOpen
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, Loop, Session
from mam.control_plane.sessions.lookup import SessionNotRunning, need_session
from mam.control_plane.worktrees.naming import NoCommit
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, snapshot
from mam.wrappers.git.command import GitFailed

ISOLATIONS = ("worktree", "in-place")


class LoopExists(MamError):
    """An open loop has this id."""

    loop: str
    state: str

    code = "loop_exists"
    message = "there is a loop {loop} already ({state})"
    remedy_text = "`mam loop resume {loop}` goes on with it; leave --id out for a new one"


class LoopExisted(LoopExists):
    """A loop with this id has ended."""

    remedy_text = "`mam loop show {loop}` shows how it ended; leave --id out for a new one"


class NotAWorktree(MamError):
    """The directory cannot be reviewed, or its creator works elsewhere. No loop was made."""

    path: str
    why: str
    hint: str

    code = "not_a_worktree"
    exit_code = 2
    message = "{path} cannot be reviewed: {why}"
    remedy_text = "{hint}"


class LoopRequest(NamedTuple):
    """What `loop run` was asked for; everything that can be wrong with it is found before anything begins."""

    task: str
    worktree: Path
    creator: str | None
    reviewers: Sequence[str]
    base: str | None = None
    rounds: int = 3
    isolation: str = "worktree"
    promote: str = "none"
    remote: str | None = None
    test_command: str | None = None
    loop_id: str | None = None
    priority: int = 0


def begin(mam: Mam, wish: LoopRequest) -> Loop:
    """
    Check everything and enter the loop; nothing is sent yet. The caller holds its lock.

    Raises: Usage, BadName, NotAWorktree, NoCommit, UnknownSession, SessionNotRunning, LoopExists.
    """
    _check_words(wish)
    loop_id = check_id(wish.loop_id) if wish.loop_id else new_id()
    _check_remote(mam, wish.remote)
    tree = check_worktree(mam, wish.worktree, review_only=wish.creator is None)
    _check_promotable(wish, tree)
    with mam.registry.view() as view:
        _check_people(mam, view, wish, tree)
        existing = view.loop(loop_id)
        if existing is not None:
            kind = LoopExists if existing.ended_at is None else LoopExisted
            raise kind(loop=loop_id, state=existing.outcome or existing.state)
    loop = _row(mam, wish, loop_id, tree)
    made = not Path(loop.folder).exists()  # one without a row is left of a crash, and ours: we hold the lock
    Path(loop.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    (Path(loop.folder) / "task.md").write_text(wish.task, "utf-8", "surrogateescape")
    try:
        with mam.registry.transaction() as tx:
            _check_alone(tx, loop)
            tx.put(loop)
    except (sqlite3.IntegrityError, MamError):
        if made:
            shutil.rmtree(loop.folder)
        raise
    who = f"creator {wish.creator or '(none: review only)'}, reviewers {', '.join(wish.reviewers)}"
    loop_files.note(loop, f"begun in {loop_timeline.place(loop)}, base {loop.base_sha}; {who}")
    return loop


def _row(mam: Mam, wish: LoopRequest, loop_id: str, tree: Path) -> Loop:
    now = now_ms()
    state = LoopState(tuple(wish.reviewers), wish.creator, wish.rounds)
    return Loop(
        id=loop_id,
        state=state.phase,
        generation=1,
        worktree=str(tree),
        branch=dotgit.branch_of(tree),
        base_sha=_base(mam, tree, wish.base),
        creator=wish.creator,
        reviewers=json.dumps(list(wish.reviewers)),
        isolation=wish.isolation,
        promote=wish.promote,
        remote=wish.remote,
        test_command=wish.test_command,
        title=" ".join(wish.task.strip().splitlines()[0].split())[:120],
        folder=str(mam.layout.loops / loop_id),
        checkpoint=json.dumps(loop_state.to_json(state)),
        created_at=now,
        updated_at=now,
        priority=wish.priority,
    )


def _check_alone(tx: View, loop: Loop) -> None:
    """One loop an id, and one open loop a worktree: the second would review what the first has rewritten."""
    existing = tx.loop(loop.id)
    if existing is not None:
        raise LoopExists(loop=loop.id, state=existing.state)
    for other in tx.loops(only_open=True):
        if Path(other.worktree).resolve() == Path(loop.worktree).resolve():
            raise LoopOpen(loop=other.id, state=other.state)


def check_id(loop_id: str) -> str:
    """Return an id that a person chose. Raises BadName, also where its jobs could be taken for another loop's."""
    topics.check_name(loop_id, "loop")
    if loop_jobs.is_ambiguous(loop_id):
        raise BadName(kind="loop", name=loop_id, rule="a name without -r1 or -w1: so the rounds' jobs are called")
    return loop_id


def _check_remote(mam: Mam, remote: str | None) -> None:
    """Now, and not when hours of work are to be pushed there. Raises Usage."""
    try:
        if remote is not None:
            git.ask(mam.layout.root, "ls-remote", "--", remote, f"{snapshot.PINS}/none")
    except GitFailed as error:
        what = f"--remote-review {remote} cannot be reached: {error.why}"
        raise Usage(what=what, hint="`git remote -v` in the main checkout lists what it knows") from error


def new_id() -> str:
    return f"loop-{secrets.token_hex(4)}"


def _check_words(wish: LoopRequest) -> None:
    if not wish.reviewers:
        raise Usage(what="a loop needs reviewers", hint="--reviewers A,B or --all-reviewers")
    if len(set(wish.reviewers)) != len(wish.reviewers):
        raise Usage(what="a reviewer is named twice", hint="name each once")
    if wish.creator in wish.reviewers:
        raise Usage(what=f"{wish.creator} cannot review its own work", hint="choose another reviewer")
    if not -1000 <= wish.priority <= 1000:
        raise Usage(what="--priority takes -1000 to 1000", hint="one step is worth ten minutes of waiting")
    if not 1 <= wish.rounds <= 50:
        raise Usage(what="--rounds takes 1 to 50", hint="--rounds 3")
    if wish.promote not in promote.MODES or wish.isolation not in ISOLATIONS:
        raise Usage(what="--promote or --review-isolation is not one of the choices", hint="`mam loop run --help`")


def check_worktree(mam: Mam, path: Path, *, review_only: bool) -> Path:
    """The top of the work tree at *path*, where it is one of this repository. Raises NotAWorktree."""
    hint = "`mam worktree list` shows what can be"
    if not path.is_dir():
        raise NotAWorktree(path=str(path), why="it is not a directory", hint=hint)
    if dotgit.is_bare_folder(path):
        raise NotAWorktree(path=str(path), why="it is a bare repository", hint=hint)
    top = dotgit.top_of(path)
    if top is None:
        raise NotAWorktree(path=str(path), why="it lies in no work tree", hint=hint)
    if dotgit.shared_dir(top) != dotgit.shared_dir(mam.layout.root):
        raise NotAWorktree(path=str(path), why=f"it belongs to another repository than {mam.layout.root}", hint=hint)
    if not review_only and top.resolve() == mam.layout.root.resolve():
        why = "it is the main checkout, which no writer changes"
        raise NotAWorktree(path=str(path), why=why, hint="`mam worktree prepare NAME`, or --review-only")
    return top.resolve()


def _check_promotable(wish: LoopRequest, tree: Path) -> None:
    if wish.promote == "branch" and dotgit.branch_of(tree) is None:
        what = f"--promote branch: {tree} is on no branch, its HEAD is detached at {dotgit.commit_of(tree)}"
        hint = f"`git -C {shlex.quote(str(tree))} switch BRANCH` first, or --promote none"
        raise Usage(what=what, hint=hint)


def _check_people(mam: Mam, view: View, wish: LoopRequest, tree: Path) -> None:
    for name in (*([wish.creator] if wish.creator else []), *wish.reviewers):
        session = need_session(view, name)
        if session.status not in LIVE:
            raise SessionNotRunning(session=name, status=session.status)
        if name == wish.creator and Path(session.cwd).resolve() != tree.resolve():
            why = f"its creator {name} works in {session.cwd}"
            raise NotAWorktree(path=str(tree), why=why, hint=_creator_there(mam, view, session, tree))


def _creator_there(mam: Mam, view: View, elsewhere: Session, tree: Path) -> str:
    """How a loop gets a creator that works where it is to work: its own place, who is there already, or a new one."""
    with contextlib.suppress(NotAWorktree):
        if check_worktree(mam, Path(elsewhere.cwd), review_only=False) == Path(elsewhere.cwd).resolve():
            return f"`mam loop run --worktree {elsewhere.cwd} …`"
    for session in view.sessions():
        if session.status in LIVE and "creator" in session.role.split(",") and Path(session.cwd).resolve() == tree:
            return f"`mam loop run --creator {session.name} …`: {session.name} works there"
    name = next((row.name for row in view.worktrees() if Path(row.path).resolve() == tree), None)
    place = f"--agent {elsewhere.agent} --worktree {name}" if name else f"NAME --agent {elsewhere.agent} --cwd {tree}"
    return f"`mam agent create {place}`, then --creator with that agent's name"


def _base(mam: Mam, tree: Path, base: str | None) -> str:
    """The commit that the work began at: as given, else where the branch left the main checkout's."""
    if base is not None:
        sha = git.resolve(tree, base)
        if sha is None:
            raise NoCommit(revision=base, folder=str(tree), hint="correct --base")
        return sha
    with mam.registry.view() as view:
        # The branch that the main checkout belongs on: it may have been switched to another one meanwhile.
        on, here = dotgit.branch_of(mam.layout.root), dotgit.commit_of(mam.layout.root)
        main = view.meta("main_branch") or on
    is_here = here is not None and on == main  # then git need not be asked whether there is such a branch
    known = main is not None and (is_here or git.branch_tip(mam.layout.root, main) is not None)
    other = f"refs/heads/{main}" if known else here or "HEAD"
    try:
        return git.ask(tree, "merge-base", other, "HEAD").split()[0]
    except (GitFailed, IndexError) as error:
        hint = "its history begins elsewhere, or is cut short (a shallow clone): give --base REV"
        raise NoCommit(revision=f"the merge base with {main}", folder=str(tree), hint=hint) from error
