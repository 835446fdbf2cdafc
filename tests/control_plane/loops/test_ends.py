"""Loops that end otherwise than by a verdict: stuck, killed, cancelled, refused; and what is left of each."""

import json
import os
import signal
from pathlib import Path

import pytest

from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.monitor import repository_checks
from tests.support import Root, git, until
from tests.support.stage import REVIEWERS, Child, Stage, main_checkout

PASS, GATE = [{"report": "pass"}], {"gate": "gate"}


def open_jobs(stage: Stage, loop: str) -> list[str]:
    with stage.root.registry.view() as view:
        return [job.id for job in view.open_jobs() if job.loop == loop]


def held(stage: Stage) -> list[str]:
    with stage.root.registry.view() as view:
        return [lease.resource for lease in view.leases()] + [ticket.id for ticket in view.waiting()]


def killed(stage: Stage, loop: str, child: Child) -> None:
    """The process that carries a loop out dies without a word."""
    child.kill()
    child.wait()
    assert not loop_locks.runs(stage.root.parts, loop)


def named(stage: Stage) -> str:
    """All that status says, in both its forms."""
    return stage.root.mam("status").out + json.dumps(stage.root.ok("status"))


# -- stuck ----------------------------------------------------------------------------------------


def test_a_reviewer_that_dies_stops_the_loop_why_names_each_next_command_and_they_complete_it(stage: Stage) -> None:
    loop = stage.plan(rev_b=[[{"gate": "never"}], PASS])
    child = stage.start(stage.changed(), loop, reviewers=REVIEWERS)
    stage.reached(loop, "never", "rev-b")

    stage.kill_agent("rev-b")
    stage.go(loop, "never")
    out, _ = child.communicate(timeout=120)

    assert child.returncode == 1 and json.loads(out)["state"] == "stuck"
    why = stage.root.ok("why", loop)
    assert why["because"].startswith("no verdict from rev-b: ") and why["awaited"] == "a person"
    steps = why["next"].split(", then ")
    assert steps == ["mam agent resume rev-b", f"mam loop resume {loop}"]
    until(lambda: "loop_stuck" in named(stage), what="the finding of a stuck loop")
    for step in steps:
        said = stage.root.mam(*step.split()[1:], timeout_s=120)
        assert said.code == 0, said.err
    assert stage.row(loop).outcome == "passed"
    assert [len(stage.prompts(loop, name)) for name in ("rev-a", "rev-c")] == [1, 1]


def test_a_reviewer_that_is_gone_before_it_is_asked_is_asked_when_it_is_back(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(stage.tree(), loop, fault="loop.saved:1:crash")
    assert child.wait(120) == -9
    stage.change(Path(stage.row(loop).worktree))
    assert stage.root.mam("agent", "stop", "rev-a").code == 0

    stuck = stage.resume(loop)

    assert (stuck.code, stuck.json["state"]) == (1, "stuck")
    assert "rev-a is stopped" in stuck.json["detail"] and "mam agent resume rev-a" in stage.root.ok("why", loop)["next"]
    missing = stage.root.ok("why", "rev-a")
    assert missing["awaited"] == f"its verdict in {loop}"
    assert missing["next"] == f"mam agent resume rev-a, then mam loop resume {loop}"
    second = stage.run(stage.row(loop).worktree, stage.plan(), reviewers=("rev-b",)).error
    assert "stuck" in second["message"]
    assert f"mam loop resume {loop}" in second["remedy"] and f"mam loop cancel {loop}" in second["remedy"]

    assert stage.root.mam("agent", "resume", "rev-a").code == 0
    until(lambda: stage.root.session("rev-a").screen == "ready")
    stage.go(loop, "gate")
    assert stage.resume(loop).code == 0
    assert len(stage.prompts(loop, "rev-a")) == 1


def test_a_job_of_an_open_loop_is_not_tried_again_by_hand_behind_the_loops_back(stage: Stage) -> None:
    silent: list[dict[str, str]] = [{"report": "failed", "text": "no database\n"}]
    loop = stage.plan(rev_a=[silent, silent, PASS])
    stuck = stage.run(stage.changed(), loop)
    assert stuck.json["detail"] == "no verdict from rev-a: it reported that it failed"

    by_hand = stage.root.mam("job", "retry", loop_jobs.job_id(loop, 1, "rev-a"), "--json")

    assert (by_hand.code, by_hand.error["code"]) == (1, "job_of_loop")
    assert f"mam loop resume {loop}" in by_hand.error["remedy"]
    assert stage.resume(loop).code == 0 and len(stage.prompts(loop, "rev-a")) == 3


@pytest.mark.req("M77")
def test_a_busy_reviewer_is_asked_again_after_a_while_and_why_names_what_keeps_it(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[{"gate": "busy"}, {"report": "done"}], PASS])
    task = stage.root.delegate("rev-a", "something else", "--id", f"{loop}-other")
    stage.reached(loop, "busy", "rev-a")
    busy = stage.root.mam("job", "delegate", "--to", "rev-a", "--brief", "-", "--json", stdin="more")
    assert (busy.code, busy.error["code"]) == (5, "session_busy")

    child = stage.start(stage.changed(), loop)
    until(lambda: stage.row_or_none(loop) and stage.row(loop).state == "reviewing")
    until(lambda: f"rev-a has the job {task}" in (why := stage.root.ok("why", loop))["because"]
          and why["next"] == f"mam why {task}")  # fmt: skip
    stage.go(loop, "busy")
    _, err = child.communicate(timeout=120)

    assert child.returncode == 0, err
    assert f"rev-a has a job already: {task}: trying again in 0.2 s" in err
    assert len(stage.prompts(loop, "rev-a")) == 2  # the other job's and its own


def test_a_reviewer_that_stays_busy_is_a_persons_matter_and_nothing_is_lost(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[{"gate": "busy"}, {"report": "done"}], PASS])
    stage.root.delegate("rev-a", "something else", "--id", f"{loop}-other")
    stage.reached(loop, "busy", "rev-a")

    said = stage.run(stage.changed(), loop, env={"MAM_LOOP_WAIT_S": "1"})

    assert (said.code, said.json["state"]) == (1, "stuck") and "for 1 s" in said.json["detail"]
    stage.go(loop, "busy")
    assert stage.resume(loop).code == 0


# -- a second one -------------------------------------------------------------------------------


@pytest.mark.req("M74", "M76", "M81")
def test_a_second_loop_of_the_same_worktree_or_id_is_refused_with_exit_1_and_names_the_running_one(
    stage: Stage,
) -> None:
    tree = stage.changed()
    loop, other = stage.plan(rev_a=[[GATE, *PASS]]), stage.plan()
    child = stage.start(tree, loop)
    stage.reached(loop, "gate", "rev-a")
    # Neither what a lock's file says nor a file that merely looks like one lets anybody in, or keeps anybody out.
    (stage.root.path / ".mam" / "loops" / f"{loop}.lock").write_text("nobody")
    (stage.root.path / ".mam" / "loops" / f"{other}.lock").write_text(str(child.pid))

    same_tree = stage.run(tree, other)
    same_id = stage.run(stage.changed(), loop)
    again = stage.resume(loop)
    stage.go(loop, "gate")

    for said in (same_tree, same_id, again):
        assert (said.code, said.error["code"]) == (1, "loop_runs"), said.err
        assert loop in said.error["message"] and f"mam loop cancel {loop}" in said.error["remedy"]
    assert child.wait(120) == 0
    assert stage.run(tree, other).code == 0
    ended = stage.run(tree, other).error
    assert ended["code"] == "loop_exists" and f"mam loop show {other}" in ended["remedy"], "nothing goes on with it"


@pytest.mark.req("M80", "M78")
def test_loops_side_by_side_with_reviewers_of_their_own_keep_apart_from_each_other(stage: Stage) -> None:
    names = ("rev-a", "rev-b", "rev-c")
    loops = [stage.plan(**{name.replace("-", "_"): [[GATE, *PASS]]}) for name in names]
    trees = [stage.changed() for _ in names]
    children = [
        stage.start(tree, loop, reviewers=(name,)) for tree, loop, name in zip(trees, loops, names, strict=True)
    ]
    for loop, name in zip(loops, names, strict=True):
        stage.reached(loop, "gate", name)

    assert stage.root.mam("loop", "cancel", loops[1]).code == 0
    for loop in loops:
        stage.go(loop, "gate")
    codes = [child.wait(120) for child in children]

    assert codes == [0, 1, 0]
    assert [stage.row(loop).outcome for loop in loops] == ["passed", "cancelled", "passed"]
    assert [stage.row(loop).head_sha for loop in loops] == [git(tree, "rev-parse", "HEAD") for tree in trees]


# -- killed -------------------------------------------------------------------------------------


@pytest.mark.req("M76", "M80", "M82")
def test_a_killed_loop_is_found_named_and_taken_up_by_exactly_one_of_two_and_no_job_is_repeated(stage: Stage) -> None:
    loop = stage.plan(rev_b=[[GATE, *PASS]])
    before = main_checkout(stage.root.path)
    child = stage.start(stage.changed(), loop, reviewers=REVIEWERS)
    stage.reached(loop, "gate", "rev-b")
    before["branches"] = git(stage.root.path, "for-each-ref", "refs/heads", "refs/tags", "refs/remotes")
    until(lambda: [review.verdict for review in stage.state(loop).round.reviews].count("pass") == 2)
    killed(stage, loop, child)

    assert "(interrupted)" in stage.root.mam("loop", "list", "--open").out
    until(lambda: f"loop_interrupted {loop}" in named(stage), what="the finding")
    why = stage.root.ok("why", loop)
    assert "is gone" in why["because"] and why["next"] == f"mam loop resume {loop}, or mam loop cancel {loop}"
    assert main_checkout(stage.root.path) == before
    assert all(each.split("/.reviews/")[1].split("/")[0] in named(stage) for each in stage.benches())

    both = [stage.spawn("loop", "resume", loop) for _ in range(2)]
    until(lambda: sum(each.poll() is not None for each in both) >= 1, what="one of two is refused")
    stage.go(loop, "gate")
    ends = sorted((each.wait(120), each.communicate()) for each in both)

    assert [code for code, _ in ends] == [0, 1]
    assert "at work already" in ends[1][1][1]
    assert stage.row(loop).outcome == "passed" and stage.benches() == []
    assert [len(stage.prompts(loop, name)) for name in REVIEWERS] == [1, 1, 1]
    assert "taken up again" in (stage.folder(loop) / "timeline.md").read_text()
    until(lambda: "loop_interrupted" not in named(stage), what="the finding is gone")


def test_an_interrupted_loop_says_how_to_go_on_and_its_reviews_count_when_it_does(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(stage.changed(), loop)
    stage.reached(loop, "gate", "rev-a")

    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    stage.go(loop, "gate")  # the verdict comes while nobody waits for it
    stage.idle("rev-a")

    assert child.returncode == 130
    assert f"mam loop resume {loop}" in err and f"mam loop cancel {loop}" in err
    assert stage.resume(loop).code == 0 and len(stage.prompts(loop, "rev-a")) == 1


def test_an_orchestrator_that_dies_again_and_again_repeats_no_job(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(stage.changed(), loop, reviewers=REVIEWERS)
    for _ in range(3):
        stage.reached(loop, "gate", "rev-a")
        killed(stage, loop, child)
        child = stage.spawn("loop", "resume", loop)
        until(lambda: loop_locks.runs(stage.root.parts, loop))
    stage.go(loop, "gate")

    assert child.wait(120) == 0
    assert [len(stage.prompts(loop, name)) for name in REVIEWERS] == [1, 1, 1]


@pytest.mark.req("M54")
@pytest.mark.parametrize("what", ["identity", "pins", "no pins"])
def test_a_loop_whose_identity_was_changed_behind_its_back_is_not_taken_up(stage: Stage, what: str) -> None:
    loop = stage.plan()
    child = stage.start(stage.changed(), loop, fault="loop.saved:3:crash")
    assert child.wait(120) == -9
    if what == "identity":
        path = stage.folder(loop) / "round-1" / "identity.json"
        path.write_text(path.read_text().replace(stage.row(loop).head_sha or "?", "f" * 40))
    else:
        pin = f"refs/mam/review/{loop}/1/head"
        other = git(stage.root.path, "rev-parse", "main")
        git(stage.root.path, "update-ref", *(["-d", pin] if what == "no pins" else [pin, other]))

    said = stage.resume(loop)

    assert (said.code, said.error["code"]) == (1, "identity_changed")
    assert f"mam loop cancel {loop}" in said.error["remedy"]
    assert stage.root.mam("loop", "cancel", loop).code == 0


# -- cancelled ------------------------------------------------------------------------------------


@pytest.mark.req("M82")
@pytest.mark.parametrize("when", ["running", "interrupted", "stuck", "before anything was asked"])
def test_a_loop_is_cancelled_from_wherever_it_is_and_leaves_nothing_at_work(stage: Stage, when: str) -> None:
    tree = stage.changed()
    before = main_checkout(stage.root.path)
    spoiled = [{"sh": "echo x > left-over"}, *PASS]
    loop = stage.plan(rev_a=[spoiled] if when == "stuck" else [[GATE, *PASS]])
    fault = "loop.saved:1:crash" if when == "before anything was asked" else ""
    child = stage.start(tree, loop, reviewers=REVIEWERS, fault=fault)
    if when in ("running", "interrupted"):
        stage.reached(loop, "gate", "rev-a")
        if when == "interrupted":
            killed(stage, loop, child)
    else:
        child.wait(120)

    said = stage.root.mam("loop", "cancel", loop, "--json", timeout_s=120)

    assert said.code == 0 and said.json["outcome"] == "cancelled", said.err
    timeline = (stage.folder(loop) / "timeline.md").read_text("utf-8")
    if when == "running":
        assert child.wait(120) == 1
        assert "taken up again" not in timeline
    assert timeline.splitlines()[-1].endswith("cancelled: it was cancelled")
    assert open_jobs(stage, loop) == [] and stage.benches() == [] and held(stage) == []
    assert main_checkout(stage.root.path) == before
    assert stage.root.mam("loop", "cancel", loop, "--json").error["code"] == "loop_ended"
    assert stage.root.mam("loop", "resume", loop, "--json").error["code"] == "loop_ended"
    if when != "stuck":
        assert stage.run(tree, stage.plan(), reviewers=("rev-b",)).code == 0  # the worktree is free for another one


@pytest.mark.req("M45")
def test_a_worktree_that_a_loop_reviews_is_not_removed_under_it(stage: Stage) -> None:
    tree = Path(stage.root.ok("worktree", "prepare", "under-review", "--no-venv")["path"])
    stage.change(tree)
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(tree, loop)
    stage.reached(loop, "gate", "rev-a")

    for more in ([], ["--stop"], ["--purge"]):
        said = stage.root.mam("worktree", "remove", "under-review", *more, "--json")
        assert (said.code, said.error["code"]) == (5, "worktree_busy") and loop in said.error["message"]
        assert f"mam loop cancel {loop}" in said.error["remedy"]

    stage.go(loop, "gate")
    assert child.wait(120) == 0
    stage.root.ok("worktree", "remove", "under-review")


def test_a_loop_that_dies_while_it_is_cancelled_leaves_no_job_that_nobody_waits_for(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(stage.changed(), loop)
    stage.reached(loop, "gate", "rev-a")
    killed(stage, loop, child)

    assert stage.root.mam("loop", "cancel", loop, env={"MAM_FAULT": "cli@loop.saved:1:crash"}).code == -9

    assert open_jobs(stage, loop) == [] and stage.row(loop).outcome == "cancelled"
    until(lambda: stage.benches() == [], what="the monitor removes what nobody will come back for")


def test_a_loop_with_an_archived_job_is_not_called_verified(stage: Stage) -> None:
    loop = stage.plan()
    assert stage.run(stage.changed(), loop, reviewers=("rev-a", "rev-b")).code == 0
    assert stage.root.mam("verify", loop).code == 0

    stage.root.ok("job", "archive", stage.job(loop, 1, "rev-a").id)
    said = stage.root.mam("verify", loop, "--json")

    assert (said.code, said.error["code"]) == (1, "job_archived")


@pytest.mark.req("M82")
def test_an_archived_loop_lets_go_of_its_pins_and_an_open_one_cannot_be_archived(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(stage.changed(), loop)
    stage.reached(loop, "gate", "rev-a")

    assert stage.root.mam("loop", "archive", loop, "--json").error["code"] == "loop_runs"
    assert len(stage.pins(loop)) == 2
    stage.go(loop, "gate")
    assert child.wait(120) == 0 and len(stage.pins(loop)) == 2

    assert stage.root.ok("loop", "archive", loop)["pins"] == 2
    assert stage.pins(loop) == [] and stage.folder(loop).is_dir()
    assert loop not in stage.root.mam("loop", "list").out


def test_trees_that_a_dead_loop_left_behind_are_removed_when_nobody_came_back(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(stage.changed(), loop)
    stage.reached(loop, "gate", "rev-a")
    killed(stage, loop, child)
    assert len(stage.benches()) == 2  # git's word of it and the folder
    os.utime(stage.root.parts.layout.reviews / loop, (1, 1))  # an hour later
    with stage.root.registry.view() as view:
        assert repository_checks.sweep(stage.root.parts, view) == [], "its reviewer is at work in it"
    stage.go(loop, "gate")
    stage.idle("rev-a")

    with stage.root.registry.view() as view:
        assert repository_checks.sweep(stage.root.parts, view) == [loop]  # as the monitor does now and then

    assert stage.benches() == []
    done = stage.resume(loop)  # what was said about a tree that is gone does not count, so it is asked again
    assert done.code == 0 and len(stage.prompts(loop, "rev-a")) == 2


def test_a_loop_whose_worktree_is_removed_by_hand_waits_for_it_and_says_so(stage: Stage) -> None:
    tree = stage.changed()
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(tree, loop)
    stage.reached(loop, "gate", "rev-a")
    moved = tree.with_name(f"moved-{tree.name}")
    tree.rename(moved)
    stage.go(loop, "gate")
    out, _ = child.communicate(timeout=120)

    assert child.returncode == 1 and json.loads(out)["state"] == "stuck"
    assert f"{tree} cannot be captured as one commit: the directory is gone" in json.loads(out)["detail"]
    moved.rename(tree)
    assert stage.resume(loop).code == 0


def test_a_loop_goes_on_without_a_monitor_that_dies(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    child = stage.start(stage.changed(), loop)
    stage.reached(loop, "gate", "rev-a")
    stage.root.kill_monitor()
    stage.go(loop, "gate")

    assert child.wait(120) == 0


def test_verbs_of_loops_that_are_not_there_say_so(root: Root) -> None:
    for verb in ("show", "resume", "cancel", "archive"):
        said = root.mam("loop", verb, "loop-none", "--json")
        assert (said.code, said.error["code"]) == (2, "unknown_loop"), said.err
        assert root.mam("loop", verb, "../../etc", "--json").code == 2
    assert not list((root.path / ".mam").glob("**/*etc*"))
