"""`mam init --moved` and `--copied`: an old control root is told where, and what, it is now."""

import contextlib
import json
import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import Usage
from mam.broker.host import ending
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.create import fingerprint, make
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import state as job_state
from mam.control_plane.registry.queries import R
from mam.control_plane.registry.records import LIVE, OPEN, RECORDS, Job, Row, Worktree
from mam.control_plane.registry.transactions import Transaction
from mam.control_plane.sessions import runtime
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.command import GitFailed


def moved(mam: Mam) -> None:
    """The directory was moved: keep everything, topics included; only the paths change."""
    old, new = mam.meta("control_root"), str(mam.layout.root)
    if old == new:
        return
    if (Path(old) / ".mam" / "registry.db").exists():
        raise Usage(what=f"{old} still is a control root", hint="if this is a copy of it, use `mam init --copied`")
    monitor_process.end(mam.layout, made_at=old)
    nats_server.stop(mam.layout.broker)  # its store was opened under the old path
    _end_agents(mam)
    with mam.registry.transaction() as tx:
        tx.set_meta("control_root", new)
        for record in RECORDS:
            if record.path_columns():
                _correct(mam, tx, record, old, new)
        trees = tx.worktrees()
    for tree in trees:
        if Path(tree.path, ".git").is_file():
            with contextlib.suppress(GitFailed):  # it is not a worktree any more: `worktree list` shows that
                git.act(mam.layout.root, "worktree", "repair", "--", tree.path)  # each side names the other's old path


def _correct(mam: Mam, tx: Transaction, record: type[Row], old: str, new: str) -> None:
    for row in tx.rows(record):
        here = _relocated(row, old, new)
        if here == row:
            continue
        tx.put(here)
        if isinstance(here, Job) and here.archived_at is None:
            delegation.write_record(mam.layout, here)


def _relocated(row: R, old: str, new: str) -> R:
    """*row* with each path that its record declares as it is now."""
    changed = {}
    for name, in_json in row.path_columns().items():
        if value := getattr(row, name):
            changed[name] = json.dumps(_each(json.loads(value), old, new)) if in_json else _there(value, old, new)
    return replace(row, **changed)


def _each(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return _there(value, old, new)
        case list():
            return [_each(one, old, new) for one in value]
        case dict():
            return {name: _each(one, old, new) for name, one in value.items()}
        case _:
            return value


def _end_agents(mam: Mam) -> None:
    """Runners of before write to paths that are gone: end them, so that `resume` starts them at the new place."""
    with mam.registry.view() as view:
        live = [session for session in view.sessions() if session.status in LIVE]
    for session in live:
        for left in (runtime.runner_id(session), runtime.agent_id(session)):
            if left is not None:
                ending.end_group(left)
        with mam.registry.transaction() as tx:
            now = now_ms()
            ended = replace(session, status="ended", ended_reason="its control root was moved", updated_at=now)
            tx.put(replace(ended, presence=None, screen=None))


def _there(path: str, old: str, new: str) -> str:
    """
    *path* after its control root moved from *old* to *new*; paths outside of it stay.

    The folder of worktrees beside the control root may have been moved along with it, or have stayed.
    """
    beside = f"{old}.worktrees"
    if path == old or path.startswith(f"{old}/"):
        return new + path[len(old) :]
    if (path == beside or path.startswith(f"{beside}/")) and not os.path.lexists(path):
        return f"{new}.worktrees{path[len(beside) :]}"
    return path


def copied(mam: Mam) -> None:
    """
    This is a copy: a fingerprint and keys of its own, no sessions, and no open jobs, which the original has.

    Raises Usage where processes that were started here say that it is the original.
    """
    _check_copy(mam)
    old, new = mam.meta("control_root"), str(mam.layout.root)
    salt = secrets.token_hex(16)
    # First what was the original's, last the word that this is its own root now: a crash in between is tried again.
    shutil.rmtree(mam.layout.broker, ignore_errors=True)
    for password in mam.layout.secrets.glob("broker-*.password"):
        password.unlink()
    mam.layout.control_key.unlink(missing_ok=True)
    mam.layout.monitor_state.unlink(missing_ok=True)
    with mam.registry.transaction() as tx:
        tx.set_meta("control_root", new)
        tx.set_meta("salt", salt)
        own = fingerprint(mam.layout.root, salt)
        tx.set_meta("fingerprint", own)
        for order in tx.outbox():
            tx.drop(order)
        for session in tx.sessions():
            tx.drop(session)
            mam.layout.session_key(session.name).unlink(missing_ok=True)
        for tree in tx.rows(Worktree):
            tx.drop(tree)  # they are linked to the original
        _close_jobs(tx)
        for record in RECORDS:
            if record.path_columns():  # what is still written for them is written here, and not into the original
                _correct(mam, tx, record, old, new)
        for job in tx.rows(Job):  # what is still said of them is said below this root
            tx.put(replace(job, topic_prefix=topics.job_prefix(own)))
        for loop in tx.loops(only_open=True):
            tx.put(replace(loop, outcome="cancelled", detail="this control root is a copy", ended_at=now_ms()))
    if dotgit.own_dir(mam.layout.root) is not None:
        git_worktrees.forget_foreign(mam.layout.root)
    make(mam.layout, mam.settings.environ, in_git=False)


def _check_copy(mam: Mam) -> None:
    if mam.meta("control_root") != str(mam.layout.root):
        return
    with mam.registry.view() as view:
        live = [session.name for session in view.sessions() if session.status in LIVE and runtime.alive(session)]
    if live or monitor_process.look(mam.layout) is not None:
        what = f"{mam.layout.root} is not a copy: {', '.join(live) or 'its monitor'} was started here and runs"
        raise Usage(what=what, hint="run it in the copy; to begin anew here, stop the agents and `mam down` first")


def _close_jobs(tx: Transaction) -> None:
    for job in tx.jobs(states=OPEN):
        attempt = tx.attempt(job.id, job.attempt)
        if attempt is not None:
            ended, last = job_state.cancel(job, attempt, "this control root is a copy", now=now_ms())
            tx.put(ended)
            tx.put(last)
