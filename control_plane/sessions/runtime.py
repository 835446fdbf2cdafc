"""What belongs to a running agent: its files, its pane, its processes, and its way to the broker."""

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
    """A variable of the caller names another place than the one that the agent was created with."""

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
    Be the only verb that begins or ends a life of the agent *name*. Two resumes would open two panes.

    Raises Busy after 30 s, and what Mam.check_place raises.
    """
    mam.check_place()  # the records of a copied control root name processes of the original
    run_dir = mam.layout.run_dir(name)
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.hold(run_dir / "life.lock"):
        yield


def new_incarnation(after: str = "") -> str:
    """Return a name for one life of an agent. It sorts behind *after*, the life before, even if the clock was set."""
    try:
        least = int(after.partition("-")[0], 16) + 1
    except ValueError:
        least = 0
    return f"{max(now_ms(), least):013x}-{secrets.token_hex(4)}"


def make_files(layout: Layout, name: str) -> None:
    """Make the folder, the pipe and the key of an agent where they are missing. Raises OSError."""
    run_dir = layout.run_dir(name)
    (run_dir / "outbox").mkdir(mode=0o700, parents=True, exist_ok=True)
    wake = run_dir / "wake"
    if not wake.exists():
        os.mkfifo(wake, 0o600)
    try:
        keys.create(layout.session_key(name))
    except FileExistsError:
        pass  # an agent of that name was removed half-way, and its key serves the new one as well


def remove_files(layout: Layout, name: str) -> None:
    """Remove the key, the pipe and the launch file of an agent. Its folder stays, since it may hold events."""
    layout.session_key(name).unlink(missing_ok=True)
    run_dir = layout.run_dir(name)
    for leftover in ("wake", "launch.json"):
        (run_dir / leftover).unlink(missing_ok=True)


def seat_of(mam: Mam, session: Session, cli: Adapter) -> Seat:
    """Return what an adapter needs to start this agent."""
    seat = place_of(mam, session)
    return seat._replace(args=[*cli.grants(grant_of(mam, session)), *seat.args])


def place_of(mam: Mam, session: Session) -> Seat:
    """Return what an adapter needs to find the conversation of this agent. It lacks the arguments that grant access."""
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
    """Return what the agent's jobs need beyond its own directory: reports, verbs, commits, and reviews."""
    layout = mam.layout
    write, look = [layout.run_dir(session.name), layout.jobs], []
    if "reviewer" in session.role.split(","):
        write.append(layout.reviews)
        look = [layout.reviews, layout.loops]
    top = dotgit.top_of(Path(session.cwd))
    write += dotgit.written_by_commits(top) if top is not None else []
    return Permissions(write=write, edit=[layout.jobs], look=look)


def tag(mam: Mam, session: str) -> str:
    """Return the tag of the agent's pane. It is unique among all control roots."""
    return f"{mam.fingerprint}/{session}"


def own_pane(mam: Mam, session: Session, panes: Sequence[Pane]) -> Pane | None:
    """Return the agent's pane among *panes*, or None. Id and tag must fit, since a new server counts from %0 again."""
    own = tag(mam, session.name)
    return next((pane for pane in panes if pane.id == session.pane and pane.tag == own), None)


def multiplexer(mam: Mam, session: Session) -> Multiplexer:
    """Return the multiplexer that the record names, and not the one that would be chosen today. Raises MuxMissing."""
    return mux_catalog.make(session.mux, session.mux_server, mam.settings.of_panes, mam.command)


def close_panes(mam: Mam, session: Session) -> None:
    """
    Close every pane of *session*, also one that no record names since its verb died after opening it.

    Raises LookFailed.
    """
    mux, own = multiplexer(mam, session), tag(mam, session.name)
    try:
        for pane in mux.panes():
            if pane.tag == own:
                mux.close(pane.id, own)
    except MuxGone:
        pass  # the panes have ended with their server


def broker_ref(mam: Mam) -> BrokerRef:
    """Return how a runner finds the broker."""
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
    Open the pane of a new life, and record it. When it raises, no pane is left.

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
    try:
        fault_points.point("pane.opened")
        with mam.registry.transaction() as tx:
            current = need_session(tx, session.name)
            opened = replace(current, pane=pane.id, updated_at=now_ms())
            tx.put(opened)
        sessions_yaml.write(mam)
    except BaseException:
        mux.close(pane.id, tag(mam, session.name))  # no record names this pane
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
    """Whether the runner of *session* lives, proven by pid, start time and boot; None before its first report."""
    runner = runner_id(session)
    return None if runner is None else process_identity.alive(runner)


def runner_id(session: Session) -> ProcessId | None:
    """Return the runner's process, or None before its first report."""
    if session.pid is None or session.pid_start is None or session.boot_id is None:
        return None
    return ProcessId(session.pid, session.pid_start, session.boot_id)


def agent_id(session: Session) -> ProcessId | None:
    """Return the agent's process, or None before its runner's first report."""
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
    """Raise OtherBinding where a variable of the caller differs from the agent's binding."""
    own = json.loads(session.binding)
    for name in BINDING:
        asked = mam.settings.environ.get(name)
        if asked and os.path.realpath(absolute(asked, mam.settings.cwd)) != os.path.realpath(own.get(name, "")):
            raise OtherBinding(name=name, asked=asked, own=own.get(name), session=session.name)
