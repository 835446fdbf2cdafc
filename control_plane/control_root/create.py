"""`mam init`: make a control root, or tell an old one where it is now."""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from mam.broker.envelope import keys
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import FileRefused, Usage
from mam.broker.nats import process as server
from mam.control_plane.config import filesystems
from mam.control_plane.config.settings import Layout
from mam.control_plane.control_root import monitor_process as daemon
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import state as job_machine
from mam.control_plane.registry.records import LIVE, OPEN, Job, Loop, Worktree
from mam.control_plane.registry.transactions import Registry, Transaction
from mam.control_plane.sessions import runtime as seats
from mam.wrappers import process
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit as gitfiles
from mam.wrappers.git import hooks as guards
from mam.wrappers.git import worktrees
from mam.wrappers.git.command import GitFailed

EXCLUDED = (".mam/", ".mam.env")
PATH_BYTES = 460  # SQLite takes 512, the names of its own files included
LINKED = ".mam"  # to git a link is no directory


def fingerprint(root: Path, salt: str) -> str:
    """12 hex that name a control root on the bus; the salt keeps equal paths on different machines apart."""
    return hashlib.sha256(f"{root}\0{salt}".encode() if salt else str(root).encode()).hexdigest()[:12]


def make(layout: Layout, *, in_git: bool = True) -> bool:
    """
    Make the control root; True where it was made, False where it was there. Doing it twice repairs what is missing.

    Raises NoRepository, NetworkFileSystem, and FileRefused where `.mam` cannot be ours.
    """
    if in_git and gitfiles.own_dir(layout.root) is None:
        git.top(layout.root)  # the top of a repository, a bare one too, needs no question
    _own_folder(layout.mam)
    filesystems.check(layout.mam)
    for folder in (layout.jobs, layout.logs, layout.secrets, layout.run, layout.broker):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if in_git:
        git.exclude(layout.root, *excluded(layout))
    _shield(layout.mam)
    if not layout.monitor_wake.exists():
        os.mkfifo(layout.monitor_wake, 0o600)
    try:
        keys.create(layout.control_key)
    except FileExistsError:
        pass
    fresh = not layout.database.exists()
    if fresh and layout.audit.exists():
        hint = f"`mam registry rebuild` brings it back; move {layout.audit} away to begin anew"
        raise FileRefused(path=str(layout.mam), why="it lost its registry, but not its audit log", hint=hint)
    salt = secrets.token_hex(16)
    Registry(layout.database, layout.registry_lock, by="init").create(
        fingerprint=fingerprint(layout.root, salt),
        salt=salt,
        control_root=str(layout.root),
        slug=slug(layout.root),
        created_at=str(now_ms()),
    )
    return fresh


def excluded(layout: Layout) -> tuple[str, ...]:
    """The patterns that keep a control root out of its repository."""
    return (*EXCLUDED, LINKED) if layout.mam.is_symlink() else EXCLUDED


def slug(root: Path) -> str:
    """The directory's name as a multiplexer can carry it."""
    return re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")[:24] or "root"


def _own_folder(folder: Path) -> None:
    length = len(os.fsencode(folder))
    if length > PATH_BYTES:
        why = f"its path has {length} bytes, and SQLite opens nothing deeper than {PATH_BYTES}"
        raise FileRefused(path=str(folder), why=why, hint="choose a directory with a shorter path")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.stat().st_uid
    except FileExistsError as error:
        raise FileRefused(path=str(folder), why="it is no directory", hint="move it away") from error
    except OSError as error:
        raise FileRefused(path=str(folder), why=error.strerror, hint="make the directory writable") from error
    if owner != os.geteuid():
        raise FileRefused(path=str(folder), why=f"it belongs to user {owner}", hint="run mam as that user")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileRefused(path=str(folder), why="it is read-only", hint=f"chmod u+rwx {folder}")
    folder.chmod(0o700)


def _shield(folder: Path) -> None:
    """A stub repository inside `.mam`: git leaves it alone then, even in `clean -fdx` and `stash --all`."""
    stub = folder / ".git"
    for name in ("objects", "refs"):
        (stub / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    head = stub / "HEAD"
    if not head.exists():
        head.write_text("ref: refs/heads/none\n", "ascii")


def moved(mam: Mam) -> None:
    """The directory was moved: keep everything, topics included; only the paths change."""
    old, new = mam.meta("control_root"), str(mam.layout.root)
    if old == new:
        return
    if (Path(old) / ".mam" / "registry.db").exists():
        raise Usage(what=f"{old} still is a control root", hint="if this is a copy of it, use `mam init --copied`")
    daemon.end(mam.layout, made_at=old)
    server.stop(mam.layout.broker)  # its store was opened under the old path
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
            with contextlib.suppress(GitFailed):  # it is no worktree any more: `worktree list` shows that
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
        for left in (seats.runner_id(session), seats.agent_id(session)):
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
    # First what was the original's, last the word that this is no copy any more: a crash in between is tried again.
    shutil.rmtree(mam.layout.broker, ignore_errors=True)
    for password in mam.layout.secrets.glob("broker-*.password"):
        password.unlink()
    mam.layout.control_key.unlink(missing_ok=True)
    mam.layout.monitor_state.unlink(missing_ok=True)
    with mam.registry.transaction() as tx:
        tx.set_meta("control_root", str(mam.layout.root))
        tx.set_meta("salt", salt)
        tx.set_meta("fingerprint", fingerprint(mam.layout.root, salt))
        for order in tx.orders():
            tx.drop(order)
        for session in tx.sessions():
            tx.drop(session)
            mam.layout.session_key(session.name).unlink(missing_ok=True)
        _close_jobs(tx)
        for tree in tx.rows(Worktree):
            tx.drop(tree)  # they are linked to the original
        for loop in tx.loops(only_open=True):
            tx.put(replace(loop, outcome="cancelled", detail="this control root is a copy", ended_at=now_ms()))
    if gitfiles.own_dir(mam.layout.root) is not None:
        worktrees.forget_foreign(mam.layout.root)
    make(mam.layout, in_git=False)


def _check_copy(mam: Mam) -> None:
    if mam.meta("control_root") != str(mam.layout.root):
        return
    with mam.registry.view() as view:
        live = [session.name for session in view.sessions() if session.status in LIVE and seats.alive(session)]
    if live or daemon.look(mam.layout) is not None:
        what = f"{mam.layout.root} is no copy: {', '.join(live) or 'its monitor'} was started here and runs"
        raise Usage(what=what, hint="run it in the copy; to begin anew here, stop the agents and `mam down` first")


def _close_jobs(tx: Transaction) -> None:
    for job in tx.jobs(states=OPEN):
        attempt = tx.attempt(job.id, job.attempt)
        if attempt is not None:
            ended, last = job_machine.cancel(job, attempt, "this control root is a copy", now=now_ms())
            tx.put(ended)
            tx.put(last)


def guard(mam: Mam) -> str:
    """Install the hooks that keep commits off the main checkout's branch, which is returned. Raises NotGuardable."""
    installed = guards.install(mam.layout.root)
    with mam.registry.transaction() as tx:
        tx.set_meta("main_branch", installed.branch)
    return installed.branch


def unguard(mam: Mam) -> str:
    """Undo `guard`; an empty text."""
    guards.uninstall(mam.layout.root)
    return ""
