"""mam queue"""

from mam.control_plane.cli.base import add_root, emit, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import queue, tables


def run(words: list[str]) -> int:
    args = verb(words, 1, "mam queue", "who has which agent for a loop, and who waits for whom", add_root)
    seen = queue.take(Mam.open(root=args.root))
    rows = [
        [lease.resource, lease.holder, tables.ago(lease.since or seen.at, seen.at), "interrupted" if gone else ""]
        for lease, gone in seen.held
    ]
    lines = [shown_table(("RESOURCE", "HOLDER", "SINCE", ""), rows)] if rows else ["nothing is held"]
    for place in seen.waiting:
        waits = ", ".join(f"{name} of {holder}" for name, holder in place.waits_for.items()) or "its turn"
        expected = f", about {tables.span(place.expected_s)} more" if place.expected_s is not None else ""
        since = tables.ago(place.ticket.asked_at, seen.at)
        lines.append(f"{place.ticket.holder} waits since {since} for {waits}, {place.ahead} ahead{expected}")
    emit(args, seen.to_json(), "\n".join(lines))
    return 0
