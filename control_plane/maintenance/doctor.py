"""`mam doctor`: broken, not yet, fine; each finding with its remedy. It looks; only `repair` changes anything."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from mam.agents import catalog
from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.protocol import Bus, Message
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import atomic_files, fault_points, locks, process_identity
from mam.broker.host.waiting import wait_until
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import create, installation, monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import first_steps
from mam.control_plane.registry.records import LIVE
from mam.control_plane.sessions import runtime
from mam.wrappers.git import command as git
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux import tmux
from mam.wrappers.mux.protocol import LookFailed

DiagnosisState = Literal["fine", "not yet", "broken"]
WAL_BUG_FIXED = (3, 51, 3)
ROUND_TRIP_S = 3.0
KEPT_S = 1.0


class Diagnosis(NamedTuple):
    """One thing that was looked at. *repair* does what *remedy* says, where that is safe."""

    what: str
    state: DiagnosisState
    detail: str
    remedy: str = ""
    repair: Callable[[], None] | None = None


def examine(mam: Mam) -> list[Diagnosis]:
    """Look at everything, in the order in which one thing needs the other. Never raises for what it finds."""
    findings: list[Diagnosis] = []
    for look in (
        _files,
        _registry,
        _shield,
        _private,
        _installation,
        _multiplexers,
        _agent_clis,
        _monitor,
        _broker,
        _sessions,
        _leftovers,
    ):
        try:
            findings += look(mam)
        except (MamError, OSError, sqlite3.Error) as error:
            findings.append(Diagnosis(look.__name__.strip("_"), "broken", str(error), getattr(error, "remedy", "")))
            if look is _registry:
                break  # nothing after it can be looked at
    return findings


def _files(mam: Mam) -> Iterator[Diagnosis]:
    folder = mam.layout.mam
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Diagnosis("control root", "broken", f"{folder} is read-only", f"chmod u+rwx {folder}")
        return
    yield Diagnosis("control root", "fine", str(mam.layout.root))
    free_mb = shutil.disk_usage(folder).free // 2**20
    if free_mb < 200:
        yield Diagnosis("disk", "broken", f"{free_mb} MB free", "make room: events and reports cannot be kept")


def _registry(mam: Mam) -> Iterator[Diagnosis]:
    mam.check_place()
    with mam.registry.view() as view:
        answer = view.connection.execute("PRAGMA quick_check").fetchone()[0]
    if answer != "ok":
        yield Diagnosis("registry", "broken", answer, "mam down, then mam registry rebuild")
        return
    kept = _kept(mam.layout.registry_lock)
    if kept:
        yield Diagnosis(
            "registry", "broken", f"its lock is kept by {kept}", "wait for it, or `kill -CONT` a stopped one"
        )
        return
    version = tuple(int(part) for part in sqlite3.sqlite_version.split("."))
    note = "" if version >= WAL_BUG_FIXED else ", its WAL defect is held off by our lock"
    yield Diagnosis("registry", "fine", f"SQLite {sqlite3.sqlite_version}{note}")


def _kept(lock: Path) -> str:
    """Who keeps a lock that is held for moments only; empty where it is free, or its holders change."""
    first = locks.holder(lock)
    changed = wait_until(lambda: not locks.is_held(lock) or locks.holder(lock) != first, KEPT_S, every_s=0.05)
    return "" if changed else first


def _shield(mam: Mam) -> Iterator[Diagnosis]:
    try:
        git.top(mam.layout.root)
    except MamError:
        yield Diagnosis(
            "git", "not yet", "the control root is in no git repository", "git init, for worktrees and reviews"
        )
        return
    stub, excluded = mam.layout.mam / ".git" / "HEAD", git.common_dir(mam.layout.root) / "info" / "exclude"
    lines = excluded.read_text("utf-8", "replace").splitlines() if excluded.exists() else []
    if stub.exists() and all(pattern in lines for pattern in create.excluded(mam.layout)):
        yield Diagnosis("git", "fine", ".mam is excluded and shielded from `git clean`")
    else:

        def remake() -> None:
            create.make(mam.layout, mam.settings.environ)

        yield Diagnosis("git", "broken", ".mam is not excluded or not shielded from `git clean`", "mam init", remake)


def _private(mam: Mam) -> Iterator[Diagnosis]:
    """Secrets that others may read."""
    loose = [path for path in mam.layout.secrets.glob("*") if path.is_file() and path.stat().st_mode & 0o077]

    def repair() -> None:
        for path in loose:
            path.chmod(0o600)

    if loose:
        names = ", ".join(path.name for path in loose[:3])
        yield Diagnosis("secrets", "broken", f"others may read {names}", "chmod 600 them (--fix)", repair)
    else:
        yield Diagnosis("secrets", "fine", "all private")


def _installation(mam: Mam) -> Iterator[Diagnosis]:
    if mam.runtime is None:
        yield Diagnosis("runtime", "not yet", "no mam is recorded that serves this control root", "mam up")
        return
    other = "" if installation.is_running(mam.command) else f"; you run {installation.mam_command()}"
    yield Diagnosis("runtime", "fine", f"served by {mam.command}{other}")


def _multiplexers(mam: Mam) -> Iterator[Diagnosis]:
    if tmux.available(mam.settings.environ.get("PATH", "")):
        yield Diagnosis("tmux", "fine", "installed")
    else:
        yield Diagnosis("tmux", "not yet", "not installed: agents run headless", "install tmux to look at the panes")


def _agent_clis(mam: Mam) -> Iterator[Diagnosis]:
    found, start = first_steps.agent_clis(mam)
    if found:
        yield Diagnosis("agent CLIs", "fine", f"{', '.join(found)} (start one: {start})")
    else:
        none = f"none of {', '.join(catalog.OWN_PROGRAM)} is on PATH"
        yield Diagnosis("agent CLIs", "not yet", none, "install one, or start a program of yours: docs/adapters.md")


def _monitor(mam: Mam) -> Iterator[Diagnosis]:
    known = monitor_process.look(mam.layout)

    def start() -> None:
        monitor_process.ensure(mam)

    if known is None:
        yield Diagnosis("monitor", "not yet", "does not run", "mam up", start)
    else:
        state: DiagnosisState = "broken" if known.problem else "fine"
        remedy = f"kill -CONT {known.process.pid}" if known.stopped else ""
        yield Diagnosis("monitor", state, known.problem or f"pid {known.process.pid}, version {known.version}", remedy)


def _broker(mam: Mam) -> Iterator[Diagnosis]:
    """A round trip as each user: a broker acknowledges what its rules deny, so only an arrival counts."""
    ref = runtime.broker_ref(mam)
    running = None if ref.url else nats_server.running(mam.layout.broker)
    if not ref.url and running is None:
        yield Diagnosis("broker", "not yet", "the embedded broker does not run", "mam up")
        return
    if running is not None and process_identity.is_stopped(running.pid):
        wake = f"kill -CONT {running.pid}"
        yield Diagnosis("broker", "broken", f"its process {running.pid} was stopped, and answers no client", wake)
        return
    prefix = topics.root(mam.fingerprint)
    buses: dict[str, MqttBus] = {}
    try:
        for user in nats_config.USERS:
            endpoint = ref.endpoint(user)
            if endpoint is None:
                yield Diagnosis("broker", "not yet", "the embedded broker has just ended", "mam up")
                return
            buses[user] = MqttBus(endpoint, prefix)
        for user, bus in buses.items():
            bus.wait_ready(5)
            where = f"broker as {user}"
            sender = buses["control"] if user == "viewer" else bus
            if round_trip(sender, bus, topics.probe(user)):
                yield Diagnosis(where, "fine", "a message came back")
            else:
                yield Diagnosis(
                    where, "broken", f"no message came back within {ROUND_TRIP_S:g} s", "see the broker's log"
                )
    finally:
        for bus in buses.values():
            bus.close()


def round_trip(sender: Bus, receiver: Bus, topic: str) -> bool:
    """Whether what *sender* publishes on *topic* reaches *receiver*."""
    token = os.urandom(8).hex().encode()
    arrived = threading.Event()

    def seen(message: Message) -> None:
        if message.payload == token:
            arrived.set()

    receiver.subscribe(topic, seen)
    try:
        receiver.wait_ready(ROUND_TRIP_S)
    except MamError:
        return False
    sender.publish(topic, token)
    return arrived.wait(ROUND_TRIP_S)


def _sessions(mam: Mam) -> Iterator[Diagnosis]:
    with mam.registry.view() as view:
        rows = view.sessions()
    servers: dict[tuple[str, str], bool] = {}
    for session in rows:
        if session.status not in LIVE:
            continue
        place = (session.mux, session.mux_server)
        if place not in servers:
            servers[place] = _answers(mam, place)
            if not servers[place]:  # once, and not once a pane
                silent = f"{session.mux_server} does not answer: its panes cannot be looked at"
                yield Diagnosis(session.mux, "broken", silent, "see the multiplexer")
        name = f"agent {session.name}"
        if not Path(session.cwd).is_dir():
            yield Diagnosis(name, "broken", f"its directory {session.cwd} is gone", "make it again at the same path")
        elif runtime.alive(session) is False:
            yield Diagnosis(name, "broken", "its runner is gone", f"mam agent resume {session.name}")
        elif not servers[place]:
            yield Diagnosis(
                name, "not yet", f"{session.mux} does not answer; its runner lives", f"mam why {session.name}"
            )
        elif session.presence != "online":
            yield Diagnosis(name, "not yet", "its runner is not connected to the broker", f"mam why {session.name}")
        else:
            yield Diagnosis(name, "fine", f"screen {session.screen or 'not seen yet'}")


def _answers(mam: Mam, place: tuple[str, str]) -> bool:
    try:
        mux_catalog.make(*place, mam.settings.of_panes, mam.command).panes()
    except LookFailed:
        return False
    return True


def _leftovers(mam: Mam) -> Iterator[Diagnosis]:
    """What a crash in the middle of `delegate` leaves: a folder that no row names."""
    with mam.registry.view() as view:
        orphans = [
            folder
            for folder in mam.layout.jobs.glob("*")
            if (folder / "job.json").exists()
            and view.job(folder.name) is None
            and _is_ours(mam, folder)
            and _is_old(folder)
        ]
        bare = [job.id for job in view.open_jobs() if not Path(job.brief_path).exists()]
    if bare:
        yield Diagnosis("jobs", "broken", f"the files of {', '.join(bare[:3])} are gone", f"mam job cancel {bare[0]}")
    dead = list(mam.layout.run.glob("*/dead/*.event"))

    def repair() -> None:
        for folder in orphans:
            aside = mam.layout.mam / "lost-and-found"
            aside.mkdir(mode=0o700, exist_ok=True)
            fault_points.point("doctor.move")
            shutil.move(folder, aside / folder.name)

    if orphans:
        yield Diagnosis("jobs", "broken", f"{len(orphans)} job folders without a row", "set them aside (--fix)", repair)
    if dead:
        yield Diagnosis(
            "spools", "broken", f"{len(dead)} events that could not be authenticated", f"see {dead[0].parent}"
        )
    if not orphans and not dead:
        yield Diagnosis("leftovers", "fine", "none")


def _is_ours(mam: Mam, folder: Path) -> bool:
    """Several control roots may share one jobs folder: what another one made must stay."""
    if folder.is_relative_to(mam.layout.mam):
        return True
    return atomic_files.read(folder / "job.json").get("monitor_wake") == str(mam.layout.monitor_wake)


def _is_old(folder: Path) -> bool:
    """Not one that is being made just now."""
    return now_ms() - folder.stat().st_mtime * 1000 > 60_000


def repair(mam: Mam, findings: list[Diagnosis]) -> list[str]:
    """Do what can safely be done; returns what was repaired."""
    done = []
    for finding in findings:
        if finding.repair is not None:
            finding.repair()
            done.append(finding.what)
    return done
