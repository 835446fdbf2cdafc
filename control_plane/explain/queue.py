"""What `mam queue` shows: who has which agent for a loop, who waits for whom, and for how long."""

from typing import Any, NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.control_root.context import Mam
from mam.control_plane.leases import leases
from mam.control_plane.leases.leases import QueuePlace
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.registry.records import Lease


class HeldLease(NamedTuple):
    """A lease, and whether its holder is interrupted: no process carries that loop out at this moment."""

    lease: Lease
    interrupted: bool


class Queue(NamedTuple):
    """Leases and waiting tickets at one moment (*at*, ms since 1970), the latter in the order of their service."""

    at: int
    held: list[HeldLease]
    waiting: list[QueuePlace]

    def to_json(self) -> dict[str, Any]:
        """As `mam queue --json` prints it."""
        return {
            "held": [
                {"resource": lease.resource, "holder": lease.holder, "since": lease.since, "interrupted": interrupted}
                for lease, interrupted in self.held
            ],
            "waiting": [
                {
                    "holder": place.ticket.holder,
                    "since": place.ticket.asked_at,
                    "waits_for": place.waits_for,
                    "ahead": place.ahead,
                    "expected_s": place.expected_s,
                }
                for place in self.waiting
            ],
        }


def take(mam: Mam) -> Queue:
    """The queue of this moment; nothing is changed. Raises what Registry.view raises."""
    at = now_ms()
    with mam.registry.view() as view:
        held, waiting = view.leases(), leases.queue(view, at)
    return Queue(at, [HeldLease(each, not loop_locks.runs(mam, each.holder or "")) for each in held], waiting)
