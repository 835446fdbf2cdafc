"""
The one entrance of truth: unseal, check, record and step in one commit, then settle.

One transaction for a whole batch; what changes more than one row does so in a
savepoint of its own, so a message that fails takes nothing with it. Nothing is
settled that is not on disk. What is never kept (heartbeats, screens, presence)
is not settled either, and opens a transaction only where it changes a row.
"""

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from mam.broker.envelope import events as ev
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.envelope.signing import UNAUTHENTICATED, USE_JOB, USE_RUNTIME, EventRefused, refuse, unseal
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs import state as job_state
from mam.control_plane.jobs.reports import file_sha256
from mam.control_plane.messaging.recording import ask_question, delivery, is_repeat, store
from mam.control_plane.registry.database import RegistryUnusable
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Attempt, Job, Session
from mam.control_plane.registry.transactions import Registry, Transaction
from mam.control_plane.sessions import state as session_state

_log = logging.getLogger("mam.inbox")

BEAT_WRITTEN_EVERY_MS = 60_000


class Settling(NamedTuple):
    """What became of one message. *session* names the spool that keeps it; empty where none does."""

    session: str
    event_id: str
    outcome: str
    topic: str


class Inbox:
    """
    Records what agents and runners say, each message once.

    A message is recorded only after its signature and its binding were found right. What was refused is counted in
    *refused*. It never raises for the content of a message.
    """

    def __init__(self, registry: Registry, keyring: Keyring, *, clock: Callable[[], int] = now_ms) -> None:
        self._registry = registry
        self._view: View | None = None  # stays open: what changes no row is checked without a transaction
        self._keyring = keyring
        self._clock = clock
        self._progress: dict[tuple[str, int], Attempt] = {}  # the last one of each attempt in this batch
        self._written: dict[tuple[str, int], int] = {}  # when each attempt's last heartbeat was written
        self._beats: dict[tuple[str, int], int] = {}  # heartbeats that are to be written with the next transaction
        self.heard: dict[tuple[str, int], int] = {}  # when each attempt's last heartbeat came
        self.changed_sessions: set[str] = set()
        self.arrived: set[str] = set()  # sessions whose runner connected (anew): what waits for it is due
        self.refused: dict[str, int] = {}

    def take(self, batch: Sequence[tuple[str, bytes]]) -> list[Settling]:
        """
        Record a batch of (logical topic, wire bytes) and return what to settle, in the same order.

        Never raises for what a message holds. Raises what Registry.transaction
        raises, and then nothing of the batch is recorded.
        """
        settled = []
        self._keyring.recheck()
        self._progress.clear()
        with ExitStack() as stack:
            tx = None
            for topic, wire in batch:
                settling = self._settling(tx or self._rows(), topic, wire)
                if settling is None:
                    tx = stack.enter_context(self._registry.transaction())
                    settling = self._settling(tx, topic, wire)
                assert settling is not None  # every change can be made in a transaction
                settled.append(settling)
            if tx is not None:
                for seen in self._progress.values():
                    tx.observe(seen, last_progress_at=seen.last_progress_at, last_note=seen.last_note)
                self._note_beats(tx)
        return settled

    def write_beats(self) -> None:
        """
        Note when each attempt was last heard, for people and for the next monitor; once a minute for each attempt.

        One transaction for all of them, and none where nothing is due. Raises what Registry.transaction raises.
        """
        if self._beats:
            with self._registry.transaction() as tx:
                self._note_beats(tx)

    def _note_beats(self, tx: Transaction) -> None:
        for key, at in self._beats.items():
            row = tx.attempt(*key)
            if row is not None:
                tx.observe(row, last_heartbeat_at=at)
            self._written[key] = at
        self._beats.clear()

    def close(self) -> None:
        if self._view is not None:
            self._view.connection.close()
            self._view = None

    def _rows(self) -> View:
        """The rows as they were last committed. Raises what Registry.watch raises."""
        if self._view is None:
            self._view = self._registry.watch()
        return self._view

    def _settling(self, rows: View, topic: str, wire: bytes) -> Settling | None:
        """What became of a message; None, with nothing done, where it changes rows and *rows* is no transaction."""
        try:
            return self._one(rows, topic, wire)
        except EventRefused as error:
            return self._refused(topic, wire, error)
        except sqlite3.IntegrityError:
            # Two copies in one instant: the second insert lost the slot.
            return Settling("", "", "duplicate", topic)
        except sqlite3.DatabaseError as error:
            raise RegistryUnusable(path=str(self._registry.path), why=str(error)) from error

    def _refused(self, topic: str, wire: bytes, error: EventRefused) -> Settling:
        self.refused[error.outcome] = self.refused.get(error.outcome, 0) + 1
        if error.outcome in UNAUTHENTICATED:
            digest = hashlib.sha256(wire).hexdigest()[:16]  # never the payload itself: it is not authenticated
            _log.warning("refused %s on a topic of %d characters, sha256 %s", error.outcome, len(topic), digest)
            return Settling("", "", error.outcome, topic)
        _log.warning("refused on %s: %s", topic, error)
        return Settling(str(error.data.get("session", "")), str(error.data.get("id", "")), error.outcome, topic)

    def _one(self, rows: View, topic: str, wire: bytes) -> Settling | None:
        place = topics.parse(topic)
        if place is None:
            refuse("bad_topic", "")
        if place.place == "job":
            return self._job_event(rows, place.owner, topic, wire)
        if place.place not in ("events", "presence"):
            refuse("bad_topic", place.place)
        return self._runtime(rows, place.owner, topic, wire)

    # -- what is said about a job -------------------------------------------------

    def _job_event(self, rows: View, job_id: str, topic: str, wire: bytes) -> Settling | None:
        keyring = self._keyring.job(job_id)
        job = rows.job(job_id)
        if job is None or not keyring:
            refuse("unknown_job", job_id)
        body = unseal(wire, keyring=keyring, use=USE_JOB, scope=job_id, topic=topic)
        event_id, keeper = str(body.get("id", "")), job.session
        try:
            frame, data = ev.check(ev.JobEvent, ev.JOB_DATA, body)
            if isinstance(data, ev.Heartbeat):
                keeper = ""  # sent once, and in no spool afterwards
            _check_binding(job, frame)
            if isinstance(data, ev.Heartbeat):
                self._beat(job, frame.attempt)
                return Settling(keeper, event_id, "accepted", topic)
            if not isinstance(rows, Transaction):
                return None
            return Settling(keeper, event_id, self._authentic(rows, job, topic, wire, frame, data), topic)
        except EventRefused as error:
            error.data |= {"session": keeper, "id": event_id}
            raise

    def _authentic(
        self, tx: Transaction, job: Job, topic: str, wire: bytes, frame: ev.JobEvent, data: ev.Data | None
    ) -> str:
        now = self._clock()  # the sender's `ts` decides nothing: clocks are set back while an event waits
        attempt = tx.attempt(job.id, frame.attempt)
        scope = topics.job(job.id)
        digest = hashlib.sha256(wire).hexdigest()
        if isinstance(data, ev.Progressed) and frame.attempt == job.attempt and attempt is not None:
            step = job_state.step(job, attempt, data, now=now)
            # Seen often, and kept in the events anyway: not worth an audited row, nor a savepoint, each time.
            plain = step.job is job and attempt.started_at is not None
            if plain and store(tx, scope, topic, wire, frame, digest, step.outcome, now):
                self._progress[(job.id, frame.attempt)] = step.attempt
                return step.outcome
        if is_repeat(tx, scope, frame, digest):
            return "duplicate"
        if frame.attempt < job.attempt or attempt is None:
            # Without effect, but stored: its sender was told that it is kept.
            store(tx, scope, topic, wire, frame, digest, "stale_attempt", now)
            ask_question(tx, job, frame.attempt, data, now)
            return "stale_attempt"
        intact = not isinstance(data, ev.Report) or _report_intact(job, data)
        step = job_state.step(job, attempt, data, now=now, report_intact=intact)
        with tx.savepoint():
            store(tx, scope, topic, wire, frame, digest, step.outcome, now)
            if step.job != job:
                tx.put(step.job)
            if step.attempt != attempt:
                tx.put(step.attempt)
            ask_question(tx, job, frame.attempt, data, now)
        return step.outcome

    def _beat(self, job: Job, attempt: int) -> None:
        if attempt != job.attempt:
            return  # of an earlier attempt: no sign of this one
        key, now = (job.id, attempt), self._clock()
        self.heard[key] = now
        if now - self._written.get(key, 0) >= BEAT_WRITTEN_EVERY_MS:
            self._beats[key] = now

    def forget(self, open_jobs: set[str]) -> None:
        """Drop what is remembered of jobs that have ended."""
        for memory in (self.heard, self._written, self._beats):
            for key in [key for key in memory if key[0] not in open_jobs]:
                del memory[key]

    # -- what a runner says about its session ---------------------------------------

    def _runtime(self, rows: View, name: str, topic: str, wire: bytes) -> Settling | None:
        keyring = self._keyring.session(name)
        session = rows.session(name)
        if session is None or not keyring:
            refuse("unknown_key", name)
        body = unseal(wire, keyring=keyring, use=USE_RUNTIME, scope=name, topic=topic)
        event_id, keeper = str(body.get("id", "")), name
        try:
            frame, data = ev.check(ev.SessionMessage, ev.RUNTIME_DATA, body)
            shown = data if isinstance(data, ev.Signal) and data.name == "screen" else None
            if shown is not None or isinstance(data, ev.Presence):
                keeper = ""  # said anew when it changes, and in no spool
            if frame.session != name:
                refuse("binding_mismatch", frame.session)
            if shown is not None:
                done = self._screen(rows, session, shown)
            elif isinstance(data, ev.Presence):
                done = self._presence(rows, session, data)
            elif isinstance(rows, Transaction):
                with rows.savepoint():
                    return Settling(keeper, event_id, self._kept(rows, topic, wire, frame, data), topic)
            else:
                done = False
            return Settling("", event_id, "accepted", topic) if done else None
        except EventRefused as error:
            error.data |= {"session": keeper, "id": event_id}
            raise

    def _presence(self, rows: View, session: Session, seen: ev.Presence) -> bool:
        """Note who is here; False, with nothing done, where that changes rows and *rows* is no transaction."""
        after = session_state.presence(session, seen, now=self._clock())
        if after != session:
            if not isinstance(rows, Transaction):
                return False
            self._seen(rows, after, session)
        if seen.online:
            self.arrived.add(session.name)
        return True

    def _screen(self, rows: View, session: Session, seen: ev.Signal) -> bool:
        """Note what a screen shows; False, with nothing done, where *rows* is no transaction."""
        if session_state.shows(session, seen):
            if not isinstance(rows, Transaction):
                return False
            rows.observe(session, screen=seen.state, screen_text=seen.evidence, screen_at=self._clock())
        return True

    def _kept(self, tx: Transaction, topic: str, wire: bytes, frame: ev.SessionMessage, data: ev.Data | None) -> str:
        now = self._clock()
        scope = topics.events(frame.session)
        digest = hashlib.sha256(wire).hexdigest()
        if is_repeat(tx, scope, frame, digest):
            return "duplicate"
        outcome = "accepted"
        if isinstance(data, ev.DeliveryReport) and frame.job is not None:
            outcome = delivery(tx, frame.job, frame.attempt, data, now)
        elif isinstance(data, ev.Signal):
            session = tx.session(frame.session)
            assert session is not None
            self._seen(tx, session_state.signal(session, data, now=now), session)
        store(tx, scope, topic, wire, frame, digest, outcome, now)
        return outcome

    def _seen(self, tx: Transaction, after: Session, before: Session) -> None:
        if after != before:
            tx.put(after)
            self.changed_sessions.add(after.name)


def _check_binding(job: Job, frame: ev.JobEvent) -> None:
    """Refuse what is not of this job, of no attempt of it, or too late for anything."""
    if frame.job != job.id:
        refuse("binding_mismatch", frame.job)
    if job.archived_at is not None:
        refuse("expired", "")
    if frame.attempt > job.attempt:
        refuse("unknown_attempt", str(frame.attempt))


def _report_intact(job: Job, report: ev.Report) -> bool:
    """Whether the report file still is what the event signed."""
    return file_sha256(Path(job.report_path)) == report.report_sha256
