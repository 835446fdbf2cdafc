"""The jobs of a loop: named so that none is another's, asked for once, found again after a crash."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mam.broker.envelope import topics
from mam.broker.errors import BadName
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs, reports
from mam.control_plane.jobs.delegate import LoopPart
from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.loops import start as loop_start
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops import store as loop_store
from mam.control_plane.loops.jobs import LoopJobs, job_id
from mam.control_plane.loops.locks import LoopRuns
from mam.control_plane.loops.state import Ask, Began, Captured, LoopState, Reviewed, Work
from mam.control_plane.registry.records import Loop, StepMark
from tests.support.desk import Desk

names = st.from_regex(topics.NAME, fullmatch=True)
ids = names.filter(lambda name: not loop_jobs.is_ambiguous(name))
WORK = Work(1, 1)


@settings(deadline=None)
@given(ids, ids, st.integers(1, 50), st.integers(1, 50), st.none() | names, st.none() | names)
def test_two_jobs_of_loops_never_share_a_name_and_every_name_is_one(
    loop: str, other: str, number: int, second: int, reviewer: str | None, colleague: str | None
) -> None:
    mine, theirs = job_id(loop, number, reviewer), job_id(other, second, colleague)

    assert topics.check_job_id(mine) == mine
    assert (mine == theirs) == ((loop, number, reviewer) == (other, second, colleague))


@pytest.mark.parametrize("reviewer", ["work", "w1", "r1-x", "x-w1", "capture"])
def test_no_reviewers_name_makes_its_job_the_creators(reviewer: str) -> None:
    assert job_id("loop-1", 1, reviewer) not in (job_id("loop-1", 1), job_id("loop-1-w1", 1))
    assert loop_jobs.step_of(Ask(1, reviewer, 1)) != loop_jobs.step_of(WORK)


@pytest.mark.parametrize("loop", ["a-r1", "a-r1-b", "a-w2", "a-r12-w3", "../x", "A", ""])
def test_an_id_whose_jobs_could_be_anothers_cannot_be_chosen(loop: str) -> None:
    with pytest.raises(BadName):
        loop_start.check_id(loop)


@pytest.mark.parametrize("loop", ["a", "release-r", "w1", "r1", "x-rc1", "x-r1x"])
def test_other_ids_can(loop: str) -> None:
    assert loop_start.check_id(loop) == loop


@pytest.fixture
def made(desk: Desk) -> LoopJobs:
    """A loop that is about to have its creator work."""
    desk.session("writer")
    state, _ = loop_state.step(LoopState(("rev-a",), "writer", 3), Began())
    folder = desk.mam.layout.loops / "loop-1"
    folder.mkdir(parents=True)
    (folder / "task.md").write_text("do it\n", "utf-8")
    fixed: dict[str, Any] = {
        "isolation": "worktree",
        "promote": "none",
        "remote": None,
        "test_command": None,
        "title": "do it",
    }
    row = Loop(
        "loop-1", state.phase, 1, "/w", "issue-1", "a" * 40, "writer", '["rev-a"]', **fixed,
        folder=str(folder), checkpoint=json.dumps(loop_state.to_json(state)), created_at=1, updated_at=1,
    )  # fmt: skip
    with desk.mam.registry.transaction() as tx:
        tx.put(row)
    return LoopJobs(desk.mam, row, None)


def send(desk: Desk, made: LoopJobs, order: Work) -> int:
    with desk.mam.registry.view() as view:
        state = loop_store.state_of(loop_store.need(view, "loop-1"))
    attempt = made.plan(order)
    made.send(state, order, attempt)
    return attempt


@pytest.mark.req("M80")
def test_an_order_is_planned_once_and_sent_once_however_often_it_is_asked_for(desk: Desk, made: LoopJobs) -> None:
    assert [send(desk, made, WORK) for _ in range(3)] == [1, 1, 1]

    with desk.mam.registry.view() as view:
        assert [(job.id, job.attempt) for job in view.jobs()] == [("loop-1-w1", 1)]
        assert len(view.outbox()) == 1


def test_a_further_order_waits_for_a_further_attempt_whatever_the_first_one_was_called(
    desk: Desk, made: LoopJobs
) -> None:
    made.plan(WORK)  # it never could be sent: its agent was gone
    assert send(desk, made, Work(1, 2)) == 1
    assert made.worked(Work(1, 2), 1) is None
    jobs.cancel(desk.mam, "loop-1-w1")

    assert send(desk, made, Work(1, 3)) == 2
    assert made.worked(Work(1, 3), 2) is None  # what became of the first attempt is no answer


def test_a_job_that_was_tried_again_by_itself_is_taken_over(desk: Desk, made: LoopJobs) -> None:
    send(desk, made, WORK)
    jobs.cancel(desk.mam, "loop-1-w1")
    delegation.retry(desk.mam, "loop-1-w1")

    assert send(desk, made, Work(1, 2)) == 2
    with desk.mam.registry.view() as view:
        assert view.job("loop-1-w1") == replace(desk.row("loop-1-w1"), attempt=2)


@pytest.mark.req("M80", "M82")
def test_a_checkpoint_is_never_written_over_one_that_another_process_wrote_meanwhile(
    desk: Desk, made: LoopJobs
) -> None:
    with desk.mam.registry.view() as view:
        row = loop_store.need(view, "loop-1")
    ours = loop_store.save(desk.mam, row, loop_store.state_of(row))

    with pytest.raises(LoopRuns):
        loop_store.save(desk.mam, row, loop_store.state_of(row))

    with desk.mam.registry.view() as view:
        assert loop_store.need(view, "loop-1") == ours


@pytest.mark.req("M80")
def test_what_a_crash_left_of_a_job_without_its_row_is_no_obstacle(desk: Desk, made: LoopJobs) -> None:
    left = desk.mam.layout.jobs / "loop-1-w1"
    left.mkdir(parents=True)
    (left / "brief.md").write_text("half", "utf-8")
    desk.mam.layout.job_key("loop-1-w1").write_text("half", "utf-8")
    with desk.mam.registry.transaction() as tx:
        tx.put(StepMark("loop-1", "r1/work/1", "begun", 1, "1"))

    assert send(desk, made, WORK) == 1

    job = desk.row("loop-1-w1")
    assert "do it" in Path(job.brief_path).read_text("utf-8") and job.state == "queued"
    assert (desk.mam.layout.loops / "loop-1" / "round-1" / "brief.md").exists()


# -- what counts as a verdict -----------------------------------------------------------------------

BASE, HEAD, OTHER = "a" * 40, "b" * 40, "c" * 40
SAID = f"fine\n{reports.LINES['pass']}\n"


def answered(desk: Desk, text: str = SAID, **changes: Any) -> Reviewed:
    """What a loop takes from a reviewer's job that is right in everything but the *changes* of its row."""
    began = loop_state.step(LoopState(("rev-a",), None, 1), Began())[0]
    state = loop_state.step(began, Captured(BASE, HEAD, HEAD, False, False))[0]
    folder = desk.mam.layout.loops / "loop-2"
    folder.mkdir(parents=True)
    # Reviewed elsewhere: a bench of its own would be one more reason to refuse.
    fixed: dict[str, Any] = {
        "isolation": "worktree",
        "promote": "none",
        "remote": "origin",
        "test_command": None,
        "title": "do it",
    }
    row = Loop(
        "loop-2", state.phase, 1, "/w", "issue-1", BASE, None, '["rev-a"]', **fixed,
        folder=str(folder), checkpoint=json.dumps(loop_state.to_json(state)), created_at=1, updated_at=1,
    )  # fmt: skip
    for name in ("rev-a", "rev-b"):
        desk.session(name, role="reviewer")
    part = LoopPart("loop-2", 1, "Worktree /w", BASE, HEAD, None, HEAD)
    job = delegation.delegate(desk.mam, "rev-a", "look", job_id=job_id("loop-2", 1, "rev-a"), part=part)
    told = hashlib.sha256(text.encode()).hexdigest()
    right = {"state": "reported", "result": "done", "verdict": "pass", "report_sha256": told, "seen_sha": HEAD}
    job = replace(job, **{**right, **changes})
    Path(job.report_path).parent.mkdir(exist_ok=True)
    Path(job.report_path).write_text(text, "utf-8")
    with desk.mam.registry.transaction() as tx:
        tx.put(job)
    found = LoopJobs(desk.mam, row, None).reviewed(state, Ask(1, "rev-a", 1), 1)
    assert found is not None
    return found


@pytest.mark.req("M54", "M65")
def test_a_verdict_that_is_right_in_everything_counts(desk: Desk) -> None:
    assert answered(desk) == Reviewed("rev-a", 1, "pass", "")


@pytest.mark.req("M54", "M65")
@pytest.mark.parametrize(
    "wrong",
    [
        {"session": "rev-b"},
        {"loop": "loop-3"},
        {"round": 2},
        {"base_sha": OTHER},
        {"head_sha": OTHER},
        {"detail": "other_commit", "seen_sha": OTHER},
        {"verdict": None},
        {"result": "failed"},
        {"report_sha256": "0" * 64},
        {"verdict": "not_pass"},
        {"text": "fine\n"},
        {"state": "timed_out"},
    ],
    ids=str,
)
def test_a_verdict_with_one_thing_wrong_does_not_count_and_says_why(desk: Desk, wrong: dict[str, Any]) -> None:
    found = answered(desk, **wrong)

    assert found.verdict is None and found.why
