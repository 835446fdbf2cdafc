from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mam.broker.envelope.events import Asked, Data, Progressed, Report, Started
from mam.control_plane.jobs import state as job_state
from mam.control_plane.registry.records import FINAL, OPEN, PRESUMED, Attempt, Job

SHA = "a" * 64
NOW = 1_000_000


def job(state: str = "queued", **changes: object) -> Job:
    plain = Job(
        "job-00000001", "mam/0/jobs", "t", "writer", state, 1, "/j", SHA, 120, 60, 3600, 6, 0, 0,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


ATTEMPT = Attempt("job-00000001", 1, "writer", 0)
REPORT = Report(result="done", verdict="pass", report_sha256=SHA, report_bytes=3)


def after(start: Job, *events: Data) -> Job:
    current, attempt = start, ATTEMPT
    for event in events:
        _, current, attempt = job_state.step(current, attempt, event, now=NOW)
    return current


def test_a_job_runs_when_it_started_and_ends_when_it_reported() -> None:
    assert after(job(), Started()).state == "running"
    assert after(job(), Started(), REPORT).state == "reported"


def test_a_report_before_started_counts_and_implies_it() -> None:
    step = job_state.step(job(), ATTEMPT, REPORT, now=NOW)

    assert (step.job.state, step.job.verdict, step.attempt.started_at) == ("reported", "pass", NOW)


def test_the_first_report_of_an_attempt_wins() -> None:
    other = Report(result="failed", verdict="not_pass", report_sha256="b" * 64, report_bytes=1)

    assert after(job(), REPORT, other) == after(job(), REPORT)


@pytest.mark.parametrize("state", PRESUMED)
def test_a_report_after_a_presumed_end_is_accepted_and_marked_late(state: str) -> None:
    ended = after(job(state), REPORT)

    assert (ended.state, ended.late, ended.result) == ("reported", 1, "done")


@pytest.mark.parametrize("state", PRESUMED)
def test_other_events_after_a_presumed_end_are_late_and_change_nothing(state: str) -> None:
    for event in (Started(), Progressed(note="x")):
        assert job_state.step(job(state), ATTEMPT, event, now=NOW) == ("late", job(state), ATTEMPT)


@pytest.mark.parametrize("state", FINAL)
@pytest.mark.parametrize("event", [Started(), Progressed(note="x"), REPORT])
def test_nothing_leaves_a_final_state(state: str, event: Data) -> None:
    assert job_state.step(job(state), ATTEMPT, event, now=NOW).job == job(state)


def test_an_altered_report_counts_as_no_verdict_and_no_success() -> None:
    step = job_state.step(job("running"), ATTEMPT, REPORT, now=NOW, report_intact=False)

    assert step.outcome == "report_altered"
    assert (step.job.state, step.job.result, step.job.verdict) == ("reported", "failed", None)


@pytest.mark.parametrize("seen", ["b" * 40, None])
def test_a_verdict_on_another_commit_than_was_asked_about_is_none(seen: str | None) -> None:
    ended = after(job(head_sha="c" * 40), REPORT.model_copy(update={"head_sha": seen}))

    assert (ended.state, ended.result, ended.verdict) == ("reported", "done", None)
    assert (ended.detail, ended.seen_sha) == ("other_commit", seen)


def test_the_next_attempt_knows_nothing_of_how_the_last_one_ended() -> None:
    told = REPORT.model_copy(update={"head_sha": "b" * 40, "summary": "well"})
    ended = after(job("lost", detail="its agent is gone"), told)

    again = job_state.again(ended, "second", now=NOW)

    assert again == job("queued", attempt=2, session="second", updated_at=NOW)


def test_a_kind_of_a_newer_version_has_no_effect() -> None:
    assert job_state.step(job(), ATTEMPT, None, now=NOW) == ("accepted", job(), ATTEMPT)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([Started(), Progressed(note="x"), REPORT]), max_size=12))
def test_any_order_and_repetition_of_an_attempts_events_ends_in_the_same_state(events: list[Data]) -> None:
    plain = [event for event in (Started(), Progressed(note="x"), REPORT) if event in events]
    seen = after(job(), *events)

    assert (seen.state, seen.result, seen.verdict) == (lambda j: (j.state, j.result, j.verdict))(after(job(), *plain))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([Started(), Progressed(note="x"), REPORT]), max_size=8))
def test_the_state_only_moves_forward(events: list[Data]) -> None:
    order = ["queued", "running", "reported"]
    states = [after(job(), *events[:n]).state for n in range(len(events) + 1)]

    assert all(order.index(a) <= order.index(b) for a, b in pairwise(states))


@pytest.mark.req("M97")
def test_no_started_within_its_limit_after_the_prompt_blocks_the_job() -> None:
    delivered = replace(ATTEMPT, delivered_at=NOW)

    assert job_state.overdue(job("dispatched"), delivered, now=NOW + 120_000) is None
    late = job_state.overdue(job("dispatched"), delivered, now=NOW + 120_001)
    assert late is not None and late.state == "agent_blocked"


def test_the_limit_for_started_counts_from_the_prompt_not_from_the_queue() -> None:
    assert job_state.overdue(job("dispatched"), replace(ATTEMPT, delivered_at=3_000_000), now=3_100_000) is None


def test_a_prompt_that_never_reaches_a_runner_has_a_limit_of_its_own() -> None:
    late = job_state.overdue(job("queued"), ATTEMPT, now=96_000)

    assert late is not None and "never received" in late.detail


def test_an_attempt_has_a_limit_whatever_it_says() -> None:
    busy = replace(ATTEMPT, started_at=1, last_progress_at=3_600_000)

    late = job_state.overdue(job("running"), busy, now=3_600_001)
    assert late is not None and late.state == "timed_out"


@pytest.mark.parametrize("state", [*PRESUMED, *FINAL])
def test_limits_are_for_open_jobs_only(state: str) -> None:
    assert job_state.overdue(job(state), ATTEMPT, now=10**12) is None
    assert job_state.presume(job(state), ATTEMPT, "lost", "", now=NOW) == (job(state), ATTEMPT)


def test_cancelling_ends_open_and_presumed_jobs_and_nothing_else() -> None:
    for state in (*OPEN, *PRESUMED):
        assert job_state.cancel(job(state), ATTEMPT, "why", now=NOW)[0].state == "cancelled"
    assert job_state.cancel(job("reported"), ATTEMPT, "why", now=NOW)[0].state == "reported"


def test_a_job_that_waited_for_a_monitor_is_not_late_before_one_could_send_it() -> None:
    assert job_state.overdue(job("queued"), ATTEMPT, now=96_000, began=90_000) is None
    assert job_state.overdue(job("queued"), ATTEMPT, now=200_000, began=90_000) is not None


def test_a_runner_has_its_whole_limit_from_when_it_got_the_prompt() -> None:
    got = replace(ATTEMPT, received_at=80_000)

    assert job_state.overdue(job("dispatched"), got, now=140_000) is None
    assert job_state.overdue(job("dispatched"), got, now=180_000) is not None


@pytest.mark.parametrize(("seen", "verdict", "detail"), [("b" * 40, "pass", None), ("c" * 40, None, "other_commit")])
def test_what_was_said_of_another_commit_than_the_one_asked_about_is_no_verdict(
    seen: str, verdict: str | None, detail: str | None
) -> None:
    ended = after(job("running", head_sha="b" * 40), REPORT.model_copy(update={"head_sha": seen}))

    assert (ended.state, ended.verdict, ended.detail, ended.seen_sha) == ("reported", verdict, detail, seen)


def test_a_next_attempt_knows_nothing_of_how_the_last_one_ended() -> None:
    late = after(job("lost", detail="gone"), REPORT)

    assert late.late == 1
    assert job_state.again(late, "writer", now=0) == replace(job(), attempt=2)


def test_time_in_which_nobody_looked_is_no_part_of_any_limit() -> None:
    delivered = replace(ATTEMPT, delivered_at=0)
    limits = {"limit": (job("running"), replace(ATTEMPT, started_at=1), 3_600_001)}
    limits |= {"started": (job("dispatched"), delivered, 120_001), "delivery": (job("queued"), ATTEMPT, 96_000)}

    for name, (row, attempt, over) in limits.items():
        assert job_state.overdue(row, attempt, now=over) is not None, name
        assert job_state.overdue(row, attempt, now=over, gaps=[(1000, over - 1000)]) is None, name


def test_the_first_sign_of_life_stays_the_beginning_and_what_comes_later_is_noted_with_its_time() -> None:
    asked = Asked(question_id="0" * 12, question="Which one?")
    begun, first = (
        job_state.step(job(), ATTEMPT, event, now=NOW).attempt for event in (Started(heartbeat_s=30), asked)
    )
    assert (begun.started_at, begun.heartbeat_s) == (NOW, 30)
    assert (first.started_at, first.last_note) == (NOW, "asks: Which one?")

    for event in (Started(), asked, Progressed(note="half done")):
        later = job_state.step(job("running"), first, event, now=NOW + 5).attempt
        assert later.started_at == NOW
    assert (later.last_progress_at, later.last_note) == (NOW + 5, "half done")
