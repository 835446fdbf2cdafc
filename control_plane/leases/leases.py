"""
Exclusive use of agents, in the order of the requests. Standard library only.

A ticket asks for several resources and gets all of them or none, so two holders cannot wait for each other. A ticket
that waits keeps its resources from younger tickets, so no ticket waits for ever. A lease ends when its holder gives it
back, or when the monitor sees no renewal for a whole TTL on its own clock. Its token is then refused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Lease, Ticket
from mam.control_plane.registry.transactions import Registry, Transaction

AGING_MS = 600_000  # ten minutes of waiting count as one step of priority
SHARE = 0.3  # the weight of the newest lease in the usual time


class Fenced(MamError):
    """The caller's lease has ended, so its protected write was refused."""

    resource: str
    holder: str
    token: int

    code = "fenced"
    message = "{resource} is not held by {holder} any more (its token is {token})"
    remedy_text = "ask for it again: `mam queue` shows who has it"


def session(name: str) -> str:
    """Return the name of the resource that stands for an agent."""
    return f"session:{name}"


class Grant(NamedTuple):
    """A ticket that gets its resources, and which ones."""

    ticket: Ticket
    resources: tuple[str, ...]


def assign(waiting: Sequence[Ticket], held: Mapping[str, str], now: int) -> list[Grant]:
    """
    Return the tickets that can be granted now. A pure function: all callers get the same answer.

    Args:
        held: The holder of each resource that is taken.
    """
    taken = set(held)
    grants = []
    for ticket in sorted(waiting, key=lambda each: (-_urgency(each, now), each.seq)):
        names = tuple(json.loads(ticket.names))
        free = [each for each in json.loads(ticket.pool) if each not in taken and each not in names]
        chosen = tuple(free[: ticket.count])
        if not taken.intersection(names) and len(chosen) == ticket.count:
            grants.append(Grant(ticket, (*names, *chosen)))
        taken.update(names, chosen)  # granted, or kept free for this ticket against all behind it
    return grants


def _urgency(ticket: Ticket, now: int) -> int:
    return ticket.priority + max(0, now - ticket.asked_at) // AGING_MS


def ask(
    tx: Transaction,
    ticket_id: str,
    holder: str,
    names: Sequence[str],
    *,
    pool: Sequence[str] = (),
    count: int = 0,
    priority: int = 0,
    ttl_s: float,
) -> Ticket:
    """Take a place in the queue. A ticket that is there already keeps its place. It may be granted at once."""
    known = tx.ticket(ticket_id)
    if known is not None:
        return known
    seq = int(tx.connection.execute("SELECT coalesce(max(seq), 0) + 1 FROM tickets").fetchone()[0])
    wanted = (json.dumps(sorted(names)), json.dumps(list(pool)), count)
    tx.put(Ticket(ticket_id, seq, holder, *wanted, priority, ttl_s, now_ms()))
    settle(tx)
    found = tx.ticket(ticket_id)
    assert found is not None
    return found


def settle(tx: Transaction) -> list[Grant]:
    """Grant all tickets that can be granted now, and return the grants."""
    now = now_ms()
    held = {lease.resource: lease.holder or "" for lease in tx.leases()}
    grants = assign(tx.waiting(), held, now)
    for ticket, resources in grants:
        for resource in resources:
            before = tx.lease(resource)
            token, usual_s = (before.token + 1, before.usual_s) if before else (1, None)
            tx.put(Lease(resource, ticket.holder, token, 0, ticket.ttl_s, now, usual_s))
        tx.put(replace(ticket, granted_at=now, granted=json.dumps(list(resources))))
    return grants


def tokens(view: View, ticket_id: str) -> dict[str, int] | None:
    """Return the token of each resource of a ticket; None where it waits, or has lost one of them."""
    ticket = view.ticket(ticket_id)
    if ticket is None or ticket.granted is None:
        return None
    found = {}
    for resource in json.loads(ticket.granted):
        lease = view.lease(resource)
        if lease is None or lease.holder != ticket.holder:
            return None
        found[resource] = lease.token
    return found


def check(tx: View, holder: str, mine: Mapping[str, int]) -> None:
    """Raise Fenced where a lease has ended. It must be called inside the transaction of the protected write."""
    for resource, token in mine.items():
        lease = tx.lease(resource)
        if lease is None or lease.holder != holder or lease.token != token:
            raise Fenced(resource=resource, holder=holder, token=token)


def renew(tx: Transaction, ticket_id: str) -> dict[str, int] | None:
    """
    Note that a ticket's holder lives, while it waits as well as while it holds something.

    Returns the token of each resource; None while the ticket waits, and where it has lost a resource.
    """
    ticket = tx.ticket(ticket_id)
    if ticket is None:
        return None
    tx.observe(ticket, renewals=ticket.renewals + 1)
    mine = tokens(tx, ticket_id)
    for resource in mine or ():
        lease = tx.lease(resource)
        assert lease is not None
        tx.observe(lease, renewals=lease.renewals + 1)
    return mine


def release(tx: Transaction, ticket_id: str) -> None:
    """Give back what a ticket holds, or its place in the queue. Releasing twice is harmless."""
    ticket = tx.ticket(ticket_id)
    if ticket is None:
        return
    for resource in json.loads(ticket.granted or "[]"):
        lease = tx.lease(resource)
        if lease is not None and lease.holder == ticket.holder:
            tx.put(_freed(lease))
    tx.drop(ticket)
    settle(tx)


def release_all(tx: Transaction, holder: str, *, but: str = "") -> None:
    """Give back all that *holder* has and waits for, whichever process took it, except the ticket *but*."""
    for ticket in tx.rows(Ticket, "WHERE holder = ? AND id <> ?", (holder, but)):
        release(tx, ticket.id)


def _freed(lease: Lease) -> Lease:
    """Return the lease without a holder. Its token stays, so that the next grant gets a higher one."""
    held_s = (now_ms() - (lease.since or now_ms())) / 1000
    usual_s = held_s if lease.usual_s is None else (1 - SHARE) * lease.usual_s + SHARE * held_s
    return replace(lease, holder=None, since=None, usual_s=max(0.0, usual_s))


class Expired(NamedTuple):
    """The leases and the places in the queue that were not renewed for a TTL."""

    leases: list[Lease]
    tickets: list[Ticket]


class Expiry:
    """Finds the leases that were not renewed for a TTL, on this process's own clock. For the monitor."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    def look(self, view: View) -> Expired:
        """Return what has expired since the calls before. A change of the wall clock has no effect."""
        now, before, self._seen = self._clock(), self._seen, {}

        def stale(name: str, sign: tuple[int, int], ttl_s: float) -> bool:
            known, at = before.get(name, (sign, now))
            self._seen[name] = (sign, at if known == sign else now)
            return now - self._seen[name][1] > ttl_s

        return Expired(
            [each for each in view.leases() if stale(each.resource, (each.token, each.renewals), each.ttl_s)],
            [each for each in view.waiting() if stale(f"ticket {each.id}", (each.seq, each.renewals), each.ttl_s)],
        )


def expire(registry: Registry, over: Expired) -> list[str]:
    """Free what has expired, but for what was renewed meanwhile. Returns a description of each that was freed."""
    gone = []
    with registry.transaction() as tx:
        for seen in over.leases:
            lease = tx.lease(seen.resource)
            if lease is not None and replace(lease, usual_s=seen.usual_s) == seen:
                tx.put(_freed(lease))
                gone.append(f"{lease.resource} of {lease.holder}")
        for waited in over.tickets:
            ticket = tx.ticket(waited.id)
            if ticket == waited:
                tx.drop(ticket)
                gone.append(f"the place of {ticket.holder} in the queue")
        for ticket in tx.rows(Ticket, "WHERE granted_at IS NOT NULL"):
            if tokens(tx, ticket.id) is None:
                tx.drop(ticket)
        settle(tx)
    return gone


class QueuePlace(NamedTuple):
    """One ticket that waits. *waits_for* names the holder of each resource; *expected_s* is None if unknown."""

    ticket: Ticket
    waits_for: dict[str, str]
    ahead: int
    expected_s: float | None


def queue(view: View, now: int) -> list[QueuePlace]:
    """Return the tickets that wait, in the order in which they will be served."""
    held = {lease.resource: lease for lease in view.leases()}
    found: list[QueuePlace] = []
    order = sorted(view.waiting(), key=lambda each: (-_urgency(each, now), each.seq))
    for ahead, ticket in enumerate(order):
        wanted = [*json.loads(ticket.names), *json.loads(ticket.pool)]
        waits_for = {name: held[name].holder or "" for name in wanted if name in held}
        left = [_left_s(held[name], now) for name in waits_for]
        known = [each for each in left if each is not None]
        expected_s = max(known) + ahead * _usual_s(view, wanted) if known else None
        found.append(QueuePlace(ticket, waits_for, ahead, expected_s))
    return found


def _left_s(lease: Lease, now: int) -> float | None:
    if lease.usual_s is None or lease.since is None:
        return None
    return max(0.0, lease.usual_s - (now - lease.since) / 1000)


def _usual_s(view: View, names: Sequence[str]) -> float:
    known = [lease.usual_s or 0.0 for name in names if (lease := view.lease(name)) is not None]
    return max(known, default=0.0)
