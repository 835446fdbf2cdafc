"""Exclusive use of agents."""

from tests.mutants.mutant import Mutant

_FILE, _TESTS = "control_plane/leases/leases.py", ("tests/control_plane/leases/test_leases.py",)


def _row(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"lease-{name}", rule, _FILE, old, new, _TESTS)


ROWS = (
    _row(
        "exclusive",
        "M83: what one holder has is granted to no other",
        "taken = set(held)",
        "taken: set[str] = set()",
    ),
    _row(
        "all-or-none",
        "M83: a ticket gets all that it wants or nothing",
        "if not taken.intersection(names) and len(chosen) == ticket.count:",
        "if not taken.issuperset(names) and len(chosen) == ticket.count:",
    ),
    _row("count", "a ticket gets as many of a pool as it wants", " and len(chosen) == ticket.count:", ":"),
    _row(
        "fair",
        "M84: an older ticket keeps what it wants from younger ones",
        "taken.update(names, chosen)  #",
        "taken.update(grants[-1].resources if grants else ())  #",
    ),
    _row(
        "priority",
        "the more urgent ticket comes first",
        "for ticket in sorted(waiting, key=lambda each: (-_urgency(each, now), each.seq)):",
        "for ticket in sorted(waiting, key=lambda each: each.seq):",
    ),
    _row(
        "order",
        "of equally urgent tickets the older one comes first",
        "for ticket in sorted(waiting, key=lambda each: (-_urgency(each, now), each.seq)):",
        "for ticket in sorted(waiting, key=lambda each: (-_urgency(each, now), -each.seq)):",
    ),
    _row(
        "aging",
        "M84: waiting makes a ticket more urgent",
        "return ticket.priority + max(0, now - ticket.asked_at) // AGING_MS",
        "return ticket.priority",
    ),
    _row(
        "place-kept",
        "the same ticket twice keeps its place",
        "if known is not None:\n        return known",
        "if known is not None:\n        tx.drop(known)",
    ),
    _row(
        "token",
        "each grant has a higher token",
        "(before.token + 1, before.usual_s) if before else (1, None)",
        "(before.token, before.usual_s) if before else (1, None)",
    ),
    _row(
        "fence-token",
        "a token of an earlier grant is refused",
        "lease.holder != holder or lease.token != token:",
        "lease.holder != holder:",
    ),
    _row(
        "fence-holder",
        "a lease of another holder is refused",
        "lease is None or lease.holder != holder or lease.token != token:",
        "lease is None or lease.token != token:",
    ),
    _row(
        "lost-all",
        "a ticket that lost one resource holds none",
        "if lease is None or lease.holder != ticket.holder:\n            return None",
        "if lease is None or lease.holder != ticket.holder:\n            continue",
    ),
    _row(
        "release-own",
        "M85: only one's own lease is given back",
        "if lease is not None and lease.holder == ticket.holder:",
        "if lease is not None:",
    ),
    _row(
        "release-next",
        "M85: what is given back goes to the next one",
        "    tx.drop(ticket)\n    settle(tx)\n",
        "    tx.drop(ticket)\n",
    ),
    _row(
        "release-others",
        "M90: giving back what one holder has leaves the others'",
        '"WHERE holder = ? AND id <> ?", (holder, but)',
        '"WHERE holder <> ? AND id <> ?", ("", but)',
    ),
    _row(
        "expiry",
        "M85: a holder that gives no sign for a TTL loses its lease",
        "> ttl_s\n",
        "> ttl_s * 1000\n",
    ),
    _row(
        "expiry-sign",
        "a holder that gives a sign keeps its lease",
        "at if known == sign else now)",
        "at)",
    ),
    _row(
        "expire-renewed",
        "what was renewed meanwhile stays",
        "if lease is not None and replace(lease, usual_s=seen.usual_s) == seen:",
        "if lease is not None:",
    ),
    _row(
        "expire-next",
        "M85: what was freed goes to the next one",
        "                tx.drop(ticket)\n        settle(tx)\n",
        "                tx.drop(ticket)\n",
    ),
    _row(
        "expire-rest",
        "a ticket that lost its leases is dropped",
        "if tokens(tx, ticket.id) is None:",
        "if False:",
    ),
    _row(
        "usual",
        "how long a hold usually lasts follows the newest ones",
        "(1 - SHARE) * lease.usual_s + SHARE * held_s",
        "lease.usual_s",
    ),
    _row(
        "queue-order",
        "M84: the queue is shown in the order in which it is served",
        "order = sorted(view.waiting(), key=lambda each: (-_urgency(each, now), each.seq))",
        "order = list(view.waiting())",
    ),
)
