"""What the monitor has to tell runners: orders, sent again until confirmed; settlings, sent once."""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

from mam.broker.bus.protocol import Bus
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import Producer, now_ms
from mam.broker.envelope.signing import USE_COMMAND, seal
from mam.broker.host.waiting import pause_s
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.messaging.inbox import Settling
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, Attempt, Job, OutboxMessage

_log = logging.getLogger("mam.outbox")

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 15.0
SETTLED_A_MESSAGE = 500
SAY_KEPT_MS = 3000  # less than `agent send` waits beyond its limit


class Outbox:
    """
    Sends the messages that wait for runners, again and again until each is confirmed.

    A runner may get a message twice, and must act on it once. What is no longer wanted is not sent.
    """

    def __init__(self, keyring: Keyring, deliverable_ms: Callable[[Job, Attempt], float]) -> None:
        """*deliverable_ms* says how long a prompt is still wanted: a copy of it may wait in a runner's socket."""
        self._keyring = keyring
        self._deliverable_ms = deliverable_ms
        self._producer = Producer("monitor")
        self._due: dict[str, tuple[int, float]] = {}

    def relay(self, bus: Bus | None, view: View, now: float) -> list[OutboxMessage]:
        """Send every order that is due; return those that have become pointless and may be dropped."""
        pointless = []
        orders = view.outbox()
        waiting = {order.id for order in orders}
        self._due = {order_id: due for order_id, due in self._due.items() if order_id in waiting}
        for order in orders:
            if not self._still_wanted(view, order):
                pointless.append(order)
                continue
            tries, due = self._due.get(order.id, (0, 0.0))
            if now < due or bus is None:
                continue
            if self._send(bus, order.session, order.kind, self._data(view, order), order.job, order.attempt):
                again_s = pause_s(tries + 1, first_s=FIRST_RETRY_S, last_s=LAST_RETRY_S)
                self._due[order.id] = (tries + 1, now + again_s)
        return pointless

    def _data(self, view: View, order: OutboxMessage) -> dict[str, object]:
        """What an order says on the wire; what is to be typed also until when, since a runner may be stopped."""
        data: dict[str, object] = json.loads(order.data)
        if order.kind == "say":
            data["expires_at"] = order.created_at + json.loads(order.data)["deliver_within_s"] * 1000
        job, attempt = view.job(order.job), view.attempt(order.job, order.attempt)
        if order.kind == "dispatch" and job is not None and attempt is not None:
            data["expires_at"] = max(0, now_ms() + round(self._deliverable_ms(job, attempt)))
        return data

    def hurry(self) -> None:
        """Make orders due at once: the broker, or a runner, has just come back."""
        self._due = {}

    def forget(self, order: OutboxMessage) -> None:
        self._due.pop(order.id, None)

    def settle(self, bus: Bus | None, settlings: Sequence[Settling]) -> None:
        """Tell each session's runner which of its messages are recorded. Lost ones are repeated with their event."""
        by_session: dict[str, list[dict[str, str]]] = defaultdict(list)
        for item in settlings:
            if item.session and item.event_id:
                by_session[item.session].append({"id": item.event_id, "outcome": item.outcome})
        for session, items in by_session.items():
            for start in range(0, len(items), SETTLED_A_MESSAGE):
                self._send(bus, session, "settled", {"items": items[start : start + SETTLED_A_MESSAGE]}, None, 0)

    def _send(
        self, bus: Bus | None, session: str, kind: str, data: dict[str, object], job: str | None, attempt: int
    ) -> bool:
        token = self._keyring.session(session).get("k1")
        if token is None or bus is None:
            return False
        topic = topics.inbox(session)
        body = self._producer.session_message(session, kind, data, job=job, attempt=attempt)
        try:
            return bus.publish(topic, seal(body, token=token, use=USE_COMMAND, scope=session, topic=topic))
        except ValueError as error:
            _log.error("an order of kind %s cannot be sent: %s", kind, error)
            return False

    @staticmethod
    def _still_wanted(view: View, order: OutboxMessage) -> bool:
        session = view.session(order.session)
        if session is None:
            return False
        if order.kind == "dispatch":
            job = view.job(order.job)
            return job is not None and job.state in OPEN and job.attempt == order.attempt
        if order.kind == "say":
            kept_ms = SAY_KEPT_MS + json.loads(order.data)["deliver_within_s"] * 1000
            if now_ms() - order.created_at > kept_ms:
                return False  # its sender was told that it did not arrive
        # Bound to one life of the session: the next one has nothing to interrupt.
        return session.status in LIVE and session.incarnation == order.incarnation
