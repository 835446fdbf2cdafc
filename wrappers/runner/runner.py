"""
The runner lives in the pane: it starts the agent, tells that it is present, delivers prompts, and relays its events.

One thread does everything; the bus and signals only wake it. Trouble with the bus or the disk never ends it, since the
agent must be watched as long as it lives.
"""

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from mam.agents import catalog
from mam.agents.border import UNREADABLE, AdapterFailed
from mam.agents.protocol import Screen, ScreenState
from mam.agents.screen import tail
from mam.broker import spool
from mam.broker.envelope import keys, topics
from mam.broker.envelope.orders import Cancel, Dispatch, FreeText, Received, Settled
from mam.broker.envelope.payloads import now_ms
from mam.broker.envelope.signing import EventRefused, claimed
from mam.broker.errors import MamError
from mam.broker.host import atomic_files, process_identity, rotated_log
from mam.broker.spool import Spooled
from mam.wrappers import process
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.protocol import LookFailed, PaneGone
from mam.wrappers.runner import launch_spec
from mam.wrappers.runner.agent_process import AgentProcess, Exited, Stopped
from mam.wrappers.runner.bus_session import BusSession, Connect, connector
from mam.wrappers.runner.delivery import Delivery, DeliveryPhase
from mam.wrappers.runner.launch_spec import LaunchSpec
from mam.wrappers.runner.ledger import DeliveryOutcome, Ledger

_log = logging.getLogger("mam.runner")

LOOK_EVERY_S = 2.0
IDLE_LOOKS_S = 6.0  # while a ready agent has nothing to do: `mam why` looks at the screen itself
FIRST_LOOKS_S = 0.2  # until the agent was seen ready for the first time
HOOK_DRAWS_S = 1.0
IDLE_S = 2.0  # the most that a lost wake costs
STOP_WAIT_S = 5.0
FLUSH_S = 2.0
EVIDENCE_CHARS = 2000


class Runner:
    """
    One life of one agent, from its start to its end.

    The agent is started at most once, and ends when the runner is asked to end (SIGTERM, SIGHUP). Whatever fails in one
    step of the loop is logged, and the loop goes on. What the agent says is kept in the spool until it is settled.
    """

    def __init__(self, spec: LaunchSpec, pane: str, environ: Mapping[str, str], connect: Connect, tty: int) -> None:
        self._spec = spec
        self._pane = pane
        self._cli = catalog.find(spec.agent)
        self._mux = mux_catalog.make(spec.mux, spec.mux_server, environ, spec.mam)
        self._run_dir = Path(spec.run_dir)
        self._ledger = Ledger(self._run_dir / "deliveries")
        self._link = BusSession(spec, connect)
        self._fifo = os.open(self._run_dir / "wake", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._delivery: Delivery | None = None
        self._open: tuple[str, int] | None = None  # the attempt that gets heartbeats
        self._taken: set[tuple[str, int]] = set()  # the deliveries that this runner has ended, in whatever way
        self._open_key = self._next_key = b""  # of the open attempt, and of the one that is being delivered
        self._beat_due = self._look_due = 0.0
        self._signal = ""  # the state of the screen that was last said
        self._was_ready = False
        self._ending = False
        self._how = ""
        self._write_note("runner.json", process_identity.me()._asdict())
        self._guarded(self._disown)
        self.agent = AgentProcess(spec.argv, {**spec.env_defaults, **environ, **spec.env}, spec.cwd, tty)

    # -- the loop -----------------------------------------------------------------

    def run(self) -> int:
        """Serve until the agent has ended. Returns its exit code; 128 + N where signal N ended it."""
        self._hold_signals()
        self._guarded(self._link.open, self.agent.identity)
        while self.agent.exited is None:
            if self._ending:
                self._guarded(self.agent.end, STOP_WAIT_S)
            now = time.monotonic()
            for step in (self._reap, self._obey_all, self._deliver, self._carry, self._beat, self._look, self._attend):
                self._guarded(step, now)
            if self.agent.exited is None:
                self._sleep(now)
        code = self.agent.exited.code
        self._guarded(self._say_goodbye, code)
        self._link.close()
        return code if code >= 0 else 128 - code

    def _guarded(self, step: Callable[..., None], *args: Any) -> None:
        """Run a step and log its trouble: a full disk or a lost pane must not leave the agent without its runner."""
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
        self._rest(due - time.monotonic())

    def _rest(self, wait_s: float) -> None:
        """Sleep until something happens, at most *wait_s*."""
        ready, _, _ = select.select([self._link.wake_read, self._fifo], [], [], max(0.0, wait_s))
        for descriptor in ready:
            try:
                os.read(descriptor, 4096)
            except BlockingIOError:
                pass

    def _hold_signals(self) -> None:
        signal.set_wakeup_fd(self._link.wake_descriptor, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end_soon)
        signal.signal(signal.SIGHUP, self._hung_up)
        # The keys that a person types in the pane are meant for the agent.
        for name in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN):
            signal.signal(name, signal.SIG_IGN)

    def _end_soon(self, *_: object) -> None:
        self._ending = True

    def _hung_up(self, *_: object) -> None:
        self._ending, self._how = True, "hung_up"

    def _attend(self, now: float) -> None:
        self._link.attend()
        if self._link.announce():
            self._signal, self._look_due = "", now  # what the screen shows is published again

    def _carry(self, now: float) -> None:
        for item in self._link.carry(now):
            self._note(item)

    # -- the agent ----------------------------------------------------------------

    def _reap(self, now: float) -> None:
        match self.agent.poll():
            case Stopped():
                self._link.say("signal", {"name": "agent_stopped", "state": "continued"})
                self.agent.wake_up()
            case Exited(code):
                _log.info("the agent ended with %d", code)

    def _look(self, now: float) -> None:
        if now < self._look_due:
            return
        busy = self._open is not None or self._delivery is not None or self._signal != ScreenState.READY.value
        first = not self._was_ready and self._signal != UNREADABLE
        every_s = FIRST_LOOKS_S if first else LOOK_EVERY_S if busy else IDLE_LOOKS_S
        self._look_due = now + every_s
        try:
            screen = self._mux.screen(self._pane)
        except (PaneGone, LookFailed):
            return  # without a look nothing is known, so nothing is published
        state, evidence = self._read(screen)
        self._was_ready = self._was_ready or state == ScreenState.READY.value
        if state == self._signal:
            return
        data = {"name": "screen", "state": state, "evidence": evidence[-EVIDENCE_CHARS:]}
        if self._link.say("signal", data, keep=False):
            self._signal = state

    def _read(self, screen: Screen) -> tuple[str, str]:
        """What the screen says and the lines that show it; where the adapter fails, `unreadable` and the reason."""
        try:
            return self._cli.read(screen).value, tail(screen)
        except AdapterFailed as error:
            if self._signal != UNREADABLE:
                _log.warning("%s", error)
            return UNREADABLE, str(error)

    def _say_goodbye(self, code: int) -> None:
        try:
            evidence = tail(self._mux.screen(self._pane))[-EVIDENCE_CHARS:]
        except (PaneGone, LookFailed):
            evidence = ""
        self._link.say("signal", {"name": "agent_exited", "state": self._how, "exit_code": code, "evidence": evidence})
        deadline = time.monotonic() + FLUSH_S
        while self._link.connected and spool.entries(self._spec.spool) and time.monotonic() < deadline:
            self._carry(time.monotonic())
            self._obey_all(time.monotonic())
            self._rest(0.02)

    def _note(self, item: Spooled) -> None:
        """Learn from an event of the agent: `started` proves a delivery, and `report` ends an attempt."""
        place, (kind, attempt) = topics.parse(item.topic), claimed(item.wire)
        if place is not None and place.place == "events" and kind == "signal":
            # A hook speaks before its question is drawn. The screen after that is published in any case, since a
            # person who answers at once leaves no question to be seen.
            self._signal, self._look_due = "", time.monotonic() + HOOK_DRAWS_S
        if place is None or place.place != "job":
            return
        current = self._delivery
        if kind == "started" and current and (current.job, current.attempt) == (place.owner, attempt):
            current.started_seen = True
        if kind == "report" and self._open == (place.owner, attempt):
            self._close_attempt()

    def _disown(self) -> None:
        """Report the attempt that was open when an earlier runner died as lost: its agent has died as well."""
        before = atomic_files.read(self._run_dir / "open.json")
        job, attempt = before.get("job"), before.get("attempt")
        if isinstance(job, str) and isinstance(attempt, int):
            self._report_delivery(job, attempt, DeliveryOutcome("unknown", "restarted"))
        self._write_note("open.json", {})

    def _close_attempt(self) -> None:
        self._open = None
        self._write_note("open.json", {})

    def _write_note(self, name: str, content: Mapping[str, object]) -> None:
        """Write a small file for the agent's own verbs, which never use the network."""
        atomic_files.write_note(self._run_dir / name, content)

    # -- what the monitor wants ---------------------------------------------------

    def _obey_all(self, now: float) -> None:
        while True:
            try:
                message = self._link.receive()
            except EventRefused as error:
                _log.warning("a message was refused: %s", error)
                continue
            if message is None:
                return
            self._guarded(self._obey, message)

    def _obey(self, message: Received) -> None:
        match message.data:
            case Settled(ids):
                self._link.relay.settle(ids)
            case FreeText() as order if message.job:
                self._accept(message.job, message.attempt, order)
            case Cancel() if message.job:
                self._cancel(message.job, message.attempt)

    def _accept(self, job: str, attempt: int, order: FreeText) -> None:
        current = self._delivery
        if current is not None and (current.job, current.attempt) == (job, attempt):
            return  # the order was sent again while it is under way
        done = self._ledger.result(job, attempt)
        if done is not None:
            if isinstance(order, Dispatch) and done.state == "submitted" and (job, attempt) not in self._taken:
                # The runner that submitted it died before it could say so, and its agent with it. Both are reported.
                self._report_delivery(job, attempt, done)
                done = DeliveryOutcome("unknown", "restarted")
            self._report_delivery(job, attempt, done)
            return
        if current is not None and not self._gives_way(current, order, job):
            self._report_delivery(job, attempt, DeliveryOutcome("refused", "busy", f"{current.job} is being delivered"))
            return
        left_s = _left_s(order)
        if left_s <= 0:
            _log.warning("%s came too late to be typed", job)
            return  # its job was given up, or its sender was told that it did not arrive
        if isinstance(order, Dispatch):
            self._next_key = keys.load(Path(order.key_file))
        else:
            order = replace(order, deliver_within_s=left_s)
        self._link.say("delivery", {"state": "received"}, job=job, attempt=attempt)
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

    def _gives_way(self, current: Delivery, order: FreeText, job: str) -> bool:
        """Whether *current* was dropped: a job's prompt goes before free text that was not pasted. Its sender hears."""
        if (
            isinstance(current.order, Dispatch)
            or not isinstance(order, Dispatch)
            or current.phase is not DeliveryPhase.WAITING
        ):
            return False
        self._delivery = None
        self._report_delivery(current.job, current.attempt, DeliveryOutcome("refused", "busy", f"{job} came first"))
        return True

    def _deliver(self, now: float) -> None:
        current = self._delivery
        if current is None:
            return
        outcome = current.step(now)
        if outcome is None:
            return
        self._delivery = None
        self._taken.add((current.job, current.attempt))
        self._look_due = now  # a turn has begun, or something is in its way: look at once
        if outcome.state == "submitted" and isinstance(current.order, Dispatch):
            self._open, self._open_key = (current.job, current.attempt), self._next_key
            self._beat_due = now
            registry_dir = str(Path(current.order.brief_path).parent.parent)
            self._write_note(
                "open.json", {"job": current.job, "attempt": current.attempt, "registry_dir": registry_dir}
            )
        self._report_delivery(current.job, current.attempt, outcome)

    def _report_delivery(self, job: str, attempt: int, outcome: DeliveryOutcome) -> None:
        data = {"state": outcome.state, "reason": outcome.reason, "evidence": outcome.evidence[-EVIDENCE_CHARS:]}
        self._link.say("delivery", data, job=job, attempt=attempt)

    def _cancel(self, job: str, attempt: int) -> None:
        """Drop a delivery, or stop the heartbeats of an attempt. The agent itself is not interrupted."""
        if self._open == (job, attempt):
            self._close_attempt()
        current = self._delivery
        if current is not None and (current.job, current.attempt) == (job, attempt):
            if current.phase is not DeliveryPhase.WAITING:
                return  # the prompt stands in the composer: without its end, no later prompt could be delivered
            self._delivery = None
        known = self._ledger.result(job, attempt) or DeliveryOutcome("refused")
        self._report_delivery(job, attempt, known._replace(reason="cancelled"))

    def _beat(self, now: float) -> None:
        if self._open is not None and now >= self._beat_due:
            self._beat_due = now + self._spec.heartbeat_s
            self._link.beat(*self._open, self._open_key)


def _left_s(order: FreeText) -> int:
    """Return for how many seconds an order may still be typed. After a SIGSTOP, the socket holds old ones."""
    if order.expires_at is None:
        return order.deliver_within_s
    return min(order.deliver_within_s, (order.expires_at - now_ms()) // 1000)


def main(spec_file: Path, pane: str, environ: Mapping[str, str]) -> int:
    """`mam runner`: serve this process's pane and return its code. Raises FileRefused for a bad *spec_file*."""
    spec = launch_spec.read(spec_file)
    logging.raiseExceptions = False  # standard error is the agent's screen
    log = RotatingFileHandler(spec.log, maxBytes=rotated_log.LIMIT_BYTES, backupCount=1)
    logging.basicConfig(handlers=[log], level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    runner = Runner(spec, pane, process.unnested_pane(environ), connector(spec.chaos, spec.session), sys.stdin.fileno())
    return runner.run()
