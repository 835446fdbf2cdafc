"""Cards on the broker: which are published, which are cleared, and which are remembered for how long."""

from dataclasses import replace

from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.published_state import PublishedState
from tests.support.desk import Desk
from tests.support.paper_bus import Paper

DAY_MS = 86_400_000


def ended_jobs(desk: Desk, count: int, at: int) -> None:
    desk.session()
    row = desk.job()
    jobs.cancel(desk.mam, row.id)
    with desk.mam.registry.transaction() as tx:
        for number in range(count):
            tx.put(replace(row, id=f"job-{number:08d}", state="cancelled", updated_at=at, ended_at=at))
        tx.connection.execute("DELETE FROM jobs WHERE updated_at > ?", (at,))


def cards(desk: Desk) -> PublishedState:
    return PublishedState(b"k" * 32, desk.keyring, "fp")


def test_a_start_publishes_no_card_of_jobs_that_ended_long_ago(desk: Desk) -> None:
    ended_jobs(desk, 20, desk.clock - 10 * DAY_MS)
    bus, shown = Paper(), cards(desk)

    with desk.mam.registry.view() as view:
        shown.start(bus, view)
        shown.refresh(bus, view)

    assert bus.sent == []


def test_a_card_that_expired_is_cleared_once(desk: Desk) -> None:
    ended_jobs(desk, 20, desk.clock - 2 * DAY_MS)
    bus, shown = Paper(), cards(desk)

    with desk.mam.registry.view() as view:
        for _ in range(3):
            shown.expire(bus, view, desk.clock)

    assert len(bus.sent) == 20


def test_a_card_that_was_cleared_is_remembered_for_as_long_as_it_is_looked_at(desk: Desk) -> None:
    ended_jobs(desk, 20, desk.clock - 2 * DAY_MS)
    shown = cards(desk)

    with desk.mam.registry.view() as view:
        shown.expire(Paper(), view, desk.clock)
        shown.expire(Paper(), view, desk.clock + 10 * DAY_MS)

    assert shown._cleared == set()
