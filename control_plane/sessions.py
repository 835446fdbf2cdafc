"""Agent sessions: created, resumed, stopped. The row is made first, so nothing runs that the registry does not know."""

import json
import os
import secrets
import signal
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mam.agents import catalog
from mam.agents.base import AgentCli, Grant, Launch, Screen, Seat
from mam.broker import keys, proof, spool, topics
from mam.broker.bodies import now_ms
from mam.broker.errors import MamError, Usage
from mam.broker.proof import ProcessId
from mam.control_plane import locks, projection
from mam.control_plane.jobs import SessionBusy, SessionNotRunning, need_session
from mam.control_plane.rows import LIVE, Order, Session
from mam.control_plane.settings import BINDING, Layout, absolute
from mam.control_plane.wiring import Mam
from mam.wrappers import launch as launching
from mam.wrappers import muxes, process
from mam.wrappers.launch import BrokerRef, LaunchSpec
from mam.wrappers.mux import LookFailed, Multiplexer, PaneSpec

Say = Callable[[str], None]


SCREEN_STANDS_MS = 3000


class SessionExists(MamError):
    code = "session_exists"
    message = "there is an agent session {session} already ({status})"
    remedy_text = "`mam agent resume {session}` continues it; choose another name for a new one"


class NoDirectory(MamError):
    code = "no_directory"
    exit_code = 2
    message = "{path} is no directory"
    remedy_text = "create it first, or correct --cwd"


class StillBusy(SessionBusy):
    remedy_text = "wait with `mam job wait {job}`, cancel it, or give --force"


class PlaceGone(MamError):
    code = "place_gone"
    exit_code = 2
    message = "{path}, where {session} lives, is gone"
    remedy_text = "make it again at the same path (git worktree add {path} …), then `mam agent resume {session}`"


class OtherPlace(MamError):
    code = "other_place"
    exit_code = 2
    message = "{session} lives in {own}, not in {asked}"
    remedy_text = "conversations belong to their directory: `mam agent resume {session} --cwd {own}`"


class OtherBinding(MamError):
    code = "other_binding"
    exit_code = 2
    message = "{name} is {asked} here, but {session} was created with {own}"
    remedy_text = "unset {name}, or give --rebind to move {session} to the new one"


class ProgramNotFound(MamError):
    code = "agent_program_missing"
    message = "there is no program {program!r} to run the agent"
    remedy_text = "install it, or give the whole path of the program with --program"


class Wish(NamedTuple):
    """What `agent create` was asked for."""

    name: str
    agent: str
    role: str = "creator"
    cwd: Path | None = None
    mux: str = "auto"
    program: str = ""
    args: Sequence[str] = ()


def create(mam: Mam, wish: Wish, say: Say = lambda _: None) -> Session:
    """
    Make a session and open its pane; returns as soon as the pane is open (see `await_ready`).

    When it raises nothing is left: no row, no pane, no key.

    Raises: BadName, UnknownAgent, NoDirectory, SessionExists, MuxMissing,
        ProgramNotFound, LookFailed.
    """
    topics.check_name(wish.name)
    cli = catalog.find(wish.agent)
    roles = [topics.check_name(role.strip(), "role") for role in wish.role.split(",")]
    cwd = wish.cwd or mam.settings.cwd
    if not cwd.is_dir():
        raise NoDirectory(path=str(cwd))
    kind = muxes.choose(wish.mux, mam.settings.environ)
    now = now_ms()
    session = Session(
        name=wish.name,
        agent=wish.agent,
        role=",".join(roles),
        status="starting",
        generation=1,
        incarnation=new_incarnation(),
        mux=kind,
        mux_server=mam.mux_server(kind),
        pane="",
        cwd=str(cwd),
        program=wish.program,
        args=json.dumps(list(wish.args)),
        binding=json.dumps(mam.layout.binding()),
        conversation=cli.new_conversation(),
        created_at=now,
        updated_at=now,
    )
    _check_program(cli.launch(_seat(mam, session, cli)), session, mam.settings.environ)
    with _alone(mam, session.name):
        _enter(mam, session)
        try:
            return _open(mam, session, cli, cli.launch(_seat(mam, session, cli)), say)
        except BaseException:
            with mam.registry.transaction() as tx:
                tx.drop(session)
            _remove_files(mam.layout, session.name)
            raise


@contextmanager
def _alone(mam: Mam, name: str) -> Generator[None]:
    """
    One verb at a time ends or begins a life of a session: two resumes would open two panes for one conversation.

    Raises Busy after 30 s.
    """
    mam.check_place()  # the processes that a copy's rows name belong to the original
    run_dir = mam.layout.run_dir(name)
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.hold(run_dir / "life.lock"):
        yield


def new_incarnation() -> str:
    """A name for one life of a session; later ones sort later."""
    return f"{now_ms():013x}-{secrets.token_hex(4)}"


def _enter(mam: Mam, session: Session) -> None:
    try:
        with mam.registry.transaction() as tx:
            existing = tx.session(session.name)
            if existing is not None:
                raise SessionExists(session=session.name, status=existing.status)
            _make_files(mam.layout, session.name)
            tx.put(session)
    except sqlite3.IntegrityError as error:
        raise SessionExists(session=session.name, status="new") from error


def _make_files(layout: Layout, name: str) -> None:
    run_dir = layout.run_dir(name)
    (run_dir / "outbox").mkdir(mode=0o700, parents=True, exist_ok=True)
    wake = run_dir / "wake"
    if not wake.exists():
        os.mkfifo(wake, 0o600)
    try:
        keys.create(layout.session_key(name))
    except FileExistsError:
        pass  # a session of that name was removed half-way: its key serves the new one as well


def _remove_files(layout: Layout, name: str) -> None:
    layout.session_key(name).unlink(missing_ok=True)
    run_dir = layout.run_dir(name)
    for leftover in ("wake", "launch.json"):
        (run_dir / leftover).unlink(missing_ok=True)


def _seat(mam: Mam, session: Session, cli: AgentCli) -> Seat:
    grant = Grant(write=[mam.layout.run_dir(session.name), mam.layout.jobs], read=[mam.layout.secrets])
    args = [*cli.grants(grant), *json.loads(session.args)]
    return Seat(
        name=session.name,
        cwd=Path(session.cwd),
        home=Path(mam.settings.environ.get("HOME") or "/"),
        program=session.program,
        args=args,
        conversation=session.conversation,
        run_dir=mam.layout.run_dir(session.name),
        mam=mam.command,
    )


def _check_program(launch: Launch, session: Session, environ: Mapping[str, str]) -> None:
    program = launch.argv[0]
    if os.sep in program:
        candidates = [str(Path(session.cwd) / program)]
    else:
        candidates = [os.path.join(folder, program) for folder in environ.get("PATH", os.defpath).split(os.pathsep)]
    if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in candidates):
        raise ProgramNotFound(program=program)


def tag(mam: Mam, session: str) -> str:
    """What the session's pane carries: unique among all control roots."""
    return f"{mam.fingerprint}/{session}"


def multiplexer(mam: Mam, session: Session) -> Multiplexer:
    """The multiplexer that the row recorded, not the one that would be chosen today."""
    return muxes.make(session.mux, session.mux_server, mam.settings.environ, mam.command)


def broker_ref(mam: Mam) -> BrokerRef:
    settings, layout = mam.settings, mam.layout
    url = settings.text("MAM_BROKER_URL")
    if not url:
        return BrokerRef(folder=str(layout.broker), secrets=str(layout.secrets))
    password = settings.path("MAM_BROKER_PASSWORD_FILE")
    if password is None and settings.text("MAM_BROKER_PASSWORD"):
        password = layout.secrets / "broker-own.password"
    ca_file = settings.path("MAM_BROKER_CA_FILE")
    users_dir = settings.path("MAM_BROKER_USERS_DIR")
    return BrokerRef(
        url=url, password_file=str(password or ""), ca_file=str(ca_file or ""), users_dir=str(users_dir or "")
    )


def _open(mam: Mam, session: Session, cli: AgentCli, launch: Launch, say: Say) -> Session:
    layout = mam.layout
    run_dir = layout.run_dir(session.name)
    binding = json.loads(session.binding)
    pane_env = {
        **binding,
        "MAM_SESSION": session.name,
        "MAM_SESSION_KEY_FILE": str(layout.session_key(session.name)),
        "MAM_SPOOL": str(run_dir / "outbox"),
    }
    log = Path(binding["DELEGATE_JOB_LOGS_DIR"]) / f"runner-{session.name}.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    spec = LaunchSpec(
        session=session.name,
        fingerprint=mam.fingerprint,
        incarnation=session.incarnation,
        agent=session.agent,
        argv=list(launch.argv),
        env=dict(launch.env),
        cwd=session.cwd,
        mux=session.mux,
        mux_server=session.mux_server,
        run_dir=str(run_dir),
        session_key=pane_env["MAM_SESSION_KEY_FILE"],
        log=str(log),
        mam=mam.command,
        heartbeat_s=mam.settings.heartbeat_s,
        broker=broker_ref(mam),
    )
    launching.write(spec, run_dir / "launch.json")
    argv = [mam.command, "runner", str(run_dir / "launch.json")]
    say(f"opening a pane in {session.mux}")
    mux = multiplexer(mam, session)
    pane = mux.open(PaneSpec(tag(mam, session.name), session.name, Path(session.cwd), pane_env, argv))
    try:
        with mam.registry.transaction() as tx:
            current = need_session(tx, session.name)
            opened = replace(current, pane=pane.id, updated_at=now_ms())
            tx.put(opened)
        projection.write(mam)
    except BaseException:
        mux.close(pane.id, tag(mam, session.name))  # a pane that no row names would be nobody's
        raise
    spool.wake(layout.monitor_wake)
    return opened


def await_ready(mam: Mam, name: str, *, wait_s: float, say: Say = lambda _: None) -> Session:
    """
    Wait until the agent's screen takes a prompt, asks something, or the agent is gone; at most *wait_s*.

    The caller looks at ``status`` and ``screen`` of what comes back.
    """
    deadline = time.monotonic() + wait_s
    last = ""
    while True:
        with mam.registry.view() as view:
            session = need_session(view, name)
        seen = f"{session.status}, screen: {session.screen or 'not seen yet'}"
        if seen != last:
            say(f"{name} is {seen}")
            last = seen
        # A screen that asks something may be one that is just being drawn: it counts when it stands.
        stands = session.screen == "ready" or now_ms() - (session.screen_at or now_ms()) > SCREEN_STANDS_MS
        settled = session.screen not in (None, "starting", "working") and session.status == "running" and stands
        if settled or session.status not in LIVE or time.monotonic() > deadline:
            return session
        time.sleep(0.05)


def alive(session: Session) -> bool | None:
    """Whether the runner of *session* lives: proof by pid, start time and boot; None before it ever reported."""
    runner = runner_id(session)
    return None if runner is None else proof.alive(runner)


def runner_id(session: Session) -> ProcessId | None:
    if session.pid is None or session.pid_start is None or session.boot_id is None:
        return None
    return ProcessId(session.pid, session.pid_start, session.boot_id)


def agent_id(session: Session) -> ProcessId | None:
    if session.agent_pid is None or session.agent_start is None or session.boot_id is None:
        return None
    return ProcessId(session.agent_pid, session.agent_start, session.boot_id)


def look_now(mam: Mam, session: Session) -> tuple[Screen | None, str]:
    """The pane as it is at this moment and what its adapter reads there; (None, "") where nobody could look."""
    if session.status not in LIVE or not session.pane:
        return None, ""
    try:
        screen = multiplexer(mam, session).screen(session.pane)
        return screen, catalog.find(session.agent).read(screen).value
    except MamError:
        return None, ""


def check_binding(mam: Mam, session: Session) -> None:
    """Raise OtherBinding where the caller's explicit variables differ from the row's."""
    own = json.loads(session.binding)
    for name in BINDING:
        asked = mam.settings.environ.get(name)
        if asked and str(absolute(asked, mam.settings.cwd)) != own.get(name):
            raise OtherBinding(name=name, asked=asked, own=own.get(name), session=session.name)


def resume(mam: Mam, name: str, *, cwd: Path | None = None, rebind: bool = False, say: Say = lambda _: None) -> Session:
    """
    Bring a session back with its conversation, in its own directory and with its own binding.

    A session that is alive is left alone, but for a new binding with *rebind*.

    Raises: UnknownSession, OtherPlace, OtherBinding, NoDirectory, LookFailed.
    """
    with mam.registry.view() as view:
        need_session(view, name)
    with _alone(mam, name):
        return _resume(mam, name, cwd, rebind=rebind, say=say)


def _resume(mam: Mam, name: str, cwd: Path | None, *, rebind: bool, say: Say) -> Session:
    with mam.registry.view() as view:
        session = need_session(view, name)
    if cwd is not None and cwd.resolve() != Path(session.cwd).resolve():
        raise OtherPlace(session=name, own=session.cwd, asked=str(cwd))
    if rebind:
        session = _rebound(mam, name)
    else:
        check_binding(mam, session)
    if session.status in LIVE and alive(session) is not False and _pane_lives(mam, session):
        say(f"{name} is alive already")
        projection.write(mam)
        return session
    if not Path(session.cwd).is_dir():
        raise PlaceGone(session=name, path=session.cwd)
    cli = catalog.find(session.agent)
    seat = _seat(mam, session, cli)
    continued = cli.resume(seat)
    if continued is None and session.conversation:
        # An id that was never flushed cannot be resumed, and some CLIs refuse it for a new conversation.
        say("no conversation was kept: starting a fresh one")
        session = replace(session, conversation=cli.new_conversation())
        seat = seat._replace(conversation=session.conversation)
    _clear_old(mam, session)
    with mam.registry.transaction() as tx:
        _make_files(mam.layout, name)
        tx.put(_reborn(session))
    return _open(mam, _reborn_row(mam, name), cli, continued or cli.launch(seat), say)


def _reborn(session: Session) -> Session:
    return replace(
        session,
        status="starting",
        generation=session.generation + 1,
        incarnation=new_incarnation(),
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
    """Whether the pane is there and not dead; True as well where nobody could look."""
    try:
        panes = multiplexer(mam, session).panes()
    except LookFailed as error:
        return error.code != "mux_gone"
    return any(pane.id == session.pane and not pane.dead for pane in panes)


def _clear_old(mam: Mam, session: Session) -> None:
    """End what is left of the session's last life: processes proven to be its own, its dead pane."""
    for left in (runner_id(session), agent_id(session)):
        if left is not None and proof.alive(left):
            process.end_group(left)
    try:
        if session.pane:
            multiplexer(mam, session).close(session.pane, tag(mam, session.name))
    except LookFailed:
        pass


def stop(mam: Mam, name: str, *, force: bool = False, say: Say = lambda _: None) -> Session:
    """
    End the agent and close its pane; the row and the conversation stay. Stopping twice is harmless.

    Raises: UnknownSession, OtherBinding; SessionBusy where a job is open, unless *force*.
    """
    with mam.registry.view() as view:
        check_binding(mam, need_session(view, name))
    with _alone(mam, name):
        return _stop(mam, name, force=force, say=say)


def _stop(mam: Mam, name: str, *, force: bool, say: Say) -> Session:
    # First the word, then the deed: whoever sees the processes end must know that it was wanted.
    with mam.registry.transaction() as tx:
        current = need_session(tx, name)
        job = tx.open_job(name)
        if job is not None and not force:
            raise StillBusy(session=name, job=job.id)
        stopped = replace(current, status="stopped", ended_reason="stopped", presence=None, updated_at=now_ms())
        tx.put(stopped)
    runner = runner_id(current)
    if runner is not None and proof.alive(runner):
        say(f"ending {name}")
        _terminate(runner)
    agent = agent_id(current)
    if agent is not None:
        process.end_group(agent)
    try:
        if current.pane:
            multiplexer(mam, current).close(current.pane, tag(mam, name))
    except LookFailed as error:
        say(f"the pane could not be closed: {error}")
    projection.write(mam)
    spool.wake(mam.layout.monitor_wake)
    return stopped


def _terminate(runner: ProcessId, wait_s: float = 8.0) -> None:
    """Ask the runner to end its agent and itself; KILL after *wait_s*."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(runner.pid, sign)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if not proof.alive(runner):
                return
            time.sleep(0.01)


def send(mam: Mam, name: str, text: str) -> str:
    """Queue free text for an agent's composer; returns the id under which its delivery will be reported."""
    if not text.strip():
        raise Usage(what="there is nothing to send", hint="give some text, or - to read it from standard input")
    if len(text) > 60_000:
        raise Usage(what=f"{len(text)} characters are too many", hint="write a file and send its path")
    mam.check_place()
    send_id = f"send-{secrets.token_hex(6)}"
    with mam.registry.transaction() as tx:
        session = need_session(tx, name)
        if session.status not in LIVE:
            raise SessionNotRunning(session=name, status=session.status)
        data = json.dumps({"prompt": text, "deliver_within_s": max(1, round(mam.settings.deliver_within_s))})
        tx.put(Order(send_id, name, "say", send_id, 1, session.incarnation, data, now_ms()))
    spool.wake(mam.layout.monitor_wake)
    return send_id
