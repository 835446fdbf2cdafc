"""Several loops at once: reviewers in turn, nothing twice, nobody's loop touched by another's end."""

import os
import signal
from pathlib import Path

import pytest

from tests.support import until
from tests.support.stage import Stage

GATED = [{"gate": "gate"}, {"report": "pass"}]


@pytest.mark.req("M78", "M88")
def test_loops_with_other_reviewers_run_side_by_side(stage: Stage) -> None:
    one, two = stage.plan(rev_a=[GATED]), stage.plan(rev_b=[GATED])
    stage.start(stage.changed(), one, reviewers=["rev-a"])
    stage.start(stage.changed(), two, reviewers=["rev-b"])

    stage.reached(one, "gate", "rev-a")
    stage.reached(two, "gate", "rev-b")
    for loop in (one, two):
        stage.go(loop, "gate")

    until(lambda: [stage.row(loop).outcome for loop in (one, two)] == ["passed", "passed"])


@pytest.mark.req("M84", "M86", "M88")
def test_a_loop_waits_its_turn_for_a_reviewer_and_both_end_right(stage: Stage) -> None:
    one, two = stage.plan(rev_a=[GATED]), stage.plan(rev_a=[[{"report": "not_pass"}]])
    tree = Path(stage.root.ok("worktree", "prepare", "queued", "--no-venv")["path"])
    stage.change(tree)
    stage.start(tree, one, reviewers=["rev-a", "rev-b"])
    stage.reached(one, "gate", "rev-a")
    second = stage.start(stage.changed(), two, reviewers=["rev-a"])
    until(lambda: stage.root.ok("queue")["waiting"], what="the second loop stands in the queue")

    queue = stage.root.ok("queue")
    assert {each["resource"]: each["holder"] for each in queue["held"]} == {"session:rev-a": one, "session:rev-b": one}
    assert [(each["holder"], each["waits_for"]) for each in queue["waiting"]] == [(two, {"session:rev-a": one})]
    assert stage.prompts(two, "rev-a") == []
    assert stage.root.mam("queue").out.splitlines()[0].split() == ["RESOURCE", "HOLDER", "SINCE"]
    busy, place = stage.root.ok("why", "rev-a"), stage.root.ok("why", "queued")
    assert {f"loop {loop} (reviewing) waits for its verdict" for loop in (one, two)} <= set(busy["evidence"])
    assert f"loop {one} (reviewing) is about it" in place["evidence"] and place["next"] == f"mam why {one}"
    until(lambda: "does not wait" in str(stage.root.ok("why", "rev-b")), what="rev-b has said its word")
    stage.go(one, "gate")

    assert second.wait(120) == 3
    assert second.stderr is not None and f"waiting for rev-a: rev-a is held by {one}, 0 ahead" in second.stderr.read()
    assert (stage.row(one).outcome, stage.row(two).outcome) == ("passed", "not_pass")
    assert stage.root.ok("queue") == {"held": [], "waiting": []}


@pytest.mark.req("M86")
def test_all_reviewers_takes_only_who_is_free_and_says_who_has_the_others(stage: Stage) -> None:
    busy, free = stage.plan(rev_a=[GATED]), stage.plan()
    stage.start(stage.changed(), busy, reviewers=["rev-a"])
    stage.reached(busy, "gate", "rev-a")
    words = ["loop", "run", "--task", "-", "--review-only", "--all-reviewers", "--json"]

    said = stage.root.mam(*words, "--id", free, "--worktree", str(stage.changed()), stdin="x", timeout_s=120)
    stage.go(busy, "gate")

    assert said.code == 0, said.err
    assert said.json["reviewers"] == ["rev-b", "rev-c"]


@pytest.mark.parametrize("count", ["0", "-1"])
def test_who_picks_nobody_is_told_so_and_nobody_is_asked(stage: Stage, count: str) -> None:
    words = ["loop", "run", "--task", "-", "--review-only", "--pick", count, "--json"]

    said = stage.root.mam(*words, "--worktree", str(stage.changed()), stdin="look at it", timeout_s=60)

    assert said.code == 2 and "--pick" in said.error["remedy"], said.err


@pytest.mark.req("M86")
def test_any_two_of_a_pool_are_picked_in_turn(stage: Stage) -> None:
    loop = stage.plan()
    words = ["loop", "run", "--task", "-", "--review-only", "--pick", "2", "--json"]

    said = stage.root.mam(*words, "--id", loop, "--worktree", str(stage.changed()), stdin="x", timeout_s=120)
    none = stage.root.mam(*words, "--pool", "security", "--worktree", str(stage.changed()), stdin="x")

    assert said.code == 0 and len(said.json["reviewers"]) == 2
    assert none.code == 2 and "security" in none.error["message"]


@pytest.mark.req("M74", "M76", "M81")
def test_a_second_loop_on_the_same_worktree_or_of_the_same_name_is_refused_and_other_names_run(stage: Stage) -> None:
    first, tree = stage.plan(rev_a=[GATED]), stage.changed()
    stage.start(tree, first)
    stage.reached(first, "gate", "rev-a")

    same_tree = stage.run(tree, stage.plan(), reviewers=["rev-b"])
    same_name = stage.run(stage.changed(), first, reviewers=["rev-b"])
    other = stage.run(stage.changed(), stage.plan(), reviewers=["rev-b"])
    stage.go(first, "gate")
    until(lambda: stage.row(first).outcome == "passed")

    assert (same_tree.code, same_name.code, other.code) == (1, 1, 0)
    for said in (same_tree, same_name):
        assert first in said.err


@pytest.mark.req("M85", "M90")
def test_a_cancelled_loop_gives_its_reviewers_back_and_leaves_the_others_alone(stage: Stage) -> None:
    one, two, three = stage.plan(rev_a=[GATED]), stage.plan(rev_b=[GATED]), stage.plan()
    stage.start(stage.changed(), one, reviewers=["rev-a"])
    stage.start(stage.changed(), two, reviewers=["rev-b"])
    stage.reached(one, "gate", "rev-a")
    stage.reached(two, "gate", "rev-b")
    waiting = stage.start(stage.changed(), three, reviewers=["rev-a"])
    until(lambda: stage.root.ok("queue")["waiting"], what="the third loop stands in the queue")

    assert stage.root.mam("loop", "cancel", one).code == 0
    stage.go(one, "gate")

    assert waiting.wait(120) == 0
    assert stage.row(two).ended_at is None
    stage.go(two, "gate")
    until(lambda: stage.row(two).outcome == "passed")


def test_what_the_queue_names_is_explained_also_when_the_process_of_its_loop_is_gone(stage: Stage) -> None:
    loop = stage.plan(rev_a=[GATED])
    child = stage.start(stage.changed(), loop)
    stage.reached(loop, "gate", "rev-a")
    held = stage.root.ok("queue")["held"]
    assert [(each["resource"], each["holder"], each["interrupted"]) for each in held] == [
        ("session:rev-a", loop, False)
    ]
    assert stage.root.ok("why", "session:rev-a")["because"] == f"{loop} reviews with it"

    child.send_signal(signal.SIGKILL)
    child.wait(120)

    assert stage.root.ok("queue")["held"][0]["interrupted"]
    assert "interrupted" in stage.root.mam("queue").out
    why = stage.root.ok("why", "session:rev-a")
    assert "no process carries that loop out" in why["because"] and why["next"] == f"mam why {loop}"
    stage.go(loop, "gate")
    assert stage.resume(loop).code == 0
    assert stage.root.ok("why", "session:rev-a")["state"] == "free"


@pytest.mark.scorecard(16)
@pytest.mark.req("M85")
def test_reviewers_of_a_killed_loop_go_to_the_next_in_line_after_its_time(stage: Stage) -> None:
    stage.root.env["MAM_LEASE_TTL_S"] = "2"
    try:
        dead, first, second = stage.plan(rev_a=[GATED]), stage.plan(), stage.plan()
        child = stage.start(stage.changed(), dead)
        stage.reached(dead, "gate", "rev-a")
        waiting = [stage.start(stage.changed(), first)]
        until(lambda: len(stage.root.ok("queue")["waiting"]) == 1)
        waiting.append(stage.start(stage.changed(), second))
        until(lambda: len(stage.root.ok("queue")["waiting"]) == 2)

        child.send_signal(signal.SIGKILL)
        child.wait(120)
        stage.go(dead, "gate")

        assert [each.wait(120) for each in waiting] == [0, 0]
        ended = [stage.row(loop).ended_at or 0 for loop in (first, second)]
        assert ended == sorted(ended), "the order of the queue is kept"
    finally:
        del stage.root.env["MAM_LEASE_TTL_S"]


@pytest.mark.req("M85")
def test_reviewers_of_a_killed_loop_come_back_though_the_monitor_was_killed_with_it(stage: Stage) -> None:
    stage.root.env["MAM_LEASE_TTL_S"] = "2"
    try:
        dead, next_one = stage.plan(rev_a=[GATED]), stage.plan()
        child = stage.start(stage.changed(), dead)
        stage.reached(dead, "gate", "rev-a")
        waiting = stage.start(stage.changed(), next_one)
        until(lambda: stage.root.ok("queue")["waiting"])

        child.send_signal(signal.SIGKILL)
        child.wait(120)
        stage.root.kill_monitor()
        stage.go(dead, "gate")

        assert waiting.wait(120) == 0
    finally:
        del stage.root.env["MAM_LEASE_TTL_S"]


@pytest.mark.scorecard(15)
@pytest.mark.req("M85")
def test_a_stopped_loop_that_wakes_up_after_its_time_is_fenced_and_asks_again(stage: Stage) -> None:
    stage.root.env["MAM_LEASE_TTL_S"] = "1"
    try:
        slept, other = stage.plan(rev_a=[GATED]), stage.plan(rev_a=[[{"report": "not_pass"}]])
        child = stage.start(stage.changed(), slept)
        stage.reached(slept, "gate", "rev-a")
        with stage.root.asleep(child.pid):
            until(lambda: not stage.root.ok("queue")["held"], what="the lease is over")
            stage.go(slept, "gate")
            stage.idle("rev-a")
            taken = stage.run(stage.changed(), other)
            assert taken.code == 3, "the reviewer works for the other loop meanwhile"

        assert child.wait(120) == 0
        assert [review.verdict for review in stage.state(slept).round.reviews] == ["pass"]
        assert len(stage.prompts(slept, "rev-a")) == 1, "what was said is not asked for twice"
    finally:
        del stage.root.env["MAM_LEASE_TTL_S"]


@pytest.mark.scorecard(17)
@pytest.mark.req("M85")
def test_a_reviewer_that_was_stopped_past_its_time_and_wakes_up_is_fenced_and_its_old_verdict_has_no_effect(
    stage: Stage,
) -> None:
    stopped: list[dict[str, str]] = [{"gate": "stopped"}, {"report": "pass"}]
    loop = stage.plan(rev_a=[stopped, [{"report": "not_pass"}]])
    child = stage.start(stage.changed(), loop, "--limit", "40")  # enough for the second attempt, however loaded
    stage.reached(loop, "stopped", "rev-a")
    session, job = stage.root.session("rev-a"), stage.job(loop, 1, "rev-a")
    groups = {os.getpgid(session.agent_pid), os.getpgid(session.pid)}

    for group in groups:
        os.killpg(group, signal.SIGSTOP)
    try:
        until(lambda: stage.root.job(job.id).attempt == 2, what="it is asked anew")
        stage.go(loop, "stopped")
    finally:
        for group in groups:
            os.killpg(group, signal.SIGCONT)

    assert child.wait(120) == 3, "the second verdict counts"
    assert [review.verdict for review in stage.state(loop).round.reviews] == ["not_pass"]
    old = [
        event for event in stage.root.events(f"jobs/{job.id}") if event["kind"] == "report" and event["attempt"] == 1
    ]
    assert [event["outcome"] for event in old] == ["stale_attempt"]
    assert (stage.root.job(job.id).verdict, stage.root.job(job.id).attempt) == ("not_pass", 2)


@pytest.mark.req("M84")
def test_a_reviewer_at_work_keeps_its_tree_when_its_loop_gives_up_waiting_for_another(stage: Stage) -> None:
    stage.root.env |= {"MAM_LEASE_TTL_S": "1", "MAM_LOOP_WAIT_S": "2"}
    try:
        dead, loop = stage.plan(rev_b=[GATED]), stage.plan(rev_a=[GATED])
        child = stage.start(stage.changed(), dead, reviewers=["rev-b"])
        stage.reached(dead, "gate", "rev-b")
        child.send_signal(signal.SIGKILL)
        child.wait(120)
        until(lambda: not stage.root.ok("queue")["held"], what="the lease is over")

        stuck = stage.run(stage.changed(), loop, reviewers=["rev-a", "rev-b"])
        assert stuck.code == 1 and "rev-b has a job already" in stuck.json["detail"]
        stage.reached(loop, "gate", "rev-a")
        stage.go(loop, "gate")
        stage.go(dead, "gate")
        stage.idle("rev-a", "rev-b")

        assert stage.job(loop, 1, "rev-a").verdict == "pass", "its tree was there to the end"
        assert stage.resume(loop).code == 0
    finally:
        del stage.root.env["MAM_LEASE_TTL_S"], stage.root.env["MAM_LOOP_WAIT_S"]
