"""
The one entrance of truth: unseal, check, record and step in one commit, then settle.

One transaction for a whole batch; what changes more than one row does so in a
savepoint of its own, so a message that fails takes nothing with it. Nothing is
settled that is not on disk.
"""

import hashlib
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mam.broker.envelope import events as ev
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.envelope.signing import UNAUTHENTICATED, USE_JOB, USE_RUNTIME, EventRefused, refuse, unseal
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs import state as job_state
from mam.control_plane.jobs.reports import file_sha256
from mam.control_plane.registry.records import Attempt, Job, Question, Session
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
        self._keyring = keyring
        self._clock = clock
        self._progress: dict[tuple[str, int], Attempt] = {}  # the last one of each attempt in this batch
        self._written: dict[tuple[str, int], int] = {}  # when each attempt's last heartbeat was written
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
        with self._registry.transaction() as tx:
            for topic, wire in batch:
                try:
                    settling = self._one(tx, topic, wire)
                except EventRefused as error:
                    settling = self._refused(topic, wire, error)
                except sqlite3.IntegrityError:
                    # Two copies in one instant: the second insert lost the slot.
                    settling = Settling("", "", "duplicate", topic)
                settled.append(settling)
            for seen in self._progress.values():
                tx.observe(seen, last_progress_at=seen.last_progress_at, last_note=seen.last_note)
        return settled

    def _refused(self, topic: str, wire: bytes, error: EventRefused) -> Settling:
        self.refused[error.outcome] = self.refused.get(error.outcome, 0) + 1
        if error.outcome in UNAUTHENTICATED:
            digest = hashlib.sha256(wire).hexdigest()[:16]  # never the payload itself: it is not authenticated
            _log.warning("refused %s on a topic of %d characters, sha256 %s", error.outcome, len(topic), digest)
            return Settling("", "", error.outcome, topic)
        _log.warning("refused on %s: %s", topic, error)
        return Settling(str(error.data.get("session", "")), str(error.data.get("id", "")), error.outcome, topic)

    def _one(self, tx: Transaction, topic: str, wire: bytes) -> Settling:
        place = topics.parse(topic)
        if place is None:
            refuse("bad_topic", "")
        if place.place == "job":
            return self._job_event(tx, place.owner, topic, wire)
        if place.place not in ("events", "presence"):
            refuse("bad_topic", place.place)
        return self._runtime(tx, place.owner, topic, wire)

    # -- what is said about a job -------------------------------------------------

    def _job_event(self, tx: Transaction, job_id: str, topic: str, wire: bytes) -> Settling:
        keyring = self._keyring.job(job_id)
        job = tx.job(job_id)
        if job is None or not keyring:
            refuse("unknown_job", job_id)
        body = unseal(wire, keyring=keyring, use=USE_JOB, scope=job_id, topic=topic)
        settling = Settling(job.session, str(body.get("id", "")), "accepted", topic)
        try:
            outcome = self._authentic(tx, job, topic, wire, body)
        except EventRefused as error:
            error.data |= {"session": job.session, "id": settling.event_id}
            raise
        return settling._replace(outcome=outcome)

    def _authentic(self, tx: Transaction, job: Job, topic: str, wire: bytes, body: dict[str, object]) -> str:
        frame, data = ev.check(ev.JobEvent, ev.JOB_DATA, body)
        if frame.job != job.id:
            refuse("binding_mismatch", frame.job)
        now = self._clock()  # the sender's `ts` decides nothing: clocks are set back while an event waits
        if job.archived_at is not None:
            refuse("expired", "")
        if frame.attempt > job.attempt:
            refuse("unknown_attempt", str(frame.attempt))
        attempt = tx.attempt(job.id, frame.attempt)
        if isinstance(data, ev.Heartbeat):
            if frame.attempt == job.attempt:
                self._beat(tx, job, frame.attempt, now)
            return "accepted"
        scope = topics.job(job.id)
        digest = hashlib.sha256(wire).hexdigest()
        if _is_repeat(tx, scope, frame, digest):
            return "duplicate"
        if frame.attempt < job.attempt or attempt is None:
            # Without effect, but stored: its sender was told that it is kept.
            _store(tx, scope, topic, wire, frame, frame.attempt, digest, "stale_attempt", now)
            _ask(tx, job, frame.attempt, data, now)
            return "stale_attempt"
        intact = not isinstance(data, ev.Report) or _report_intact(job, data)
        step = job_state.step(job, attempt, data, now=now, report_intact=intact)
        if isinstance(data, ev.Progressed) and step.job == job and attempt.started_at is not None:
            # Seen often, and kept in the events anyway: not worth an audited row, nor a savepoint, each time.
            _store(tx, scope, topic, wire, frame, frame.attempt, digest, step.outcome, now)
            self._progress[(job.id, frame.attempt)] = step.attempt
            return step.outcome
        with tx.savepoint():
            _store(tx, scope, topic, wire, frame, frame.attempt, digest, step.outcome, now)
            if step.job != job:
                tx.put(step.job)
            if step.attempt != attempt:
                tx.put(step.attempt)
            _ask(tx, job, frame.attempt, data, now)
        return step.outcome

    def _beat(self, tx: Transaction, job: Job, attempt: int, now: int) -> None:
        key = (job.id, attempt)
        self.heard[key] = now
        if now - self._written.get(key, 0) < BEAT_WRITTEN_EVERY_MS:
            return
        row = tx.attempt(job.id, attempt)
        if row is not None:
            tx.observe(row, last_heartbeat_at=now)
            self._written[key] = now

    def forget(self, open_jobs: set[str]) -> None:
        """Drop what is remembered of jobs that have ended."""
        for memory in (self.heard, self._written):
            for key in [key for key in memory if key[0] not in open_jobs]:
                del memory[key]

    # -- what a runner says about its session ---------------------------------------

    def _runtime(self, tx: Transaction, name: str, topic: str, wire: bytes) -> Settling:
        keyring = self._keyring.session(name)
        session = tx.session(name)
        if session is None or not keyring:
            refuse("unknown_key", name)
        body = unseal(wire, keyring=keyring, use=USE_RUNTIME, scope=name, topic=topic)
        settling = Settling(name, str(body.get("id", "")), "accepted", topic)
        try:
            frame, data = ev.check(ev.SessionMessage, ev.RUNTIME_DATA, body)
            if frame.session != name:
                refuse("binding_mismatch", frame.session)
            now = self._clock()
            if isinstance(data, ev.Presence):
                if data.online:
                    self.arrived.add(name)
                self._seen(tx, session_state.presence(session, data, now=now), session)
                return settling
            if isinstance(data, ev.Signal) and data.name == "screen":
                if session_state.shows(session, data):
                    text = {"screen": data.state, "screen_text": data.evidence, "screen_at": now}
                    tx.observe(session, **text)
                return settling
            with tx.savepoint():
                return settling._replace(outcome=self._kept(tx, topic, wire, frame, data, now))
        except EventRefused as error:
            error.data |= {"session": name, "id": settling.event_id}
            raise

    def _kept(
        self, tx: Transaction, topic: str, wire: bytes, frame: ev.SessionMessage, data: ev.Data | None, now: int
    ) -> str:
        scope = topics.events(frame.session)
        digest = hashlib.sha256(wire).hexdigest()
        if _is_repeat(tx, scope, frame, digest):
            return "duplicate"
        outcome = "accepted"
        if isinstance(data, ev.DeliveryReport) and frame.job is not None:
            outcome = self._delivery(tx, frame.job, frame.attempt, data, now)
        elif isinstance(data, ev.Signal):
            session = tx.session(frame.session)
            assert session is not None
            self._seen(tx, session_state.signal(session, data, now=now), session)
        _store(tx, scope, topic, wire, frame, frame.attempt, digest, outcome, now)
        return outcome

    def _seen(self, tx: Transaction, after: Session, before: Session) -> None:
        if after != before:
            tx.put(after)
            self.changed_sessions.add(after.name)

    def _delivery(self, tx: Transaction, job_id: str, number: int, data: ev.DeliveryReport, now: int) -> str:
        if data.state != "received":
            for order in tx.outbox():
                # A delivery that was on its way when the job was cancelled does not answer the cancel.
                answered = order.kind != "cancel" or data.reason == "cancelled"
                if answered and (order.job, order.attempt) == (job_id, number):
                    tx.drop(order)
        job, attempt = tx.job(job_id), tx.attempt(job_id, number)
        if job is None:
            return "accepted"  # free text: nothing but its order depends on it
        if attempt is None or number != job.attempt:
            return "stale_attempt"
        after_job, after = job_state.delivery(job, attempt, data, now=now)
        if after != attempt:
            tx.put(after)
        if after_job != job:
            tx.put(after_job)
        return "accepted"


def _is_repeat(tx: Transaction, scope: str, frame: ev.JobEvent | ev.SessionMessage, digest: str) -> bool:
    """Whether these very bytes used their slot already. Refuses other bytes in a used slot as an equivocation."""
    known = tx.slot(scope, frame.attempt, frame.producer, frame.seq)
    if known is not None and known != digest:
        refuse("equivocation", f"{frame.producer} {frame.seq}")
    return known is not None


def _store(
    tx: Transaction,
    scope: str,
    topic: str,
    wire: bytes,
    frame: ev.JobEvent | ev.SessionMessage,
    attempt: int,
    digest: str,
    outcome: str,
    now: int,
) -> None:
    tx.add_event(
        arrived_at=now,
        id=frame.id,
        topic=topic,
        scope=scope,
        kind=frame.kind,
        attempt=attempt,
        producer=frame.producer,
        slot=frame.seq,
        wire_sha256=digest,
        outcome=outcome,
        wire=wire,
    )


def _ask(tx: Transaction, job: Job, attempt: int, asked: ev.Data | None, now: int) -> None:
    """Keep a question, also one that comes too late, so that the command that waits is told. An id is used once."""
    if not isinstance(asked, ev.Asked) or tx.question(asked.question_id) is not None:
        return
    text, choices = asked.question, json.dumps(asked.choices, ensure_ascii=False)
    tx.put(Question(asked.question_id, job.id, attempt, text, choices, now, asked.timeout_s, asked.fallback))


def _report_intact(job: Job, report: ev.Report) -> bool:
    """Whether the report file still is what the event signed."""
    return file_sha256(Path(job.report_path)) == report.report_sha256
