"""Retained cards for viewers: one a job, one a loop, one of the monitor, and findings. The rows are the truth."""

from collections.abc import Mapping

from mam.broker.bus.protocol import Bus, Will
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import Producer, now_ms
from mam.broker.envelope.signing import USE_CARD, USE_JOB, seal
from mam.broker.version import VERSION
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.registry.queries import R, View
from mam.control_plane.registry.records import OPEN, Finding, Job, Loop

KEPT_MS = 24 * 3600 * 1000


class PublishedState:
    """
    The retained messages that show the state of jobs, loops and the monitor on the bus.

    They are for looking at. The registry decides, and publishes them anew after each connection.
    """

    def __init__(self, token: bytes, keyring: Keyring, scope: str) -> None:
        self._token, self._keyring, self._scope = token, keyring, scope
        self._producer = Producer("monitor")
        self._shown: dict[str, int] = {}  # job -> updated_at of the card that is out
        self._seen: int | None = None  # up to which change of the audit the cards are out
        self._cleared: set[str] = set()  # topics
        self._loops_shown: dict[str, int] = {}

    def will(self) -> Will:
        """What the broker says of the monitor when its connection breaks."""
        return Will(topics.MONITOR, self._sealed("monitor", 0, {"online": False}, topics.MONITOR))

    def monitor(self, bus: Bus, *, online: bool) -> None:
        wire = self._sealed("monitor", 0, {"online": online, "version": VERSION}, topics.MONITOR)
        bus.publish(topics.MONITOR, wire, retain=True)

    def finding(self, bus: Bus, finding: Finding) -> None:
        data = {"code": finding.code, "subject": finding.subject, "text": finding.text}
        bus.publish(topics.DRIFT, self._sealed("finding", finding.since, data, topics.DRIFT))

    def start(self, bus: Bus, view: View) -> None:
        """After a (re)connect: the cards of open jobs; older ones are not worth a flood."""
        self._shown.clear()
        for job in view.open_jobs():
            self._show(bus, job)
        self._loops_shown.clear()
        for loop in view.loops(only_open=True):
            self._show_loop(bus, loop)

    def refresh(self, bus: Bus, view: View) -> None:
        """Publish the cards of jobs and loops that changed since the last call."""
        last = int(view.connection.execute("SELECT coalesce(max(seq), 0) FROM audit").fetchone()[0])
        changed, self._seen = (self._seen, last), last
        for job in self._changed(view, Job, changed):
            if job.archived_at is not None or self._shown.get(job.id) != job.updated_at:
                self._show(bus, job)
        for loop in self._changed(view, Loop, changed):
            if self._loops_shown.get(loop.id) != loop.updated_at:
                self._show_loop(bus, loop)

    def _changed(self, view: View, kind: type[R], span: tuple[int | None, int]) -> list[R]:
        """Rows that changed in a span of the audit: by its own count, since a clock may be set back."""
        if span[0] is None:  # older cards are gone, and stay so
            return view.rows(kind, "WHERE updated_at >= ? ORDER BY updated_at", (now_ms() - KEPT_MS,))
        where = "WHERE id IN (SELECT key FROM audit WHERE tbl = ? AND seq > ? AND seq <= ?)"
        return view.rows(kind, where, (kind.table, *span))

    def expire(self, bus: Bus, view: View, now: int) -> None:
        """Clear the cards of jobs and loops that ended a day ago, or were archived."""
        where = "WHERE (ended_at BETWEEN ? AND ?) OR archived_at >= ?"
        span = (now - 3 * KEPT_MS, now - KEPT_MS, now - 2 * 3600 * 1000)
        old = {topics.job_state(job.id): job.id for job in view.rows(Job, where, span)}
        old |= {topics.loop_state(loop.id): loop.id for loop in view.rows(Loop, where, span)}
        self._cleared &= old.keys()
        for topic, name in old.items():
            if topic not in self._cleared and bus.publish(topic, b"", retain=True):
                self._cleared.add(topic)
            self._shown.pop(name, None)

    def _show_loop(self, bus: Bus, loop: Loop) -> None:
        topic = topics.loop_state(loop.id)
        shown = ("title", "state", "round", "base_sha", "head_sha", "outcome", "detail", "updated_at")
        data = {"loop": loop.id, **{name: getattr(loop, name) for name in shown}}
        if bus.publish(topic, self._sealed("loop", loop.updated_at, data, topic), retain=True):
            self._loops_shown[loop.id] = loop.updated_at

    def _show(self, bus: Bus, job: Job) -> None:
        topic = topics.job_state(job.id)
        self._cleared.discard(topic)
        if job.archived_at is not None:
            bus.publish(topic, b"", retain=True)
            return
        if job.state == "cancelled" and job.id in self._shown:
            self._say_cancelled(bus, job)
        if bus.publish(topic, self._sealed("job", job.updated_at, card(job), topic), retain=True):
            self._shown[job.id] = job.updated_at
            if job.state not in OPEN and len(self._shown) > 20_000:
                self._shown.clear()

    def _say_cancelled(self, bus: Bus, job: Job) -> None:
        token = self._keyring.job(job.id).get("k1")
        if token is not None:
            topic = topics.job(job.id)
            body = self._producer.job_event(job.id, job.attempt, "cancelled", {"reason": job.detail or ""})
            bus.publish(topic, seal(body, token=token, use=USE_JOB, scope=job.id, topic=topic))

    def _sealed(self, kind: str, generation: int, data: Mapping[str, object], topic: str) -> bytes:
        body = self._producer.card(kind, generation, data)
        return seal(body, token=self._token, use=USE_CARD, scope=self._scope, topic=topic)


def card(job: Job) -> dict[str, object]:
    """The retained card of a job: for viewers, nothing is decided on it."""
    shown = ("title", "session", "state", "attempt", "result", "verdict", "detail", "updated_at")
    return {"job": job.id, "late": bool(job.late), **{name: getattr(job, name) for name in shown}}
