"""The review loop as a pure function: what it promises, whatever comes in whichever order, however often."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops.state import (
    Ask,
    Began,
    Capture,
    Captured,
    Halted,
    Look,
    Looked,
    LoopCancelled,
    LoopEvent,
    LoopState,
    NotCaptured,
    NotPromoted,
    Order,
    Promote,
    Promoted,
    Resumed,
    Review,
    Reviewed,
    Round,
    Work,
    WorkEnded,
)

calm = settings(deadline=None)  # a machine that is busy breaks no claim
REVIEWERS = ("a", "b", "c")
DONE = WorkEnded(ok=True)


def begun(*, creator: str | None = None, rounds: int = 3, reviewers: tuple[str, ...] = REVIEWERS) -> LoopState:
    return after(LoopState(reviewers, creator, rounds), Began())


def after(state: LoopState, *events: LoopEvent) -> LoopState:
    for event in events:
        state, _ = loop_state.step(state, event)
    return state


def captured(number: int = 1, *, empty: bool = False) -> Captured:
    return Captured("base", f"head-{number}", f"head-{number}", captured=False, empty=empty)


def reviewing(**more: Any) -> LoopState:
    state = begun(**more)
    return after(state, *([DONE] if state.creator else []), captured())


def all_say(state: LoopState, verdict: str | None, *, attempt: int = 1) -> LoopState:
    return after(state, *(Reviewed(name, attempt, verdict, "w") for name in state.reviewers))


# -- one step after the other -------------------------------------------------------------------


@pytest.mark.req("M23")
def test_a_review_only_loop_asks_for_no_work() -> None:
    assert loop_state.step(LoopState(REVIEWERS, None, 3), Began())[1] == [Capture(1)]
    assert loop_state.step(LoopState(REVIEWERS, "w", 3), Began())[1] == [Work(1, 1)]


def test_all_reviewers_are_asked_at_once_about_the_same_commit() -> None:
    assert loop_state.pending(reviewing()) == [Ask(1, "a", 1), Ask(1, "b", 1), Ask(1, "c", 1)]


@pytest.mark.req("M65")
def test_all_passed_promotes_and_one_refusal_does_not() -> None:
    assert loop_state.pending(all_say(reviewing(), "pass")) == [Promote(1)]
    one = after(reviewing(), Reviewed("b", 1, "not_pass"), Reviewed("a", 1, "pass"), Reviewed("c", 1, "pass"))
    assert loop_state.pending(one) == [Look(1)]
    assert after(one, Looked(same=True)).outcome == "not_pass"


@pytest.mark.req("M65")
def test_nothing_is_decided_before_the_last_reviewer_has_answered() -> None:
    state = after(reviewing(), Reviewed("a", 1, "not_pass"), Reviewed("b", 1, "pass"))

    assert state.phase == "reviewing"
    assert loop_state.pending(state) == [Ask(1, "c", 1)]


def test_a_refused_round_makes_the_creator_work_again_until_the_last_round() -> None:
    state = reviewing(creator="w", rounds=2)
    state = after(all_say(state, "not_pass"), Looked(same=True))
    assert loop_state.pending(state) == [Work(2, 1)]

    last = after(all_say(after(state, DONE, captured(2)), "not_pass"), Looked(same=True))

    assert (last.phase, last.outcome, len(last.rounds)) == ("ended", "not_pass", 2)
    assert "last of 2 rounds" in last.detail


@pytest.mark.req("M56")
@pytest.mark.parametrize("moved", [Looked(same=False), NotPromoted(moved=True)])
def test_a_worktree_that_moved_supersedes_the_verdicts_and_its_new_head_is_reviewed_without_more_work(
    moved: LoopEvent,
) -> None:
    verdict = "pass" if isinstance(moved, NotPromoted) else "not_pass"
    state = after(all_say(reviewing(creator="w"), verdict), moved)

    assert [each.stale for each in state.rounds] == [True, False]
    assert [review.verdict for review in state.rounds[0].reviews] == [verdict] * 3
    assert loop_state.pending(state) == [Capture(2)]
    assert loop_state.pending(after(state, captured(2))) == [Ask(2, name, 1) for name in REVIEWERS]


def test_superseded_rounds_are_no_rounds_of_work() -> None:
    state = after(all_say(reviewing(creator="w", rounds=2), "not_pass"), Looked(same=False), captured(2))

    again = after(all_say(state, "not_pass"), Looked(same=True))
    assert loop_state.pending(again) == [Work(3, 1)]
    assert after(all_say(after(again, DONE, captured(3)), "not_pass"), Looked(same=True)).outcome == "not_pass"
    assert after(all_say(state, "pass"), Promoted("x")).outcome == "passed"


@pytest.mark.req("M56")
def test_a_worktree_that_never_stands_still_is_a_persons_matter_and_a_fresh_round_follows() -> None:
    state = reviewing()
    for number in range(2, loop_state.STALE_AT_MOST + 2):
        state = after(all_say(state, "pass"), NotPromoted(moved=True), captured(number))

    assert state.phase == "stuck" and "moved" in state.detail
    assert loop_state.pending(after(state, Resumed())) == [Capture(loop_state.STALE_AT_MOST + 1)]


@pytest.mark.req("M65")
def test_a_verdict_that_does_not_count_is_asked_for_once_more_then_a_person_must_look() -> None:
    once = after(reviewing(), Reviewed("b", 1, None, "its tree was changed"))
    assert loop_state.pending(once) == [Ask(1, "a", 1), Ask(1, "b", 2), Ask(1, "c", 1)]

    stuck = after(once, Reviewed("a", 1, "pass"), Reviewed("c", 1, "not_pass"), Reviewed("b", 2, None, "again"))

    assert stuck.phase == "stuck" and stuck.detail == "no verdict from b: again"
    assert loop_state.pending(stuck) == []


def test_a_resumed_review_asks_only_who_gave_no_verdict_and_keeps_the_others() -> None:
    stuck = all_say(all_say(after(reviewing(), Reviewed("a", 1, "pass")), None), None, attempt=2)

    resumed = after(stuck, Resumed())

    assert loop_state.pending(resumed) == [Ask(1, "b", 3), Ask(1, "c", 3)]
    assert resumed.detail == ""  # what held it up is over
    done = after(resumed, Reviewed("b", 3, "pass"), Reviewed("c", 3, "pass"), Promoted("x"))
    assert done.outcome == "passed"


def test_work_that_ended_without_a_report_waits_for_a_person_and_is_tried_again() -> None:
    stuck = after(begun(creator="w"), WorkEnded(False, False, "job is lost"))

    assert (stuck.phase, stuck.detail) == ("stuck", "job is lost")
    assert loop_state.pending(after(stuck, Resumed())) == [Work(1, 2)]


def test_work_that_was_reported_as_failed_ends_the_loop() -> None:
    ended = after(begun(creator="w"), WorkEnded(False, True))

    assert (ended.outcome, ended.phase) == ("failed", "ended") and "w reported" in ended.detail


@pytest.mark.req("M55")
def test_a_tree_that_cannot_be_captured_waits_for_a_person_and_is_looked_at_again() -> None:
    stuck = after(begun(), NotCaptured("a repository inside"))

    assert (stuck.phase, stuck.detail) == ("stuck", "a repository inside")
    assert loop_state.pending(after(stuck, Resumed())) == [Capture(1)]


@pytest.mark.req("M25")
def test_a_commit_without_changes_fails_and_its_commits_are_named() -> None:
    ended = after(begun(), captured(empty=True))

    assert (ended.outcome, ended.round.head) == ("failed", "head-1")
    assert "head-1 changes nothing against base" in ended.detail


def test_a_refused_promotion_leaves_the_loop_passed_and_says_why() -> None:
    ended = after(all_say(reviewing(), "pass"), NotPromoted(moved=False, why="main moved on"))

    assert (ended.outcome, ended.promoted, ended.detail) == ("passed", "", "not promoted: main moved on")


# -- whatever comes, however often --------------------------------------------------------------

verdicts = st.sampled_from(["pass", "not_pass", None])
rounds_of_answers = st.fixed_dictionaries({name: st.lists(verdicts, min_size=1, max_size=2) for name in REVIEWERS})


def answers_of(said: dict[str, list[str | None]]) -> dict[str, list[Reviewed]]:
    """Each reviewer's answers in their order; the second one only where the first does not count."""
    found = {}
    for name, given_ in said.items():
        first, second = given_[0], given_[-1]
        found[name] = [Reviewed(name, 1, first, f"{name} 1")]
        if first is None:
            found[name].append(Reviewed(name, 2, second, f"{name} 2"))
    return found


@calm
@given(rounds_of_answers, st.data())
def test_any_order_and_any_repetition_of_the_reviewers_answers_ends_the_same(
    said: dict[str, list[str | None]], data: st.DataObject
) -> None:
    plain = after(reviewing(), *(event for events in answers_of(said).values() for event in events))

    state, waiting, old = reviewing(), answers_of(said), []
    while any(waiting.values()):
        name = data.draw(st.sampled_from([name for name, events in waiting.items() if events]))
        event = waiting[name].pop(0)
        old.append(event)
        state = after(state, event, *data.draw(st.lists(st.sampled_from(old), max_size=3)))

    assert state == plain


EVENTS: list[LoopEvent] = [
    Began(),
    DONE,
    WorkEnded(False, True),
    WorkEnded(False, False, "lost"),
    captured(),
    captured(2),
    captured(empty=True),
    NotCaptured("x"),
    *(Reviewed(name, n, verdict) for name in REVIEWERS for n in (1, 2, 3) for verdict in ("pass", "not_pass", None)),
    *(Reviewed("nobody", 1, "pass") for _ in range(1)),
    Looked(same=True),
    Looked(same=False),
    Promoted("there"),
    NotPromoted(moved=True),
    NotPromoted(moved=False, why="x"),
    Resumed(),
]
starts = st.builds(LoopState, st.just(REVIEWERS), st.sampled_from([None, "w"]), st.integers(1, 3))


@settings(calm, max_examples=300)
@given(starts, st.lists(st.sampled_from(EVENTS), max_size=60))
def test_no_sequence_of_events_passes_what_not_every_reviewer_passed_in_one_round_that_is_not_stale(
    start: LoopState, events: list[LoopEvent]
) -> None:
    state = after(start, Began(), *events)

    if state.outcome == "passed":
        last = state.rounds[-1]
        assert not last.stale and last.head
        assert [(review.reviewer, review.verdict) for review in last.reviews] == [(name, "pass") for name in REVIEWERS]
    assert all(each.stale for each in state.rounds[:-1] if {r.verdict for r in each.reviews} == {"pass"})


@calm
@given(starts, st.lists(st.sampled_from([*EVENTS, LoopCancelled("enough")]), max_size=40))
def test_each_step_answers_with_what_is_pending_and_nothing_leaves_the_end(
    start: LoopState, events: list[LoopEvent]
) -> None:
    state = start
    for event in events:
        before = state
        state, orders = loop_state.step(state, event)
        assert orders == loop_state.pending(state)
        if before.phase == "ended":
            assert state == before and orders == []
        assert state.rounds[: len(before.rounds) - 1] == before.rounds[:-1]  # what is over stays as it was


@calm
@given(starts, st.lists(st.sampled_from(EVENTS), max_size=40))
def test_a_loop_can_be_cancelled_from_anywhere(start: LoopState, events: list[LoopEvent]) -> None:
    state = after(start, *events)

    ended = after(state, LoopCancelled("enough"))

    assert ended == state if state.phase == "ended" else (ended.outcome, ended.detail) == ("cancelled", "enough")
    assert ended.phase == "ended" and loop_state.pending(ended) == [] and ended.rounds == state.rounds


@calm
@given(starts, st.lists(st.sampled_from(EVENTS), max_size=40))
def test_a_state_survives_its_json(start: LoopState, events: list[LoopEvent]) -> None:
    state = after(start, *events)

    again = loop_state.from_json(json.loads(json.dumps(loop_state.to_json(state))))

    assert again == state and loop_state.pending(again) == loop_state.pending(state)


def test_a_checkpoint_of_a_newer_version_is_refused_and_not_half_understood() -> None:
    content = loop_state.to_json(reviewing())

    for where in (content, content["rounds"][0], content["rounds"][0]["reviews"][0]):
        where["new_member"] = 1
        with pytest.raises(TypeError):
            loop_state.from_json(content)
        del where["new_member"]


# -- a process that dies ------------------------------------------------------------------------


def driven(data: st.DataObject, state: LoopState, *, crashes: bool) -> tuple[LoopState, list[Order]]:
    """Carry a loop out; with *crashes* its process dies now and then, and another one begins with the checkpoint."""
    carried: list[Order] = []
    state, _ = loop_state.step(state, Began())
    for _ in range(400):
        if state.phase == "ended":
            return state, carried
        if state.phase == "stuck":
            state, _ = loop_state.step(state, Resumed())
            continue
        order = data.draw(st.sampled_from(loop_state.pending(state)))
        carried.append(order)
        if crashes and data.draw(st.booleans()):
            again = loop_state.from_json(json.loads(json.dumps(loop_state.to_json(state))))
            assert loop_state.pending(again) == loop_state.pending(state) and order in loop_state.pending(again)
            state, orders = loop_state.step(again, Began())  # as a successor does
            assert state == again and orders == loop_state.pending(again)
        state, _ = loop_state.step(state, answer(data, order))
    raise AssertionError(f"no end: {state.phase} in round {len(state.rounds)}")


promotions: list[LoopEvent] = [Promoted("x"), NotPromoted(moved=True), NotPromoted(moved=False, why="x")]


def answer(data: st.DataObject, order: Order) -> LoopEvent:
    match order:
        case Work():
            return data.draw(
                st.sampled_from([DONE, DONE, DONE, WorkEnded(False, True), WorkEnded(False, False, "lost")])
            )
        case Capture(number):
            return data.draw(st.sampled_from([captured(number)] * 4 + [NotCaptured("x")]))
        case Ask(_, reviewer, attempt):
            return Reviewed(reviewer, attempt, data.draw(verdicts), "w")
        case Look():
            return Looked(data.draw(st.booleans()))
        case Promote():
            return data.draw(st.sampled_from(promotions))


@pytest.mark.req("M80")
@settings(calm, max_examples=60)
@given(starts, st.data())
def test_a_loop_that_dies_anywhere_is_asked_again_for_exactly_what_is_unanswered_and_comes_to_an_end(
    start: LoopState, data: st.DataObject
) -> None:
    ended, carried = driven(data, start, crashes=True)

    assert ended.outcome in ("passed", "not_pass", "failed")
    answered = [order for order in carried if isinstance(order, Ask)]
    assert len(answered) == len(set(answered))  # no answer was ever asked for again


def test_a_step_never_changes_its_argument() -> None:
    before = reviewing()
    copy = replace(before)

    loop_state.step(before, Reviewed("a", 1, "pass"))

    assert before == copy


def test_only_rounds_in_a_row_that_moved_stop_a_loop() -> None:
    state = reviewing(rounds=50)
    refused = tuple(Round(number, work=False) for number in range(1, 20))
    state = replace(state, rounds=(*refused, replace(state.round, number=20)))

    moved = after(all_say(state, "pass"), NotPromoted(moved=True))

    assert (moved.phase, moved.round.number) == ("capturing", 21)


def test_a_resumed_review_keeps_the_verdicts_that_there_are_and_asks_only_the_others_anew() -> None:
    state = after(reviewing(), Reviewed("a", 1, "pass"), Reviewed("b", 1, "not_pass"))
    stuck = after(state, Reviewed("c", 1, None, "gone"), Reviewed("c", 2, None, "gone"))
    assert stuck.phase == "stuck"

    back = after(stuck, Resumed())

    assert back.round.reviews[:2] == (Review("a", verdict="pass"), Review("b", verdict="not_pass"))
    assert loop_state.pending(back) == [Ask(1, "c", 3)]


def test_a_loop_that_is_halted_twice_goes_on_where_it_stood_and_one_that_has_not_begun_is_not_halted() -> None:
    halted = after(reviewing(), Halted("no disk"), Halted("no network"))

    assert (halted.phase, halted.back_to, halted.detail) == ("stuck", "reviewing", "no disk")
    assert after(halted, Resumed()).phase == "reviewing"
    fresh = LoopState(REVIEWERS, None, 3)
    assert after(fresh, Halted("no disk")) == fresh
