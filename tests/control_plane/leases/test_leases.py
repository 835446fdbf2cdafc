"""Exclusive use in order: all or nothing, no deadlock, nobody waits for ever, and a late holder is fenced."""

import json
import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.leases import leases
from mam.control_plane.leases.leases import Expiry, Fenced
from mam.control_plane.registry.records import Ticket
from tests.support.desk import Desk

A, B, C = (leases.session(name) for name in ("a", "b", "c"))


def ticket(seq: int, *names: str, priority: int = 0, pool: tuple[str, ...] = (), count: int = 0) -> Ticket:
    wanted = (json.dumps(sorted(names)), json.dumps(list(pool)), count)
    return Ticket(f"t{seq}", seq, f"loop-{seq}", *wanted, priority, 60.0, 0)


def granted(*waiting: Ticket, held: dict[str, str] | None = None, now: int = 0) -> dict[str, set[str]]:
    return {grant.ticket.id: set(grant.resources) for grant in leases.assign(waiting, held or {}, now)}


def ask(desk: Desk, holder: str, *names: str, ttl_s: float = 60.0) -> dict[str, int] | None:
    with desk.mam.registry.transaction() as tx:
        leases.ask(tx, f"{holder}/r1", holder, names, ttl_s=ttl_s)
        return leases.tokens(tx, f"{holder}/r1")


def release(desk: Desk, holder: str) -> None:
    with desk.mam.registry.transaction() as tx:
        leases.release(tx, f"{holder}/r1")


def holders(desk: Desk) -> dict[str, str | None]:
    with desk.mam.registry.view() as view:
        return {lease.resource: lease.holder for lease in view.leases()}


class TestOrder:
    @pytest.mark.req("M83", "M88")
    def test_disjoint_wishes_are_granted_at_once_and_overlapping_ones_in_turn(self) -> None:
        assert granted(ticket(1, A), ticket(2, B), ticket(3, A, C)) == {"t1": {A}, "t2": {B}}

    def test_a_wish_is_granted_whole_or_not_at_all(self) -> None:
        assert granted(ticket(1, A, B), held={A: "other"}) == {}

    @pytest.mark.req("M84")
    def test_an_older_wish_that_waits_keeps_what_it_wants_from_younger_ones(self) -> None:
        assert granted(ticket(1, A, B), ticket(2, B), held={A: "other"}) == {}
        assert granted(ticket(1, A, B), ticket(2, C), held={A: "other"}) == {"t2": {C}}

    def test_priority_goes_first_and_waiting_is_worth_some(self) -> None:
        low, high = ticket(1, A), ticket(2, A, priority=1)

        assert granted(low, high, now=0) == {"t2": {A}}
        assert granted(low, replace(high, asked_at=2 * leases.AGING_MS), now=2 * leases.AGING_MS) == {"t1": {A}}

    def test_a_clock_that_was_set_back_takes_no_priority_away(self) -> None:
        future = replace(ticket(1, A), asked_at=10 * leases.AGING_MS)

        assert granted(future, ticket(2, A), now=0) == {"t1": {A}}

    @pytest.mark.req("M86")
    def test_any_of_a_pool_takes_who_is_free(self) -> None:
        assert granted(ticket(1, pool=(A, B, C), count=2), held={A: "other"}) == {"t1": {B, C}}
        assert granted(ticket(1, pool=(A, B), count=2), held={A: "other"}) == {}

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def test_whatever_is_asked_nothing_is_given_twice_and_everybody_is_served(self, data: st.DataObject) -> None:
        resources = [f"session:r{n}" for n in range(5)]
        waiting = [
            ticket(
                seq, *data.draw(st.sets(st.sampled_from(resources), min_size=1)), priority=data.draw(st.integers(0, 3))
            )
            for seq in range(data.draw(st.integers(1, 12)))
        ]
        held: dict[str, str] = {}
        served: set[str] = set()
        for _ in range(len(waiting)):
            for grant in leases.assign(waiting, held, 0):
                assert not held.keys() & set(grant.resources)
                held |= dict.fromkeys(grant.resources, grant.ticket.id)
                served.add(grant.ticket.id)
                waiting.remove(grant.ticket)
            first = next(iter(held.values()))
            held = {name: who for name, who in held.items() if who != first}
        assert not waiting and len(served) > 0


class TestHolding:
    @pytest.mark.req("M83", "M85")
    def test_the_next_in_line_gets_what_is_given_back(self, desk: Desk) -> None:
        assert ask(desk, "one", A) == {A: 1}
        assert ask(desk, "two", A) is None

        release(desk, "one")

        assert holders(desk) == {A: "two"}

    def test_asking_twice_keeps_the_place_and_giving_back_twice_is_harmless(self, desk: Desk) -> None:
        assert ask(desk, "one", A) == ask(desk, "one", A) == {A: 1}
        release(desk, "one")
        release(desk, "one")

        assert holders(desk) == {}

    @pytest.mark.req("M85")
    def test_a_holder_that_gives_no_sign_for_its_ttl_loses_it_on_the_lookers_own_clock(self, desk: Desk) -> None:
        ask(desk, "one", A, ttl_s=10)
        ask(desk, "two", A, ttl_s=10)
        clock = [0.0]
        expiry = Expiry(lambda: clock[0])

        def look() -> list[str]:
            with desk.mam.registry.transaction() as tx:
                leases.renew(tx, "two/r1")
            with desk.mam.registry.view() as view:
                over = expiry.look(view)
            return leases.expire(desk.mam.registry, over)

        assert look() == []
        clock[0] = 9.0
        with desk.mam.registry.transaction() as tx:
            leases.renew(tx, "one/r1")
        assert look() == []
        clock[0] = 19.0
        assert look() == []
        clock[0] = 19.1
        assert look() == [f"{A} of one"]
        assert holders(desk) == {A: "two"}

    def test_a_place_in_the_queue_of_somebody_who_is_gone_holds_up_nobody(self, desk: Desk) -> None:
        ask(desk, "one", A)
        ask(desk, "gone", A, B, ttl_s=1)
        assert ask(desk, "three", B) is None
        clock = [0.0]
        expiry = Expiry(lambda: clock[0])
        for clock[0] in (0.0, 2.0):
            with desk.mam.registry.view() as view:
                over = expiry.look(view)

        leases.expire(desk.mam.registry, over._replace(leases=[]))

        assert holders(desk) == {A: "one", B: "three"}

    def test_who_lost_a_lease_is_fenced_even_after_getting_it_back(self, desk: Desk) -> None:
        mine = ask(desk, "one", A)
        assert mine is not None
        release(desk, "one")
        ask(desk, "one", A)

        with desk.mam.registry.transaction() as tx, pytest.raises(Fenced):
            leases.check(tx, "one", mine)

    def over(self, desk: Desk) -> leases.Expired:
        """What is over where nobody gave a sign for longer than any TTL."""
        clock = [0.0]
        expiry = Expiry(lambda: clock[0])
        for clock[0] in (0.0, 1000.0):
            with desk.mam.registry.view() as view:
                over = expiry.look(view)
        return over

    @pytest.mark.req("M85")
    def test_a_sign_between_the_look_and_the_end_keeps_lease_and_place(self, desk: Desk) -> None:
        ask(desk, "one", A)
        ask(desk, "two", A)
        over = self.over(desk)
        for holder in ("one", "two"):
            with desk.mam.registry.transaction() as tx:
                leases.renew(tx, f"{holder}/r1")

        assert leases.expire(desk.mam.registry, over) == []
        assert holders(desk) == {A: "one"}

    @pytest.mark.req("M85")
    def test_who_lost_a_lease_writes_nothing_more_and_has_no_place_though_nobody_took_it(self, desk: Desk) -> None:
        mine = ask(desk, "one", A)
        assert mine is not None
        leases.expire(desk.mam.registry, self.over(desk))

        with desk.mam.registry.transaction() as tx:
            with pytest.raises(Fenced):
                leases.check(tx, "one", mine)
            assert tx.ticket("one/r1") is None
        assert ask(desk, "one", A) == {A: 2}

    @pytest.mark.req("M85", "M90")
    def test_a_holder_of_the_past_gives_back_nothing_of_the_one_after(self, desk: Desk) -> None:
        ask(desk, "one", A, B)
        with desk.mam.registry.transaction() as tx:
            lease = tx.lease(A)
            assert lease is not None
            tx.put(replace(lease, holder="two", token=lease.token + 1))

        release(desk, "one")

        assert holders(desk) == {A: "two"}

    @pytest.mark.req("M90")
    def test_a_holder_that_gives_back_all_leaves_the_others_and_the_ticket_that_it_keeps(self, desk: Desk) -> None:
        ask(desk, "one", A)
        ask(desk, "two", B)
        with desk.mam.registry.transaction() as tx:
            leases.ask(tx, "one/r2", "one", [C], ttl_s=60.0)
            leases.release_all(tx, "one", but="one/r2")

        assert holders(desk) == {B: "two", C: "one"}

    def test_how_long_a_hold_usually_lasts_follows_the_newest_ones(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask(desk, "one", A)
        with desk.mam.registry.transaction() as tx:
            lease = tx.lease(A)
            assert lease is not None
            tx.put(replace(lease, usual_s=100.0, since=1_000_000))
        monkeypatch.setattr(leases, "now_ms", lambda: 1_200_000)

        release(desk, "one")

        with desk.mam.registry.view() as view:
            lease = view.lease(A)
        assert lease is not None and lease.usual_s == pytest.approx(0.7 * 100 + 0.3 * 200)

    def test_the_queue_is_shown_in_the_order_in_which_it_is_served(self, desk: Desk) -> None:
        ask(desk, "one", A)
        with desk.mam.registry.transaction() as tx:
            for holder, priority in (("late", 0), ("urgent", 2), ("soon", 1)):
                leases.ask(tx, f"{holder}/r1", holder, [A], priority=priority, ttl_s=60.0)

        with desk.mam.registry.view() as view:
            assert [place.ticket.holder for place in leases.queue(view, now_ms())] == ["urgent", "soon", "late"]

    def test_who_is_further_behind_is_told_to_wait_longer(self, desk: Desk) -> None:
        for holder in ("one", "two", "three"):
            ask(desk, holder, A)
        with desk.mam.registry.transaction() as tx:
            lease = tx.lease(A)
            assert lease is not None
            tx.put(replace(lease, usual_s=100.0))

        with desk.mam.registry.view() as view:
            second, third = leases.queue(view, now_ms())

        assert (second.ahead, third.ahead) == (0, 1)
        assert second.expected_s is not None and third.expected_s is not None
        assert third.expected_s - second.expected_s == pytest.approx(100.0)

    def test_the_queue_says_for_whom_one_waits_and_about_how_long(self, desk: Desk) -> None:
        ask(desk, "one", A)
        ask(desk, "two", A)
        with desk.mam.registry.transaction() as tx:
            lease = tx.lease(A)
            assert lease is not None
            tx.put(replace(lease, usual_s=100.0))

        with desk.mam.registry.view() as view:
            (place,) = leases.queue(view, now_ms())

        assert (place.ticket.holder, place.waits_for, place.ahead) == ("two", {A: "one"}, 0)
        assert place.expected_s is not None and 90 < place.expected_s <= 100


@pytest.mark.scorecard(18)
@pytest.mark.req("M84", "M88", "M90")
def test_four_loops_of_twenty_rounds_share_three_reviewers_fairly(desk: Desk) -> None:
    """Every round wants 1 to 3 of 3 reviewers for a while: nothing twice, no standstill, nobody waits unfairly long."""
    chance = random.Random(18)
    names = [A, B, C]
    left = dict.fromkeys(("l1", "l2", "l3", "l4"), 20)
    waited: dict[str, int] = defaultdict(int)
    longest = Counter[str]()
    busy: dict[str, int] = {}
    grants = 0
    for _ in range(2000):
        for loop in [loop for loop, rounds in left.items() if rounds and loop not in busy]:
            if ask(desk, loop, *chance.sample(names, chance.randint(1, 3))) is not None:
                busy[loop], waited[loop], grants = chance.randint(1, 3), 0, grants + 1
            else:
                waited[loop] += 1
                longest[loop] = max(longest[loop], waited[loop])
        taken = holders(desk)
        assert set(taken.values()) <= set(busy)
        for loop in [loop for loop, rest in busy.items() if rest <= 1]:
            release(desk, loop)
            del busy[loop]
            left[loop] -= 1
        busy = {loop: rest - 1 for loop, rest in busy.items()}
        if not any(left.values()):
            break

    assert not any(left.values()) and grants == 80
    fair_share = 3 * 3  # three others, each for three turns at most
    assert max(longest.values(), default=0) <= 2 * fair_share
