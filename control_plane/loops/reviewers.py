"""Which agents of a pool review: all that are free, or a number of them in the order of the queue."""

import json
import time
from collections import Counter
from typing import NamedTuple

from mam.broker.errors import Busy, Usage
from mam.broker.host.progress import Progress, silent
from mam.broker.host.waiting import wait_until
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.leases import leases
from mam.control_plane.loops.lease import waits
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE


def pool_of(view: View, role: str = "reviewer") -> list[str]:
    """Every living session of a pool: a pool is a role, and a session may have several."""
    return [s.name for s in view.sessions() if s.status in LIVE and role in s.role.split(",")]


def free_of(view: View, role: str = "reviewer") -> list[str]:
    """Those of a pool that no loop has, and none waits for: taking more would seize what is another loop's."""
    taken = {lease.resource for lease in view.leases()}
    for ticket in view.waiting():
        taken.update(json.loads(ticket.names))
    return [name for name in pool_of(view, role) if leases.session(name) not in taken]


def pick(
    mam: Mam,
    loop_id: str,
    role: str,
    count: int,
    *,
    without: str | None,
    priority: int = 0,
    wait_s: float,
    say: Progress,
) -> list[str]:
    """
    Return *count* reviewers of a pool, the first that are free, in the order of the queue; never *without*.

    Among the free ones those go first that the fewest open loops count on. Raises Usage, Busy.
    """
    if count < 1:
        raise Usage(what=f"--pick {count} picks no reviewer", hint="--pick 2")
    with mam.registry.view() as view:
        wanted = Counter(name for loop in view.loops(only_open=True) for name in json.loads(loop.reviewers))
        pool = sorted((name for name in pool_of(view, role) if name != without), key=lambda name: wanted[name])
    if len(pool) < count:
        what = f"the pool {role} has {len(pool)} agents, not {count}"
        raise Usage(what=what, hint=f"mam agent create NAME --agent KIND --role {role}")
    lease_s = mam.settings.seconds("MAM_LEASE_TTL_S", 60)
    ticket, deadline = f"{loop_id}/pick", time.monotonic() + wait_s
    resources = [leases.session(name) for name in pool]
    try:
        while True:
            with mam.registry.transaction() as tx:
                leases.ask(tx, ticket, loop_id, [], pool=resources, count=count, priority=priority, ttl_s=lease_s)
                mine = leases.renew(tx, ticket)
            if mine is not None:
                return [name.removeprefix("session:") for name in mine]
            monitor_process.ensure(mam, say=say)  # it takes back what dead holders have
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise Busy(what=f"the pool {role}", holder="other loops", waited_s=wait_s)
            wait_until(lambda: not waits(mam, ticket), min(left_s, lease_s / 3), every_s=0.2)
    finally:
        with mam.registry.transaction() as tx:
            leases.release(tx, ticket)  # the loop asks for them again, by name, when there is something to review


class PoolChoice(NamedTuple):
    """Whom of a pool (a role) a loop wants: any *pick* of them in the queue's order; None: all that are free."""

    role: str = "reviewer"
    pick: int | None = None


def choose(
    mam: Mam, loop_id: str, choice: PoolChoice, *, without: str | None, priority: int = 0, say: Progress = silent
) -> list[str]:
    """
    The reviewers of a loop that names none; never *without*, its creator. Waits where *choice* picks a number.

    Raises Usage where the pool cannot give them, Busy after MAM_LOOP_WAIT_S.
    """
    if choice.pick is not None:
        wait_s = mam.settings.seconds("MAM_LOOP_WAIT_S", 3600)
        return pick(mam, loop_id, choice.role, choice.pick, without=without, priority=priority, wait_s=wait_s, say=say)
    with mam.registry.view() as view:
        free = [name for name in free_of(view, choice.role) if name != without]
    if not free:
        hint = "`mam queue` shows who has them; --reviewers A,B waits for them"
        raise Usage(what=f"no agent of the pool {choice.role} is free", hint=hint)
    return free
