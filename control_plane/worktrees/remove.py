"""
Worktrees removed: stop, check, record, remove. Nothing that exists only there is ever lost.

Refused on anything that no commit has; what git ignores and nobody can make
again moves to `.mam/lost-and-found`; the branch stays.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import fault_points
from mam.broker.host.progress import Progress, silent
from mam.broker.host.text import clean
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import jobs
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, Session, Worktree
from mam.control_plane.sessions import lifecycle, occupancy
from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees import provision
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, uncommitted
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.worktrees import WorktreeEntry

SHOWN = 20


class WorktreeDirty(MamError):
    """The worktree holds work that no commit has, so it was not removed."""

    path: str
    listed: str
    name: str
    count: int

    code = "worktree_dirty"
    message = "{path} holds what no commit has:\n{listed}"
    remedy_text = "commit it (`mam worktree commit {name} --message …`), or throw it away yourself; then again"


class WorktreeBusy(MamError):
    """An agent, a job or a loop uses the worktree, so it was not removed."""

    path: str
    why: str
    hint: str

    code = "worktree_busy"
    exit_code = 5
    message = "{path} is in use: {why}"
    remedy_text = "{hint}"


class Removed(NamedTuple):
    """What is left of a removed worktree: its branch at *head*, and files that were saved from it."""

    name: str
    branch: str
    head: str
    saved: Path | None
    stopped: list[str]


def remove(mam: Mam, name: str, *, stop: bool = False, purge: bool = False, say: Progress = silent) -> Removed:
    """
    Remove a worktree of ours; its branch and its sessions' rows stay. Interrupted, it is simply run again.

    With *stop* agents that live in it are stopped and their jobs cancelled; with *purge* their conversations and
    rows go as well. Refused, it is as ready as before.

    Raises UnknownWorktree, WorktreeBusy, WorktreeDirty, TreeLocked, GitFailed, Busy.
    """
    with worktrees.alone(mam, name):
        with mam.registry.view() as view:
            row = worktrees.need(view, name)
            _check_free(view, row, stop=stop or purge)
            residents = occupancy.residents(view, row.path)
            sessions = [session for session in view.sessions() if session.name in residents]
        check(mam, row)  # before anybody is stopped for nothing
        stopped = _stop(mam, [session for session in sessions if session.status in LIVE], say)
        row = _note(mam, row, sessions)
        try:
            saved = _take_away(mam, row, say)
        except (MamError, OSError):
            if dotgit.own_dir(Path(row.path)) is not None:
                with mam.registry.transaction() as tx:
                    tx.put(replace(row, state="ready", head_sha=None, detail=None, updated_at=now_ms()))
            raise
        _finish(mam, row, sessions, purge=purge)
        tip = git.branch_tip(mam.layout.root, row.branch)
        return Removed(name, row.branch, tip or row.head_sha or row.base_sha, saved, stopped)


def _check_free(view: View, row: Worktree, *, stop: bool) -> None:
    for loop in view.loops(only_open=True):
        if Path(loop.worktree).resolve() == Path(row.path).resolve():
            hint = f"`mam loop cancel {loop.id}` first"
            raise WorktreeBusy(path=row.path, why=f"the loop {loop.id} reviews it", hint=hint)
    if stop:
        return
    for name in occupancy.residents(view, row.path):
        session = view.session(name)
        job = view.open_job(name)
        if job is not None or (session is not None and session.status in LIVE):
            why = f"{name} works on {job.id}" if job else f"{name} lives there"
            raise WorktreeBusy(path=row.path, why=why, hint="give --stop to stop its agents and cancel their jobs")


def check(mam: Mam, row: Worktree) -> WorktreeEntry | None:
    """
    The entry of a worktree that can be removed: nothing is there that is nowhere else. None where git has none.

    Raises WorktreeDirty with the paths, TreeLocked, and WorktreeBusy where its directory is not its own.
    """
    path = Path(row.path)
    entry = git_worktrees.find(mam.layout.root, path)
    if entry is not None:
        git_worktrees.check_unlocked(entry)
        if not git_worktrees.half_made(entry) and git_worktrees.is_ours(mam.layout.root, entry):
            _check_clean(row)
            return entry
    begun = entry is not None and entry.locked == dotgit.BEGUN
    if path.is_dir() and any(path.iterdir()) and not begun:
        why, hint = "files are there that git knows no worktree for", f"move what is in {path} away"
        raise WorktreeBusy(path=row.path, why=why, hint=hint)
    return entry


def _check_clean(row: Worktree) -> None:
    path = Path(row.path)
    found = uncommitted.look(path, unpushed_submodules=True) + uncommitted.only_here(path)
    if found:
        lines = [f"  {clean(str(item))}" for item in found[:SHOWN]]
        lines += [f"  … and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise WorktreeDirty(path=row.path, name=row.name, listed="\n".join(lines), count=len(found))


def _stop(mam: Mam, sessions: list[Session], say: Progress) -> list[str]:
    for session in sessions:
        with mam.registry.view() as view:
            job = view.open_job(session.name)
        lifecycle.stop(mam, session.name, force=True, say=say)
        if job is not None:
            jobs.cancel(mam, job.id, "its worktree is removed")
    return [session.name for session in sessions]


def _note(mam: Mam, row: Worktree, sessions: list[Session]) -> Worktree:
    """Where everything was, before it is gone: the commit, and which conversations lived there."""
    path = Path(row.path)
    entry = git_worktrees.find(mam.layout.root, path)
    whole = entry is not None and not git_worktrees.half_made(entry)  # a killed git leaves entries without a HEAD
    head = git.resolve(path, "HEAD") if whole else None
    head = head or row.head_sha or git.branch_tip(mam.layout.root, row.branch) or row.base_sha
    lived = "; ".join(f"{session.name} {session.conversation or '(no conversation)'}" for session in sessions)
    noted = replace(row, state="removing", head_sha=head, detail=lived or row.detail, updated_at=now_ms())
    with mam.registry.transaction() as tx:
        _check_free(tx, row, stop=False)  # from here on no agent begins in it
        tx.put(noted)
    fault_points.point("worktree.removing")
    return noted


def _take_away(mam: Mam, row: Worktree, say: Progress) -> Path | None:
    """The tree itself, and its one entry; never a prune, which would take other trees along."""
    path, root = Path(row.path), mam.layout.root
    saved = None
    with worktrees.repository_lock(mam):
        entry = check(mam, row)  # once more: an agent may have written until it ended
        if entry is not None and not git_worktrees.half_made(entry):
            saved = save_ignored(mam, row, say)
            say(f"removing {path}")
        fault_points.point("worktree.remove")
        git_worktrees.discard(root, path)
        dotgit.unlock(root, f"refs/heads/{row.branch}")  # the branch stays, and no worktree has it now
    worktrees.drop_empty(mam)
    fault_points.point("worktree.removed")
    return saved


def save_ignored(mam: Mam, row: Worktree, say: Progress = silent) -> Path | None:
    """Move what git ignores, and no command can make again, out of a tree that is to be removed; where to, or None."""
    path = Path(row.path)
    precious = [name for name in uncommitted.ignored(path) if not provision.regenerable(name)]
    if not precious:
        return None
    target = mam.layout.mam / "lost-and-found" / f"worktree-{row.name}-{now_ms()}"
    say(f"ignored files go to {target}")
    for name in precious:
        (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(path / name, target / name)
        fault_points.point("worktree.saved")
    return target


def _finish(mam: Mam, row: Worktree, sessions: list[Session], *, purge: bool) -> None:
    with mam.registry.transaction() as tx:
        tx.put(replace(row, state="removed", updated_at=now_ms()))
        for session in sessions:
            current = tx.session(session.name)
            if current is not None:
                reason = f"its worktree {row.name} was removed at {(row.head_sha or '')[:12]}"
                status = "stopped" if current.status in LIVE else current.status
                tx.put(replace(current, status=status, ended_reason=reason, updated_at=now_ms()))
    if purge:
        for session in sessions:
            lifecycle.purge(mam, session.name)
