"""`mam init --moved` and `--copied`: an old control root is told where, and what, it is now."""

import contextlib
import json
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import Usage
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.create import fingerprint, make
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import state as job_state
from mam.control_plane.registry.records import LIVE, OPEN, Job, Loop, Worktree
from mam.control_plane.registry.transactions import Transaction
from mam.control_plane.sessions import runtime
from mam.wrappers import process
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
        for job in tx.rows(Job):
            if job.folder.startswith(f"{old}/"):
                here = replace(job, folder=_there(job.folder, old, new))
                tx.put(here)
                if job.archived_at is None:
                    delegation.write_record(mam.layout, here)
        for session in tx.sessions():
            binding = {name: _there(path, old, new) for name, path in json.loads(session.binding).items()}
            cwd, mux_server = _tree_path_there(session.cwd, old, new), _there(session.mux_server, old, new)
            tx.put(replace(session, binding=json.dumps(binding), cwd=cwd, mux_server=mux_server))
        trees = [_tree_there(tree, old, new) for tree in tx.worktrees()]
        for tree in trees:
            tx.put(tree)
        for loop in tx.rows(Loop):
            folder, place = _there(loop.folder, old, new), _tree_path_there(loop.worktree, old, new)
            tx.put(replace(loop, folder=folder, worktree=place))
    for tree in trees:
        if Path(tree.path, ".git").is_file():
            with contextlib.suppress(GitFailed):  # it is not a worktree any more: `worktree list` shows that
                git.act(mam.layout.root, "worktree", "repair", "--", tree.path)  # each side names the other's old path


def _tree_there(tree: Worktree, old: str, new: str) -> Worktree:
    return replace(tree, path=_tree_path_there(tree.path, old, new))


def _tree_path_there(path: str, old: str, new: str) -> str:
    """A worktree's path: one beside the control root may have been moved along with it, or have stayed."""
    inside = _there(path, old, new)
    if inside != path or Path(path).is_dir():
        return inside
    return _there(path, f"{old}.worktrees", f"{new}.worktrees")


def _end_agents(mam: Mam) -> None:
    """Runners of before write to paths that are gone: end them, so that `resume` starts them at the new place."""
    with mam.registry.view() as view:
        live = [session for session in view.sessions() if session.status in LIVE]
    for session in live:
        for left in (runtime.runner_id(session), runtime.agent_id(session)):
            if left is not None:
                process.end_group(left)
        with mam.registry.transaction() as tx:
            now = now_ms()
            ended = replace(session, status="ended", ended_reason="its control root was moved", updated_at=now)
            tx.put(replace(ended, presence=None, screen=None))


def _there(path: str, old: str, new: str) -> str:
    """*path* after its control root moved from *old* to *new*; paths outside of it stay."""
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


def copied(mam: Mam) -> None:
    """
    This is a copy: a fingerprint and keys of its own, no sessions, and no open jobs, which the original has.

    Raises Usage where processes that were started here say that it is the original.
    """
    _check_copy(mam)
    salt = secrets.token_hex(16)
    # First what was the original's, last the word that this is its own root now: a crash in between is tried again.
    shutil.rmtree(mam.layout.broker, ignore_errors=True)
    for password in mam.layout.secrets.glob("broker-*.password"):
        password.unlink()
    mam.layout.control_key.unlink(missing_ok=True)
    mam.layout.monitor_state.unlink(missing_ok=True)
    with mam.registry.transaction() as tx:
        tx.set_meta("control_root", str(mam.layout.root))
        tx.set_meta("salt", salt)
        tx.set_meta("fingerprint", fingerprint(mam.layout.root, salt))
        for order in tx.outbox():
            tx.drop(order)
        for session in tx.sessions():
            tx.drop(session)
            mam.layout.session_key(session.name).unlink(missing_ok=True)
        _close_jobs(tx)
        for tree in tx.rows(Worktree):
            tx.drop(tree)  # they are linked to the original
        for loop in tx.loops(only_open=True):
            tx.put(replace(loop, outcome="cancelled", detail="this control root is a copy", ended_at=now_ms()))
    if dotgit.own_dir(mam.layout.root) is not None:
        git_worktrees.forget_foreign(mam.layout.root)
    make(mam.layout, in_git=False)


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
