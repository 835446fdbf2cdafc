"""
The monitor: exactly one a control root. Turns bus messages into state, sends what is to be sent, looks for trouble.

One thread decides. The bus thread only enqueues. Whatever the monitor holds in
memory can be lost at any moment: rows, spools and processes are looked at anew
at every start.
"""

import logging
import os
import select
import signal
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from filelock import FileLock, Timeout

from mam.broker.bus.protocol import Message
from mam.broker.envelope.payloads import now_ms
from mam.broker.envelope.signing import claimed
from mam.broker.errors import MamError
from mam.broker.host import process_identity, rotated_log
from mam.broker.host.atomic_files import write_json
from mam.broker.version import VERSION
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.messaging.inbox import Inbox, Settling
from mam.control_plane.messaging.outbox import Outbox
from mam.control_plane.messaging.published_state import PublishedState
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import repository_checks
from mam.control_plane.monitor.broker_supervisor import BrokerSupervisor
from mam.control_plane.monitor.checks import MonitorChecks
from mam.control_plane.registry import database
from mam.control_plane.registry.audit import AuditLog
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.transactions import Registry
from mam.control_plane.sessions import sessions_yaml
from mam.wrappers.runner.bus_session import Connect, connect_mqtt, connector

_log = logging.getLogger("mam.monitor")

BATCH = 512
GATHER_S = 0.004  # under load: a commit costs the same for one event as for many
LOADED = 8
QUEUE = 20_000
BEATS_UNTIL = QUEUE * 8 // 10
TICK_S = 1.0
CARDS_AT_MOST = 50_000  # on a broker that is not ours anybody may leave some
EXPORT_S = 10.0  # how long a flood may hold back the audit's copy in audit.jsonl
CHANGES_S = 0.05  # how long a flood of events may hold back orders and cards
SWEEP_S = 2.0
BROKER_S = 1.0
SLOW_S = 30.0


class MonitorRuns(MamError):
    """Another monitor holds the lock of this control root."""

    root: str

    code = "monitor_runs"
    message = "a monitor of {root} runs already"
    remedy_text = "`mam status` shows it"


class Monitor:
    """
    The one process that records, sends and watches for a control root.

    It works on while the broker, the disk or a multiplexer fails, and tells that as a problem. It may be killed at any
    moment: the next one goes on from the registry. One thread does everything; the bus and signals only wake it.
    """

    def __init__(self, mam: Mam, *, connect: Connect = connect_mqtt, clock: Callable[[], int] = now_ms) -> None:
        self._mam = mam
        self._layout = mam.layout
        self._clock = clock
        self._keyring = Keyring(mam.layout)
        self._registry = Registry(mam.layout.database, mam.layout.registry_lock, by="monitor", keep_open=True)
        self._inbox = Inbox(self._registry, self._keyring, clock=clock)
        self._sweep = SpoolSweep(mam.layout.run, self._inbox)
        self._audit = AuditLog(mam.layout.audit)
        self._looking = MonitorChecks(mam, self._registry, self._sweep, self._inbox, clock)
        self._outbox = Outbox(self._keyring, self._looking.deliverable_ms)
        self._cards = PublishedState(self._keyring.control(), self._keyring, mam.fingerprint)
        self._keeper = BrokerSupervisor(mam, connect, self._cards.will(), self._enqueue, self._tend_soon)
        self._queue: deque[Message] = deque()
        self._dropped = 0
        self._cards_kept: set[str] = set()  # topics; written on the bus's thread
        self._stopping = self._announced = False
        self._due = {"tick": 0.0, "sweep": 0.0, "broker": 0.0, "slow": 0.0}
        self._seen_version = -1
        self._inode = 0
        self._changes_seen = self._exported = 0.0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fifo = os.open(mam.layout.monitor_wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """
        Serve until asked to end (TERM). Raises MonitorRuns where another one holds the lock.

        Order at the start: look at everything once, then listen, then look
        again: what changed in between is in one of the two looks.
        """
        lock = FileLock(self._layout.monitor_lock, timeout=0, mode=0o600, fallback_to_soft=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise MonitorRuns(root=str(self._layout.root)) from error
        try:
            self._hold_signals()
            view = self._registry.watch()
            self._pass(view)
            self._tend_broker(view)
            self._pass(view)
            self._announce(ready=True)
            while not self._stopping:
                self._sleep()
                self._once(view)
            self._leave(view)
        finally:
            lock.release()
        return 0

    def _hold_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _sleep(self) -> None:
        wait_s = 0.0 if self._queue else max(0.0, min(self._due.values()) - time.monotonic())
        ready, _, _ = select.select([self._wake_read, self._fifo], [], [], wait_s)
        for descriptor in ready:
            try:
                os.read(descriptor, 65536)
            except BlockingIOError:
                pass

    def _once(self, view: View) -> None:
        self._guarded(self._take_batch)
        if not self._queue or time.monotonic() - self._changes_seen > CHANGES_S:
            self._changes_seen = time.monotonic()
            self._guarded(self._look_for_changes, view)
        for name, every_s, work in (
            ("broker", BROKER_S, self._tend_broker),
            ("sweep", SWEEP_S, self._sweep_spools),
            ("tick", TICK_S, self._tick),
            ("slow", SLOW_S, self._slow),
        ):
            if time.monotonic() >= self._due[name]:
                self._due[name] = time.monotonic() + every_s
                self._guarded(work, view)

    def _guarded(self, step: Callable[..., None], *args: Any) -> None:
        """A full disk or a broker that is away must not end the monitor; a control root that is gone must."""
        try:
            step(*args)
        except database.NoRegistry:
            _log.error("the registry is gone: ending")
            self._stopping = True
        except (MamError, OSError, ValueError, sqlite3.Error) as error:
            _log.warning("%s: %s", step.__name__, error)

    def _pass(self, view: View) -> None:
        """One full look, as at every start."""
        self._guarded(self._sweep_spools, view)
        self._guarded(self._tick, view)
        self._guarded(self._look_for_changes, view)

    # -- in ---------------------------------------------------------------------------

    def _enqueue(self, message: Message) -> None:
        """On the bus's thread. What is dropped here is still in a spool; a heartbeat is not, and goes first."""
        if message.topic.endswith("/state"):  # a card of ours, as the broker keeps it
            if not message.payload:
                self._cards_kept.discard(message.topic)
            elif len(self._cards_kept) < CARDS_AT_MOST:
                self._cards_kept.add(message.topic)
            return
        waiting = len(self._queue)
        if waiting >= QUEUE or (waiting >= BEATS_UNTIL and claimed(message.payload)[0] == "heartbeat"):
            self._dropped += 1
            return
        self._queue.append(message)
        if waiting == 0:
            self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            pass

    def _take_batch(self) -> None:
        batch: list[tuple[str, bytes]] = []
        if len(self._queue) >= LOADED and len(self._queue) < BATCH:
            time.sleep(GATHER_S)
        while self._queue and len(batch) < BATCH:
            message = self._queue.popleft()
            if message.payload:  # an empty one clears a retained card
                batch.append((message.topic, message.payload))
        if batch:
            self._settle(self._inbox.take(batch))

    def _settle(self, settlings: list[Settling]) -> None:
        self._outbox.settle(self._keeper.bus, settlings)

    def _sweep_spools(self, view: View) -> None:
        connected = self._keeper.bus is not None
        live = view.online() if connected else set()
        for path in self._sweep.once(live=live).buried:
            _log.error("%s could not be authenticated: set aside", path)

    # -- out --------------------------------------------------------------------------

    def _look_for_changes(self, view: View) -> None:
        if self._inbox.arrived:
            self._inbox.arrived.clear()
            self._outbox.hurry()
        version = view.data_version()
        if version != self._seen_version:
            self._seen_version = version
            if self._inbox.changed_sessions:
                _log.info("agents changed: %s", ", ".join(sorted(self._inbox.changed_sessions)))
                self._inbox.changed_sessions.clear()
                sessions_yaml.write(self._mam)
            if self._keeper.bus is not None:
                self._cards.refresh(self._keeper.bus, view)
        self._relay(view)

    def _relay(self, view: View) -> None:
        pointless = self._outbox.relay(self._keeper.bus, view, time.monotonic())
        if pointless:
            with self._registry.transaction() as tx:
                for order in pointless:
                    tx.drop(order)
                    self._outbox.forget(order)

    # -- looking ----------------------------------------------------------------------

    def _tick(self, view: View) -> None:
        if not self._same_database():
            _log.error("the registry was removed or replaced: ending")
            self._stopping = True
            return
        if self._announced and monitor_process.look(self._layout) is None:
            self._announce(ready=True)  # it was damaged: no verb could end us
        self._guarded(self._inbox.write_beats)
        fresh = self._looking.tick(view, self._keeper.problem, list(self._cards_kept))
        if len(self._queue) < LOADED or time.monotonic() - self._exported > EXPORT_S:
            self._exported = time.monotonic()
            self._audit.export(view)
        if self._keeper.bus is not None:
            for finding in fresh:
                self._cards.finding(self._keeper.bus, finding)
            for topic in self._cards_kept.intersection(self._looking.cards_left()):  # until the broker says they went
                self._keeper.bus.publish(topic, b"", retain=True)

    def _same_database(self) -> bool:
        """Whether the file that we have open still is the one at its place."""
        try:
            here = self._layout.database.stat().st_ino
        except OSError:
            return False
        self._inode = self._inode or here
        return self._inode == here

    def _slow(self, view: View) -> None:
        rotated_log.renew_own_output(self._layout.logs / "monitor.log")
        self._inbox.forget({job.id for job in view.open_jobs()})
        if self._keeper.bus is not None:
            self._cards.expire(self._keeper.bus, view, self._clock())
        for loop_id in repository_checks.sweep(self._mam, view):  # last: a repository that is broken ends it
            _log.warning("loop %s: its review trees were left behind, and are removed", loop_id)

    # -- the broker -------------------------------------------------------------------

    def _tend_broker(self, view: View) -> None:
        before = self._keeper.problem
        self._keeper.tend()
        bus = self._keeper.bus
        if self._keeper.connected_anew() and bus is not None:
            self._cards.monitor(bus, online=True)
            self._cards.start(bus, view)
            self._outbox.hurry()
        if self._keeper.problem != before:
            _log.warning("broker: %s", self._keeper.problem or "fine again")
            self._announce(ready=True)

    def _tend_soon(self) -> None:
        self._due["broker"] = 0.0
        self._wake()

    # -- coming and going ---------------------------------------------------------------

    def _announce(self, *, ready: bool) -> None:
        self._announced = True
        own = process_identity.me()
        state: dict[str, object] = {"pid": own.pid, "start": own.start, "boot": own.boot, "ready": ready}
        state["root"] = str(self._layout.root)
        broker, problem = self._keeper.url, self._keeper.problem
        write_json(self._layout.monitor_state, {**state, "version": VERSION, "broker": broker, "problem": problem})

    def _leave(self, view: View) -> None:
        _log.info("ending")
        self._guarded(self._audit.export, view)  # what came after the last tick: the log alone must be enough
        if self._keeper.bus is not None:
            self._cards.monitor(self._keeper.bus, online=False)
        self._keeper.close()
        view.connection.close()
        self._inbox.close()
        self._registry.close()


def main(mam: Mam) -> int:
    """The verb `mam monitor run`."""
    # Each database call gives the interpreter away; with the default of 5 ms the bus's thread would keep it that long.
    sys.setswitchinterval(0.0002)
    logging.raiseExceptions = False  # a full disk must not fill our log with complaints about our log
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    return Monitor(mam, connect=connector(mam.settings.text("MAM_CHAOS"), "monitor")).run()
