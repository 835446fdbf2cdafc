"""mam queue"""

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.cli.base import add_root, emit, verb
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import tables
from mam.control_plane.leases import leases
from mam.control_plane.loops import locks as loop_locks


def run(words: list[str]) -> int:
    args = verb(words, 1, "mam queue", "who has which agent for a loop, and who waits for whom", add_root)
    mam, now = Mam.open(root=args.root), now_ms()
    with mam.registry.view() as view:
        held, waiting = view.leases(), leases.queue(view, now)
    gone = {lease.resource: not loop_locks.runs(mam, lease.holder or "") for lease in held}
    rows = [
        [
            lease.resource,
            lease.holder,
            tables.ago(lease.since or now, now),
            "interrupted" if gone[lease.resource] else "",
        ]
        for lease in held
    ]
    lines = [tables.table(("RESOURCE", "HOLDER", "SINCE", ""), rows)] if rows else ["nothing is held"]
    for place in waiting:
        waits = ", ".join(f"{name} of {holder}" for name, holder in place.waits_for.items()) or "its turn"
        expected = f", about {place.expected_s:.0f} s more" if place.expected_s is not None else ""
        since = tables.ago(place.ticket.asked_at, now)
        lines.append(f"{place.ticket.holder} waits since {since} for {waits}, {place.ahead} ahead{expected}")
    data = {
        "held": [
            {
                "resource": lease.resource,
                "holder": lease.holder,
                "since": lease.since,
                "interrupted": gone[lease.resource],
            }
            for lease in held
        ],
        "waiting": [
            {
                "holder": place.ticket.holder,
                "since": place.ticket.asked_at,
                "waits_for": place.waits_for,
                "ahead": place.ahead,
                "expected_s": place.expected_s,
            }
            for place in waiting
        ],
    }
    emit(args, data, "\n".join(lines))
    return 0
