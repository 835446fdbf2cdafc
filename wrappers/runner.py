"""
The runner: lives in the pane, starts the agent, holds its presence, delivers prompts, relays its events.

One thread does everything; the bus and the signals only wake it. It never ends
because of the bus or the disk: while the agent lives, somebody must watch it.
"""

import logging
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mam.agents import catalog
from mam.agents.base import Signal, tail
from mam.broker import keys, proof, spool, topics
from mam.broker.bodies import Producer
from mam.broker.bus import Bus, Endpoint, Message, Will
from mam.broker.errors import MamError
from mam.broker.events import (
    INBOX_DATA,
    RUNTIME_DATA,
    USE_COMMAND,
    USE_RUNTIME,
    Cancel,
    Dispatch,
    Presence,
    Say,
    SessionMessage,
    Settled,
    check,
)
from mam.broker.mqtt import MqttBus
from mam.broker.signing import EventRefused, seal, unseal
from mam.broker.version import VERSION
from mam.wrappers import launch, muxes, process
from mam.wrappers.agent_process import AgentProcess, Exited, Stopped
from mam.wrappers.delivery import Delivery, Ledger, Outcome
from mam.wrappers.launch import LaunchSpec
from mam.wrappers.mux import LookFailed, PaneGone
from mam.wrappers.relay import Relay

_log = logging.getLogger("mam.runner")

LOOK_EVERY_S = 2.0
IDLE_S = 2.0  # a lost wake costs at most this
STOP_WAIT_S = 5.0
FLUSH_S = 2.0
NEW_BROKER_AFTER_S = 5.0

Connect = Callable[[Endpoint, str, Will, Callable[[], None]], Bus]


def connect_mqtt(endpoint: Endpoint, root: str, will: Will, on_connect: Callable[[], None]) -> Bus:
    return MqttBus(endpoint, root, will=will, on_connect=on_connect)


class Runner:
    def __init__(self, spec: LaunchSpec, pane: str, environ: Mapping[str, str], connect: Connect, tty: int) -> None:
        self._spec = spec
        self._pane = pane
        self._connect = connect
        self._cli = catalog.find(spec.agent)
        self._mux = muxes.make(spec.mux, spec.mux_server, environ, spec.mam)
        self._key = keys.load(Path(spec.session_key))
        self._producer = Producer("runner")
        self._run_dir = Path(spec.run_dir)
        self._ledger = Ledger(self._run_dir / "deliveries")
        self._me = proof.me()
        self._bus: Bus | None = None
        self._endpoint: Endpoint | None = None
        self._relay = Relay(spec.spool, self._run_dir / "dead")
        self._inbox: deque[Message] = deque(maxlen=1000)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fifo = os.open(self._run_dir / "wake", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._delivery: Delivery | None = None
        self._open: tuple[str, int] | None = None  # the attempt that gets heartbeats
        self._job_key = b""
        self._beat_due = self._look_due = self._endpoint_due = 0.0
        self._signal: Signal | None = None
        self._ending = False
        self._announce_due = False
        self.agent = AgentProcess(spec.argv, {**environ, **spec.env}, spec.cwd, tty)

    # -- the loop -----------------------------------------------------------------

    def run(self) -> int:
        """Serve until the agent ended; return its exit code."""
        self._hold_signals()
        self._attach_bus()
        while True:
            self._reap()
            if self.agent.exited is not None:
                break
            if self._ending:
                self.agent.end(STOP_WAIT_S)
                continue
            now = time.monotonic()
            self._guarded(self._read_inbox)
            self._guarded(self._deliver, now)
            self._guarded(self._relay_events, now)
            self._guarded(self._beat, now)
            self._guarded(self._look, now)
            self._guarded(self._attach_bus)
            self._guarded(self._announce)
            self._sleep(now)
        self._say_goodbye(self.agent.exited)
        return max(0, self.agent.exited.code) if self.agent.exited.code >= 0 else 128 - self.agent.exited.code

    def _guarded(self, step: Callable[..., None], *args: Any) -> None:
        """A full disk, a lost pane or a refused file must not leave the agent without its runner."""
        try:
            step(*args)
        except (OSError, MamError, ValueError) as error:
            _log.warning("%s: %s", step.__name__, error)

    def _sleep(self, now: float) -> None:
        due = min(now + IDLE_S, self._look_due)
        if self._delivery is not None:
            due = min(due, self._delivery.due)
        if self._open is not None:
            due = min(due, self._beat_due)
        wait_s = max(0.0, due - time.monotonic())
        ready, _, _ = select.select([self._wake_read, self._fifo], [], [], wait_s)
        for descriptor in ready:
            try:
                os.read(descriptor, 4096)
            except BlockingIOError:
                pass

    def _hold_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, self._end_soon)
        # Keys typed in the pane are the agent's.
        for name in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN):
            signal.signal(name, signal.SIG_IGN)

    def _end_soon(self, *_: object) -> None:
        self._ending = True

    # -- the agent ----------------------------------------------------------------

    def _reap(self) -> None:
        match self.agent.poll():
            case Stopped():
                self._tell("signal", {"name": "agent_stopped", "state": "continued"}, keep=True)
                self.agent.wake_up()
            case Exited():
                pass

    def _look(self, now: float) -> None:
        if now < self._look_due:
            return
        self._look_due = now + LOOK_EVERY_S
        try:
            screen = self._mux.screen(self._pane)
        except (PaneGone, LookFailed):
            return  # could not look: nothing is known, nothing is said
        seen = self._cli.read(screen)
        if seen is not self._signal and self._tell(
            "signal", {"name": "screen", "state": seen.value, "evidence": tail(screen)[-2000:]}
        ):
            self._signal = seen

    def _say_goodbye(self, ended: Exited) -> None:
        try:
            evidence = tail(self._mux.screen(self._pane))[-2000:]
        except (PaneGone, LookFailed):
            evidence = ""
        data = {"name": "agent_exited", "exit_code": ended.code, "evidence": evidence}
        self._guarded(self._tell_last, data)
        deadline = time.monotonic() + FLUSH_S
        while self._bus is not None and self._bus.connected and time.monotonic() < deadline:
            self._guarded(self._read_inbox)
            self._relay.send(self._bus, time.monotonic())
            if not any(spool.pending(self._spec.spool)):
                break
            self._sleep_briefly()
        if self._bus is not None:
            self._bus.publish(topics.presence(self._spec.session), self._presence(online=False), retain=True)
            self._bus.close()

    def _tell_last(self, data: Mapping[str, object]) -> None:
        self._tell("signal", data, keep=True)

    def _sleep_briefly(self) -> None:
        select.select([self._wake_read], [], [], 0.02)
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass

    # -- the bus ------------------------------------------------------------------

    def _attach_bus(self) -> None:
        """Connect, or connect anew where the broker moved to another port while we could not reach it."""
        now = time.monotonic()
        if (self._bus is not None and self._bus.connected) or now < self._endpoint_due:
            return
        self._endpoint_due = now + NEW_BROKER_AFTER_S
        endpoint = self._spec.broker.endpoint("runner")
        if endpoint is None or endpoint == self._endpoint:
            return
        if self._bus is not None:
            self._bus.close(flush_s=0)
        session = self._spec.session
        will = Will(topics.presence(session), self._presence(online=False))
        self._endpoint = endpoint
        self._bus = self._connect(endpoint, topics.root(self._spec.fingerprint), will, self._connected)
        self._bus.subscribe(topics.inbox(session), self._enqueue)
        self._bus.subscribe(topics.presence(session), self._enqueue)

    def _connected(self) -> None:
        self._announce_due = True
        self.wake()

    def _announce(self) -> None:
        """After every connect: who is here, and everything that a lost connection may have swallowed."""
        if not self._announce_due or self._bus is None:
            return
        if self._bus.publish(topics.presence(self._spec.session), self._presence(online=True), retain=True):
            self._announce_due = False
            self._signal = None
            self._look_due = 0.0
            self._relay.hurry()

    def _enqueue(self, message: Message) -> None:
        self._inbox.append(message)
        self.wake()

    def wake(self) -> None:
        """Make the loop look at once; callable from any thread."""
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            pass

    def _presence(self, *, online: bool) -> bytes:
        identity = {"pid": self._me.pid, "start_time": self._me.start, "boot_id": self._me.boot}
        data = {"online": online, "incarnation": self._spec.incarnation, "version": VERSION, **identity}
        if hasattr(self, "agent"):
            data |= {"agent_pid": self.agent.pid, "agent_start": self.agent.identity.start}
        return self._sealed("presence", data, topics.presence(self._spec.session))

    def _sealed(
        self, kind: str, data: Mapping[str, object], topic: str, job: str | None = None, attempt: int = 0
    ) -> bytes:
        body = self._producer.session_message(self._spec.session, kind, data, job=job, attempt=attempt)
        return seal(body, token=self._key, use=USE_RUNTIME, scope=self._spec.session, topic=topic)

    def _tell(
        self, kind: str, data: Mapping[str, object], *, job: str | None = None, attempt: int = 0, keep: bool = False
    ) -> bool:
        """Say something to the monitor; *keep* spools it until it is settled, otherwise it may be lost."""
        topic = topics.events(self._spec.session)
        body = self._producer.session_message(self._spec.session, kind, data, job=job, attempt=attempt)
        wire = seal(body, token=self._key, use=USE_RUNTIME, scope=self._spec.session, topic=topic)
        if keep:
            spool.write(self._spec.spool, str(body["id"]), topic, wire)
            if self._bus is not None:
                self._relay.send(self._bus, time.monotonic())
            return True
        return self._bus is not None and self._bus.publish(topic, wire)

    def _relay_events(self, now: float) -> None:
        for item in self._relay.send(self._bus, now):
            self._note(item)

    def _note(self, item: spool.Spooled) -> None:
        """Learn from what the agent said on its way out: `started` proves a delivery, `report` ends an attempt."""
        place = topics.parse(item.topic)
        if place is None or place.place != "job":
            return
        kind, attempt = self._relay.peek(item)
        if (
            kind == "started"
            and self._delivery
            and (self._delivery.job, self._delivery.attempt) == (place.owner, attempt)
        ):
            self._delivery.started_seen = True
        if kind == "report" and self._open == (place.owner, attempt):
            self._open = None

    # -- what the monitor wants ---------------------------------------------------

    def _read_inbox(self) -> None:
        while self._inbox:
            message = self._inbox.popleft()
            try:
                if message.topic == topics.presence(self._spec.session):
                    self._watch_presence(message)
                else:
                    self._obey(message)
            except EventRefused as error:
                _log.warning("a message on %s was refused: %s", message.topic, error)

    def _watch_presence(self, message: Message) -> None:
        """A will that came late may have overwritten our `online`: say it again, unless a younger runner spoke."""
        if not message.payload:
            return
        body = unseal(
            message.payload,
            keyring={"k1": self._key},
            use=USE_RUNTIME,
            scope=self._spec.session,
            topic=message.topic,
        )
        seen = check(SessionMessage, RUNTIME_DATA, body).data
        if not isinstance(seen, Presence) or seen.incarnation >= self._spec.incarnation:
            return
        if self._bus is not None:
            self._bus.publish(message.topic, self._presence(online=True), retain=True)

    def _obey(self, message: Message) -> None:
        body = unseal(
            message.payload,
            keyring={"k1": self._key},
            use=USE_COMMAND,
            scope=self._spec.session,
            topic=message.topic,
        )
        frame, data = check(SessionMessage, INBOX_DATA, body)
        match data:
            case Settled():
                self._relay.settle({item.id for item in data.items})
            case Say() if frame.job:
                self._accept(frame.job, frame.attempt, data)
            case Cancel() if frame.job:
                self._cancel(frame.job, frame.attempt)

    def _accept(self, job: str, attempt: int, order: Say) -> None:
        current = self._delivery
        if current is not None and (current.job, current.attempt) == (job, attempt):
            return  # sent again while under way
        done = self._ledger.result(job, attempt)
        if done is not None:
            self._deliver_outcome(job, attempt, done)
            return
        if current is not None:
            self._deliver_outcome(job, attempt, Outcome("refused", "busy", f"{current.job} is being delivered"))
            return
        self._tell("delivery", {"state": "received"}, job=job, attempt=attempt, keep=True)
        if isinstance(order, Dispatch):
            self._job_key = keys.load(Path(order.key_file))
        self._delivery = Delivery(
            job,
            attempt,
            order,
            agent=self._cli,
            mux=self._mux,
            pane=self._pane,
            ledger=self._ledger,
            in_foreground=self.agent.in_foreground,
            now=time.monotonic(),
        )

    def _deliver(self, now: float) -> None:
        if self._delivery is None:
            return
        outcome = self._delivery.step(now)
        if outcome is None:
            return
        job, attempt, order = self._delivery.job, self._delivery.attempt, self._delivery.order
        self._delivery = None
        if outcome.state == "submitted" and isinstance(order, Dispatch):
            self._open = (job, attempt)
            self._beat_due = now
        self._deliver_outcome(job, attempt, outcome)

    def _deliver_outcome(self, job: str, attempt: int, outcome: Outcome) -> None:
        data = {"state": outcome.state, "reason": outcome.reason, "evidence": outcome.evidence[-2000:]}
        self._tell("delivery", data, job=job, attempt=attempt, keep=True)

    def _cancel(self, job: str, attempt: int) -> None:
        if self._open == (job, attempt):
            self._open = None
        current = self._delivery
        if current is not None and (current.job, current.attempt) == (job, attempt):
            self._delivery = None
        known = self._ledger.result(job, attempt)
        self._deliver_outcome(job, attempt, known or Outcome("refused", "", "cancelled"))

    def _beat(self, now: float) -> None:
        if self._open is None or now < self._beat_due:
            return
        self._beat_due = now + self._spec.heartbeat_s
        job, attempt = self._open
        body = self._producer.job_event(job, attempt, "heartbeat", {})
        if self._bus is not None:
            topic = topics.job(job)
            self._bus.publish(topic, seal(body, token=self._job_key, use="event-mac", scope=job, topic=topic), qos=0)


def main(spec_file: Path, pane: str, environ: Mapping[str, str]) -> int:
    """The verb `mam runner`: serve the pane that we are in. Raises FileRefused for a bad *spec_file*."""
    spec = launch.read(spec_file)
    logging.basicConfig(filename=spec.log, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    runner = Runner(spec, pane, process.unnested_pane(environ), connect_mqtt, sys.stdin.fileno())
    return runner.run()
