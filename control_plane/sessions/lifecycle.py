"""The lives of an agent: it is resumed with its conversation, stopped, purged. Only one verb at a time does that."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

from mam.agents import catalog
from mam.broker import spool
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import ending, process_identity
from mam.broker.host.atomic_files import write_json
from mam.broker.host.progress import Progress, silent
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import LIVE, Session, Worktree
from mam.control_plane.sessions import occupancy, runtime, sessions_yaml
from mam.control_plane.sessions.lookup import SessionAlive, SessionHasJob, need_session
from mam.wrappers.mux.protocol import LookFailed

RUNNER_ENDS_S = 8.0  # it ends its agent first, which may take a while of its own


class StillBusy(SessionHasJob):
    """The agent cannot be stopped without --force, since it has an open job."""

    remedy_text = "wait with `mam job wait {job}`, cancel it, or give --force"


class PlaceGone(MamError):
    """The agent's directory does not exist, and a conversation belongs to its directory."""

    path: str
    session: str
    hint: str

    code = "place_gone"
    exit_code = 2
    message = "{path}, where {session} lives, is gone"
    remedy_text = "{hint}, then `mam agent resume {session}`"


class OtherPlace(MamError):
    """The caller has named another directory than the agent's own."""

    session: str
    own: str
    asked: str
    verb: str

    code = "other_place"
    exit_code = 2
    message = "{session} lives in {own}, not in {asked}"
    remedy_text = "conversations belong to their directory: `mam agent {verb} {session} --cwd {own}`"


def resume(mam: Mam, name: str, *, cwd: Path | None = None, rebind: bool = False, say: Progress = silent) -> Session:
    """
    Start an agent again with its conversation, in its own directory and with its own binding.

    An agent that is alive is left as it is. Only *rebind* gives it a new binding.

    Raises: UnknownSession, OtherPlace, OtherBinding, PlaceGone, TreeTaken, TreeUnready, LookFailed.
    """
    with mam.registry.view() as view:
        need_session(view, name)
    with runtime.alone(mam, name):
        return _resume(mam, name, cwd, rebind=rebind, say=say)


def _resume(mam: Mam, name: str, cwd: Path | None, *, rebind: bool, say: Progress) -> Session:
    with mam.registry.view() as view:
        session = need_session(view, name)
    _check_place(session, cwd, "resume")
    if rebind:
        session = _rebound(mam, name)
    else:
        runtime.check_binding(mam, session)
    if session.status in LIVE and runtime.alive(session) is not False and _pane_lives(mam, session):
        say(f"{name} is alive already")
        sessions_yaml.write(mam)
        return session
    if not Path(session.cwd).is_dir():
        raise PlaceGone(session=name, path=session.cwd, hint=_way_back(mam, session.cwd))
    cli = catalog.find(session.agent)
    seat = runtime.seat_of(mam, session, cli)
    continued = cli.resume(seat)
    if continued is None and session.conversation:
        # A conversation that was never written cannot be resumed, and some CLIs refuse its id for a new one.
        say("no conversation was kept: starting a fresh one")
        session = replace(session, conversation=cli.new_conversation())
        seat = seat._replace(conversation=session.conversation)
    _clear_old(mam, session)
    with mam.registry.transaction() as tx:
        occupancy.check_seat(tx, session)
        runtime.make_files(mam.layout, name)
        tx.put(_reborn(session))
    return runtime.open_pane(mam, _reborn_row(mam, name), continued or cli.launch(seat), say)


def _way_back(mam: Mam, cwd: str) -> str:
    """Return how a directory that is gone can be made again at the same path."""
    with mam.registry.view() as view:
        ours = next((tree for tree in view.rows(Worktree) if Path(cwd).is_relative_to(tree.path)), None)
    if ours is None:
        return f"make it again at the same path (git worktree add {shlex.quote(cwd)} …)"
    words = ["--branch", ours.branch, "--path", ours.path]
    return f"`mam worktree prepare {ours.name} {shlex.join(words)}` makes it again"


def _reborn(session: Session) -> Session:
    return replace(
        session,
        status="starting",
        generation=session.generation + 1,
        incarnation=runtime.new_incarnation(after=session.incarnation),
        pane="",
        updated_at=now_ms(),
        pid=None,
        pid_start=None,
        boot_id=None,
        agent_pid=None,
        agent_start=None,
        presence=None,
        screen=None,
        screen_text=None,
        screen_at=None,
        ended_reason=None,
        exit_code=None,
    )


def _reborn_row(mam: Mam, name: str) -> Session:
    with mam.registry.view() as view:
        return need_session(view, name)


def _rebound(mam: Mam, name: str) -> Session:
    with mam.registry.transaction() as tx:
        session = replace(need_session(tx, name), binding=json.dumps(mam.layout.binding()), updated_at=now_ms())
        tx.put(session)
    return session


def _pane_lives(mam: Mam, session: Session) -> bool:
    """Whether the pane exists and its program runs; True as well where its multiplexer did not answer."""
    try:
        panes = runtime.multiplexer(mam, session).panes()
    except LookFailed as error:
        return error.code != "mux_gone"
    pane = runtime.own_pane(mam, session, panes)
    return pane is not None and not pane.dead


def _clear_old(mam: Mam, session: Session) -> None:
    """
    End what is left of the agent's last life: its panes, and processes that are proven to be its own.

    Raises LookFailed: a pane that may still be there would be a second one.
    """
    for left in (runtime.runner_id(session), runtime.agent_id(session)):
        if left is not None and process_identity.alive(left):
            ending.end_group(left)
    runtime.close_panes(mam, session)


def _check_place(session: Session, cwd: Path | None, verb: str) -> None:
    """Raise OtherPlace where a caller names another directory than the agent's own."""
    if cwd is not None and cwd.resolve() != Path(session.cwd).resolve():
        own = shlex.quote(session.cwd)
        raise OtherPlace(session=session.name, own=own, asked=str(cwd), verb=verb)


def stop(mam: Mam, name: str, *, cwd: Path | None = None, force: bool = False, say: Progress = silent) -> Session:
    """
    End the agent and close its pane. Its record and its conversation stay. Stopping twice is harmless.

    Raises: UnknownSession, OtherPlace, OtherBinding; StillBusy where a job is open, unless *force*.
    """
    with mam.registry.view() as view:
        session = need_session(view, name)
    _check_place(session, cwd, "stop")
    runtime.check_binding(mam, session)
    with runtime.alone(mam, name):
        return _stop(mam, name, force=force, say=say)


def _stop(mam: Mam, name: str, *, force: bool, say: Progress) -> Session:
    # The record comes first, so that the monitor knows that the end of the processes was wanted.
    with mam.registry.transaction() as tx:
        current = need_session(tx, name)
        job = tx.open_job(name)
        if job is not None and not force:
            raise StillBusy(session=name, job=job.id)
        stopped = replace(current, status="stopped", ended_reason="stopped", presence=None, screen="gone")
        stopped = replace(stopped, updated_at=now_ms())
        tx.put(stopped)
    runner = runtime.runner_id(current)
    if runner is not None and process_identity.alive(runner):
        say(f"ending {name}")
        ending.end_process(runner, wait_s=RUNNER_ENDS_S)
    agent = runtime.agent_id(current)
    if agent is not None:
        ending.end_group(agent)
    try:
        runtime.close_panes(mam, current)
    except LookFailed as error:
        say(f"the pane could not be closed: {error}")
    sessions_yaml.write(mam)
    spool.wake(mam.layout.monitor_wake)
    return stopped


def purge(mam: Mam, name: str) -> list[Path]:
    """
    Remove an ended agent for good: its conversation, its key, its record. Its jobs and the audit stay.

    `.mam/run/NAME/purged.json` names what is removed, and is written first. An interrupted purge can be run again.
    Returns the removed files. Raises UnknownSession, and SessionAlive for one that was not stopped.
    """
    with runtime.alone(mam, name):
        with mam.registry.view() as view:
            session = need_session(view, name)
        if session.status in LIVE:
            raise SessionAlive(session=name, status=session.status)
        seat = runtime.seat_of(mam, session, cli := catalog.find(session.agent))
        kept = list(cli.conversation_files(seat))
        note = {"at": now_ms(), "conversation": session.conversation, "cwd": session.cwd}
        write_json(mam.layout.run_dir(name) / "purged.json", {**note, "files": [str(path) for path in kept]})
        for path in kept:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        runtime.remove_files(mam.layout, name)
        with mam.registry.transaction() as tx:
            tx.drop(session)  # last, since the purge can be run again while the record is there
        sessions_yaml.write(mam)
        return kept
