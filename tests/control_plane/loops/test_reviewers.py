"""Who of a pool reviews: never the writer, never too many at one, and nobody writes to wait."""

import json
from dataclasses import replace

import pytest

from mam.broker.errors import Busy, Usage
from mam.control_plane.control_root.context import Mam
from mam.control_plane.leases import leases
from mam.control_plane.loops import reviewers as loop_reviewers
from mam.control_plane.loops.lease import ReviewerLease
from mam.control_plane.sessions import lifecycle
from tests.control_plane.loops.test_review_trees import a_loop
from tests.support.desk import Desk


@pytest.fixture
def mam(desk: Desk) -> Mam:
    """A control root with four reviewers, in which nobody starts a monitor."""
    for name in ("a", "b", "c", "d"):
        desk.session(name, role="creator,reviewer")
    values = {**desk.mam.settings.values, "MAM_NO_SUBSCRIBER_DAEMON": "1"}
    return Mam(desk.mam.settings._replace(values=values), desk.mam.layout, by="test")


def pick(mam: Mam, count: int, *, without: str | None = None, wait_s: float = 5.0) -> list[str]:
    return loop_reviewers.pick(mam, "loop-1", "reviewer", count, without=without, wait_s=wait_s, say=print)


def hold(mam: Mam, *names: str) -> None:
    with mam.registry.transaction() as tx:
        leases.ask(tx, "other/r1", "other", [leases.session(name) for name in names], ttl_s=60)


@pytest.mark.req("M86")
def test_whoever_writes_is_not_picked_to_review_it(mam: Mam) -> None:
    hold(mam, "c", "d")

    assert pick(mam, 1, without="a") == ["b"]


@pytest.mark.req("M101")
def test_a_reviewer_of_another_kind_joins_the_pool_and_keeps_its_conversation_when_it_is_stopped(
    desk: Desk, mam: Mam
) -> None:
    desk.session("e", agent="opencode", role="reviewer", conversation="ses_1")
    assert pick(mam, 5) == ["a", "b", "c", "d", "e"]

    lifecycle.stop(mam, "e")

    with mam.registry.view() as view:
        stopped = view.session("e")
        assert stopped is not None and "e" not in loop_reviewers.pool_of(view)
    assert (stopped.status, stopped.conversation) == ("stopped", "ses_1")


@pytest.mark.req("M86")
def test_free_is_who_lives_and_whom_no_loop_has_or_waits_for(mam: Mam) -> None:
    with mam.registry.transaction() as tx:
        gone = tx.session("d")
        assert gone is not None
        tx.put(replace(gone, status="ended"))
    hold(mam, "a")
    with mam.registry.transaction() as tx:
        leases.ask(tx, "next/r1", "next", [leases.session("a"), leases.session("b")], ttl_s=60)

    with mam.registry.view() as view:
        assert loop_reviewers.free_of(view) == ["c"]


@pytest.mark.req("M86")
def test_those_that_the_fewest_loops_count_on_are_picked_first(mam: Mam) -> None:
    with mam.registry.transaction() as tx:
        tx.put(replace(a_loop("loop-2"), reviewers=json.dumps(["a", "b"])))

    assert sorted(pick(mam, 2)) == ["c", "d"]


def test_the_priority_counts_in_the_queue_of_the_pool_too(mam: Mam) -> None:
    hold(mam, "a", "b", "c", "d")
    with pytest.raises(Busy), pytest.MonkeyPatch.context() as patch:
        places: list[int] = []

        def waits(mam: Mam, ticket: str) -> bool:
            places.append(priority_of(mam, ticket))
            return True

        patch.setattr(loop_reviewers, "waits", waits)
        loop_reviewers.pick(mam, "loop-1", "reviewer", 1, without=None, priority=7, wait_s=0.1, say=print)

    assert set(places) == {7}


def priority_of(mam: Mam, ticket_id: str) -> int:
    with mam.registry.view() as view:
        ticket = view.ticket(ticket_id)
    assert ticket is not None
    return ticket.priority


@pytest.mark.parametrize("count", [0, -1])
def test_nobody_or_less_is_no_number_of_reviewers(mam: Mam, count: int) -> None:
    with pytest.raises(Usage):
        pick(mam, count)


def renewals(mam: Mam) -> int:
    with mam.registry.view() as view:
        return int(view.connection.execute("SELECT coalesce(sum(renewals), 0) FROM tickets").fetchone()[0])


def test_who_waits_writes_only_to_say_that_it_lives(mam: Mam) -> None:
    hold(mam, "a", "b", "c", "d")
    lease = ReviewerLease(mam, "loop-1", 0, print)

    for _ in range(5):
        assert not lease.hold(1, ["a"])
        lease._due = 0.0  # a second later

    assert renewals(mam) == 1
    with pytest.raises(Busy):
        pick(mam, 1, wait_s=0.5)
    with mam.registry.transaction() as tx:
        leases.release(tx, "other/r1")
    lease._due = 0.0
    assert lease.hold(1, ["a"])


def test_a_place_that_was_taken_away_is_asked_for_again(mam: Mam) -> None:
    hold(mam, "a")
    lease = ReviewerLease(mam, "loop-1", 0, print)
    assert not lease.hold(1, ["a"])
    for ticket_id in ("loop-1/r1", "other/r1"):
        with mam.registry.transaction() as tx:
            leases.release(tx, ticket_id)

    held = []
    for _ in range(3):
        lease._due = 0.0
        held.append(lease.hold(1, ["a"]))

    assert held[-1] and lease.tokens


def test_who_was_picked_is_free_until_there_is_something_to_review(mam: Mam) -> None:
    pick(mam, 2)

    with mam.registry.view() as view:
        assert (view.leases(), view.waiting()) == ([], [])
        assert loop_reviewers.free_of(view) == ["a", "b", "c", "d"]


def test_who_has_its_reviewers_waits_no_more(mam: Mam) -> None:
    hold(mam, "a")
    lease = ReviewerLease(mam, "loop-1", 0, print)

    assert lease.waited_s == 0.0
    assert not lease.hold(1, ["a"]) and lease.waited_s > 0.0
    with mam.registry.transaction() as tx:
        leases.release(tx, "other/r1")
    lease._due = 0.0
    assert lease.hold(1, ["a"]) and lease.waited_s == 0.0


@pytest.mark.req("M82", "M85")
def test_the_next_process_of_a_loop_keeps_its_round_and_gives_back_what_the_dead_one_had_besides(mam: Mam) -> None:
    with mam.registry.transaction() as tx:
        for ticket_id, name in (("loop-1/r2", "a"), ("loop-1/pick", "b")):
            leases.ask(tx, ticket_id, "loop-1", [leases.session(name)], ttl_s=60)
    hold(mam, "c")
    lease = ReviewerLease(mam, "loop-1", 0, print)

    def held() -> dict[str, str | None]:
        with mam.registry.view() as view:
            return {each.resource.removeprefix("session:"): each.holder for each in view.leases()}

    lease.take_over(2)
    assert held() == {"a": "loop-1", "c": "other"}
    lease.take_over(None)
    assert held() == {"c": "other"}
