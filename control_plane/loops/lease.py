"""The reviewers of one round, for one loop alone: asked for in order, kept alive while they are held, given back."""

import time
from collections.abc import Sequence

from mam.broker.envelope.payloads import now_ms
from mam.broker.host.progress import Progress
from mam.control_plane.control_root.context import Mam
from mam.control_plane.leases import leases

LOOK_S = 1.0  # how often a waiting loop looks whether it is its turn, where nothing woke it


def waits(mam: Mam, ticket_id: str) -> bool:
    """Whether it is not a ticket's turn yet. It only reads, so that waiting writes nothing."""
    with mam.registry.view() as view:
        ticket = view.ticket(ticket_id)
    return ticket is not None and ticket.granted_at is None


class ReviewerLease:
    """
    The hold of one loop on its reviewers, round by round.

    All reviewers of a round are held, or none. A loop that waits keeps its place in the queue.
    """

    def __init__(self, mam: Mam, loop_id: str, priority: int, say: Progress) -> None:
        self._mam, self._loop_id, self._priority, self._say = mam, loop_id, priority, say
        self._ttl_s = mam.settings.seconds("MAM_LEASE_TTL_S", 60)
        self._ticket = ""
        self._asked_at = self._due = self._renew_at = 0.0
        self.tokens: dict[str, int] = {}  # resource to token, while held

    @property
    def waited_s(self) -> float:
        """How long the ticket of now waits already; 0 while it is granted."""
        return 0.0 if self.tokens or not self._ticket else time.monotonic() - self._asked_at

    def take_over(self, number: int | None) -> None:
        """Give back what a dead process of this loop still holds or waits for, but for the round that goes on."""
        with self._mam.registry.transaction() as tx:
            leases.release_all(tx, self._loop_id, but=f"{self._loop_id}/r{number}")

    def hold(self, number: int, reviewers: Sequence[str]) -> bool:
        """Whether the round's reviewers are this loop's alone at the moment; asks for them where they are not."""
        if self._ticket and time.monotonic() < self._due:
            return bool(self.tokens)
        ticket = f"{self._loop_id}/r{number}"
        first = self._ticket != ticket
        if not first and time.monotonic() < self._renew_at and waits(self._mam, ticket):
            self._due = time.monotonic() + LOOK_S
            return False
        with self._mam.registry.transaction() as tx:
            if first:
                leases.ask(
                    tx,
                    ticket,
                    self._loop_id,
                    [leases.session(name) for name in reviewers],
                    priority=self._priority,
                    ttl_s=self._ttl_s,
                )
            mine = leases.renew(tx, ticket)
            lost = mine is None and (known := tx.ticket(ticket)) is not None and known.granted_at is not None
            if lost or tx.ticket(ticket) is None:
                leases.release(tx, ticket)  # it was taken away: back to the end of the queue
                self._ticket = ""
                self.tokens = {}
                return False
        if first:
            self._ticket, self._asked_at = ticket, time.monotonic()
            if mine is None:
                self._say(f"waiting for {', '.join(reviewers)}: {self._holders()}")
        self.tokens = mine or {}
        self._renew_at = time.monotonic() + self._ttl_s / 3
        self._due = self._renew_at if mine else time.monotonic() + LOOK_S
        return bool(self.tokens)

    def _holders(self) -> str:
        with self._mam.registry.view() as view:
            place = next((each for each in leases.queue(view, now_ms()) if each.ticket.holder == self._loop_id), None)
        if place is None:
            return "in a moment"
        held = [f"{resource.removeprefix('session:')} is held by {who}" for resource, who in place.waits_for.items()]
        expected = f", about {place.expected_s:.0f} s" if place.expected_s is not None else ""
        return f"{', '.join(held) or 'an earlier loop comes first'}, {place.ahead} ahead{expected} (mam queue)"

    def lost(self) -> None:
        """What was held was taken away: the next `hold` asks anew."""
        self.tokens, self._due = {}, 0.0

    def given_back(self) -> None:
        """What was held went back with the checkpoint that left the review (`loops.save`)."""
        self._ticket, self.tokens = "", {}
