"""The seat of a session: its files, its pane, its processes, and where its broker is."""

import json
import os
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mam.agents import catalog
from mam.agents.border import UNREADABLE, Adapter
from mam.agents.protocol import Launch, Permissions, Screen, Seat
from mam.broker import spool
from mam.broker.envelope import keys
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import fault_points, locks, process_identity
from mam.broker.host.process_identity import ProcessId
from mam.broker.host.progress import Progress
from mam.control_plane.config.layout import Layout
from mam.control_plane.config.settings import BINDING, absolute
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import LIVE, Session
from mam.control_plane.sessions import sessions_yaml
from mam.control_plane.sessions.lookup import need_session
from mam.wrappers.git import dotgit
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.protocol import Multiplexer, MuxGone, Pane, PaneSpec
from mam.wrappers.runner import launch_spec
from mam.wrappers.runner.launch_spec import BrokerRef, LaunchSpec


class OtherBinding(MamError):
    name: str
    asked: str
    session: str
    own: str

    code = "other_binding"
    exit_code = 2
    message = "{name} is {asked} here, but {session} was created with {own}"
    remedy_text = "unset {name}, or give --rebind to move {session} to the new one"


@contextmanager
def alone(mam: Mam, name: str) -> Generator[None]:
    """
    One verb at a time ends or begins a life of a session: two resumes would open two panes for one conversation.

    Raises Busy after 30 s.
    """
    mam.check_place()  # the processes that a copy's rows name belong to the original
    run_dir = mam.layout.run_dir(name)
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.hold(run_dir / "life.lock"):
        yield


def new_incarnation(after: str = "") -> str:
    """A name for one life of a session; it sorts behind *after*, the life before, whatever was done to the clock."""
    try:
        least = int(after.partition("-")[0], 16) + 1
    except ValueError:
        least = 0
    return f"{max(now_ms(), least):013x}-{secrets.token_hex(4)}"


def make_files(layout: Layout, name: str) -> None:
    run_dir = layout.run_dir(name)
    (run_dir / "outbox").mkdir(mode=0o700, parents=True, exist_ok=True)
    wake = run_dir / "wake"
    if not wake.exists():
        os.mkfifo(wake, 0o600)
    try:
        keys.create(layout.session_key(name))
    except FileExistsError:
        pass  # a session of that name was removed half-way: its key serves the new one as well


def remove_files(layout: Layout, name: str) -> None:
    layout.session_key(name).unlink(missing_ok=True)
    run_dir = layout.run_dir(name)
    for leftover in ("wake", "launch.json"):
        (run_dir / leftover).unlink(missing_ok=True)


def seat_of(mam: Mam, session: Session, cli: Adapter) -> Seat:
    """What an adapter needs to start a session's agent."""
    seat = place_of(mam, session)
    return seat._replace(args=[*cli.grants(grant_of(mam, session)), *seat.args])


def place_of(mam: Mam, session: Session) -> Seat:
    """What an adapter needs to look for what a session has kept: without the words that grant it something."""
    return Seat(
        name=session.name,
        cwd=Path(session.cwd),
        home=Path(mam.settings.environ.get("HOME") or "/"),
        program=session.program,
        args=json.loads(session.args),
        conversation=session.conversation,
        run_dir=mam.layout.run_dir(session.name),
        mam=mam.command,
    )


def grant_of(mam: Mam, session: Session) -> Permissions:
    """What a session's jobs need beyond its own directory: reports, verbs, commits there, and reviews."""
    layout = mam.layout
    write, look = [layout.run_dir(session.name), layout.jobs], []
    if "reviewer" in session.role.split(","):
        write.append(layout.reviews)
        look = [layout.reviews, layout.loops]
    top = dotgit.top_of(Path(session.cwd))
    write += dotgit.written_by_commits(top) if top is not None else []
    return Permissions(write=write, edit=[layout.jobs], look=look)


def tag(mam: Mam, session: str) -> str:
    """What the session's pane carries: unique among all control roots."""
    return f"{mam.fingerprint}/{session}"


def own_pane(mam: Mam, session: Session, panes: Sequence[Pane]) -> Pane | None:
    """The session's pane among those of its server. By its tag as well: a new server counts from %0."""
    own = tag(mam, session.name)
    return next((pane for pane in panes if pane.id == session.pane and pane.tag == own), None)


def multiplexer(mam: Mam, session: Session) -> Multiplexer:
    """The multiplexer that the row recorded, not the one that would be chosen today."""
    return mux_catalog.make(session.mux, session.mux_server, mam.settings.environ, mam.command)


def close_panes(mam: Mam, session: Session) -> None:
    """
    Close every pane of *session*: also one that a verb opened and died before any row could name it.

    Raises LookFailed.
    """
    mux, own = multiplexer(mam, session), tag(mam, session.name)
    try:
        for pane in mux.panes():
            if pane.tag == own:
                mux.close(pane.id, own)
    except MuxGone:
        pass  # all of them went with it


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


def open_pane(mam: Mam, session: Session, launch: Launch, say: Progress) -> Session:
    """
    Open the pane of a new life and note it in the row; when it raises, no pane is left.

    Raises LookFailed, OSError, and what Registry.transaction raises.
    """
    layout = mam.layout
    run_dir = layout.run_dir(session.name)
    pane_env = {
        **json.loads(session.binding),
        "MAM_SESSION": session.name,
        "MAM_SESSION_KEY_FILE": str(layout.session_key(session.name)),
        "MAM_SPOOL": str(run_dir / "outbox"),
    }
    if _writes_elsewhere(mam, session):
        pane_env["MAM_NO_SUBSCRIBER_DAEMON"] = "1"  # the control plane never runs from a writer's tree
    launch_spec.write(_spec(mam, session, launch), run_dir / "launch.json")
    argv = [mam.command, "runner", str(run_dir / "launch.json")]
    say(f"opening a pane in {session.mux}")
    mux = multiplexer(mam, session)
    fault_points.point("pane.open")
    pane = mux.open(PaneSpec(tag(mam, session.name), session.name, Path(session.cwd), pane_env, argv))
    fault_points.point("pane.opened")
    try:
        with mam.registry.transaction() as tx:
            current = need_session(tx, session.name)
            opened = replace(current, pane=pane.id, updated_at=now_ms())
            tx.put(opened)
        sessions_yaml.write(mam)
    except BaseException:
        mux.close(pane.id, tag(mam, session.name))  # a pane that no row names would be nobody's
        raise
    spool.wake(layout.monitor_wake)
    return opened


def _writes_elsewhere(mam: Mam, session: Session) -> bool:
    inside = Path(session.cwd).resolve().is_relative_to(mam.layout.root.resolve())
    return "creator" in session.role.split(",") and not inside


def _spec(mam: Mam, session: Session, launch: Launch) -> LaunchSpec:
    log = Path(json.loads(session.binding)["DELEGATE_JOB_LOGS_DIR"]) / f"runner-{session.name}.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return LaunchSpec(
        session=session.name,
        fingerprint=mam.fingerprint,
        incarnation=session.incarnation,
        agent=session.agent,
        argv=list(launch.argv),
        env=dict(launch.env),
        cwd=session.cwd,
        mux=session.mux,
        mux_server=session.mux_server,
        run_dir=str(mam.layout.run_dir(session.name)),
        session_key=str(mam.layout.session_key(session.name)),
        log=str(log),
        mam=mam.command,
        heartbeat_s=mam.settings.heartbeat_s,
        broker=broker_ref(mam),
        env_defaults=dict(launch.defaults),
        chaos=mam.settings.text("MAM_CHAOS"),
    )


def alive(session: Session) -> bool | None:
    """Whether the runner of *session* lives: proof by pid, start time and boot; None before it ever reported."""
    runner = runner_id(session)
    return None if runner is None else process_identity.alive(runner)


def runner_id(session: Session) -> ProcessId | None:
    if session.pid is None or session.pid_start is None or session.boot_id is None:
        return None
    return ProcessId(session.pid, session.pid_start, session.boot_id)


def agent_id(session: Session) -> ProcessId | None:
    if session.agent_pid is None or session.agent_start is None or session.boot_id is None:
        return None
    return ProcessId(session.agent_pid, session.agent_start, session.boot_id)


def look_now(mam: Mam, session: Session) -> tuple[Screen | None, str]:
    """
    The pane as it is at this moment and what its adapter reads there; UNREADABLE where the adapter fails.

    (None, "") where the pane could not be looked at.
    """
    if session.status not in LIVE or not session.pane:
        return None, ""
    try:
        screen = multiplexer(mam, session).screen(session.pane)
    except MamError:
        return None, ""
    try:
        return screen, catalog.find(session.agent).read(screen).value
    except MamError:
        return screen, UNREADABLE


def check_binding(mam: Mam, session: Session) -> None:
    """Raise OtherBinding where the caller's explicit variables differ from the row's."""
    own = json.loads(session.binding)
    for name in BINDING:
        asked = mam.settings.environ.get(name)
        if asked and os.path.realpath(absolute(asked, mam.settings.cwd)) != os.path.realpath(own.get(name, "")):
            raise OtherBinding(name=name, asked=asked, own=own.get(name), session=session.name)
