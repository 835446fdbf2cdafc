"""Scorecard 19 and 20: loops whose process dies at each of its steps, and creators that never keep still."""

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from mam.control_plane.loops.state import LoopState
from tests.support import FULL, git, size, until
from tests.support.stage import Child, Stage

Figure = Callable[[str, float], None]
REVIEWERS = ("rev-a", "rev-b")

# The points of a loop, and those of the jobs that it makes.
POINTS = [
    "loop.save",
    "loop.saved",
    "loop.step",
    "loop.stepped",
    "snapshot.commit",
    "snapshot.pin",
    "review.tree.add",
    "review.tree.added",
    "loop.promote",
    "loop.promoted.ref",
    "job.files",
    "key.fsync",
    "key.link",
    "json.fsync",
    "json.rename",
    "verdict.fsync",
    "verdict.rename",
    "registry.commit",
    "registry.committed",
]


DEATHS = size(4, 60)  # of one loop


def left(stage: Stage, loop: str) -> list[str]:
    """What a loop that has ended may not leave behind."""
    with stage.root.registry.view() as view:
        found = [job.id for job in view.open_jobs() if job.loop == loop]
        found += [lease.resource for lease in view.leases()] + [ticket.id for ticket in view.waiting()]
        found += [mark.step for mark in view.steps(loop) if mark.state != "done"]
    return found + stage.benches()


def lived_through(stage: Stage, point: str, first: int, *, again: bool) -> int:
    """
    Carry a loop out whose process dies at the *first* pass of *point*, and check its end; how often it died.

    With *again* each process that takes it up dies as well, one pass later than the one before; at most DEATHS do.
    """
    tree = stage.changed()
    (tree / "uncommitted").write_text("u\n")
    loop, deaths = stage.plan(), 0
    child = stage.start(tree, loop, "--promote", "branch", reviewers=REVIEWERS, fault=f"{point}:{first}:crash")
    while child.wait(120) == -9:
        deaths += 1
        assert deaths <= DEATHS, f"{point} is passed again and again"
        fault = f"{point}:{first + deaths}:crash" if again and deaths < DEATHS else ""
        if stage.row_or_none(loop) is None:  # it died before there was a loop: its user begins again
            child = stage.start(tree, loop, "--promote", "branch", reviewers=REVIEWERS, fault=fault)
        else:
            child = stage.spawn("loop", "resume", loop, fault=fault)
    if child.returncode:  # it died behind the end of the loop, and there was nothing to resume
        assert "loop_ended" in child.communicate()[1]
    row, state = stage.row(loop), stage.state(loop)
    assert (row.outcome, len(state.rounds), bool(state.promoted)) == ("passed", 1, True)
    assert [review.verdict for review in state.round.reviews] == ["pass", "pass"]
    for name in REVIEWERS:
        assert stage.prompts(loop, name) == [f"[MAM job {loop}-r1-{name}, attempt 1]"]
    assert git(tree, "rev-parse", "HEAD") == row.head_sha and git(tree, "status", "--porcelain") == ""
    assert git(tree, "show", "HEAD:uncommitted") == "u" and len(stage.pins(loop)) == 2
    until(lambda: left(stage, loop) == [], what="nothing is left")
    return deaths


@pytest.mark.req("M80", "M82")
@pytest.mark.scorecard(19)
@pytest.mark.parametrize("point", POINTS)
def test_a_loop_that_dies_at_each_pass_of_a_point_comes_to_the_same_end_and_repeats_no_job(
    stage: Stage, figure: Figure, point: str
) -> None:
    deaths = lived_through(stage, point, 1, again=True)
    assert deaths, f"{point} was never passed"
    if FULL:
        number = 0
        while died := lived_through(stage, point, (number := number + 1), again=False):
            deaths += died
    figure("deaths", deaths)


@pytest.mark.scorecard(19)
def test_a_resumed_loop_costs_little_beside_what_its_reviewers_take(stage: Stage, figure: Figure) -> None:
    loop = stage.plan()
    child = stage.start(stage.changed(), loop, "--promote", "branch", reviewers=REVIEWERS, fault="loop.stepped:3:crash")
    assert child.wait(120) == -9
    stage.idle(*REVIEWERS)  # all is said, and nobody has heard it

    began = time.monotonic()
    assert stage.resume(loop).code == 0

    figure("overhead_s", time.monotonic() - began)
    assert [len(stage.prompts(loop, name)) for name in REVIEWERS] == [1, 1]


def passed_heads(state: LoopState) -> set[str]:
    """The commits that every reviewer passed."""
    return {each.head for each in state.rounds if each.reviews and {r.verdict for r in each.reviews} == {"pass"}}


def has_ended(child: Child) -> bool:
    return child.poll() is not None


def at_change(stage: Stage, number: int, over: Callable[[], bool]) -> bool:
    """Wait until the registry has changed so many times; False where the loop was over before."""
    watch = stage.root.registry.watch()
    try:
        before = watch.data_version()
        while number:
            if over():
                return False
            if (now := watch.data_version()) != before:
                before, number = now, number - 1
    finally:
        watch.connection.close()
    return True


@pytest.mark.req("M56", "M57")
@pytest.mark.scorecard(20)
def test_what_a_creator_commits_at_any_moment_is_never_promoted_unreviewed(
    stage: Stage, dice: random.Random, figure: Figure
) -> None:
    tree = stage.tree()
    moments = unreviewed = superseded = 0
    for number in range(size(6, 20)):
        git(tree, "reset", "-q", "--hard", git(stage.root.path, "rev-parse", "main"))
        stage.change(tree, "work", f"work {number}\n")
        loop = stage.plan()
        child = stage.start(tree, loop, "--promote", "merge", reviewers=REVIEWERS)
        for _ in range(dice.choice((1, 1, 2))):
            if at_change(stage, dice.randrange(1, 40), partial(has_ended, child)):
                moments += 1
                stage.change(tree, "more", f"{dice.random()}\n")

        assert child.wait(120) == 0, child.communicate()
        state = stage.state(loop)
        promoted = git(stage.root.path, "rev-parse", "main")
        unreviewed += promoted not in passed_heads(state)
        superseded += sum(each.stale for each in state.rounds)
        assert promoted == stage.row(loop).head_sha

    assert unreviewed == 0
    figure("moments", moments)
    figure("superseded", superseded)
    figure("unreviewed", unreviewed)


@pytest.mark.req("M57")
@pytest.mark.scorecard(20)
@pytest.mark.parametrize("mode", ["branch", "merge"])
@pytest.mark.parametrize("point", ["loop.saved:4", "loop.step:4", "loop.promote:1"])
@pytest.mark.parametrize("move", ["commit", "edit"])
def test_what_moves_between_the_last_verdict_and_the_promotion_is_reviewed_first(
    stage: Stage, figure: Figure, mode: str, point: str, move: str
) -> None:
    tree = stage.tree()
    git(tree, "reset", "-q", "--hard", git(stage.root.path, "rev-parse", "main"))
    stage.change(tree)
    (tree / f"{tree.name}-uncommitted").write_text("u\n")
    loop = stage.plan()
    child = stage.start(tree, loop, "--promote", mode, reviewers=REVIEWERS, fault=f"{point}:crash")
    assert child.wait(120) == -9
    assert {review.verdict for review in stage.state(loop).round.reviews} == {"pass"}

    if move == "commit":
        stage.change(tree, f"{tree.name}-late")
    else:
        (tree / f"{tree.name}-uncommitted").write_text("other\n")
    assert stage.resume(loop).code == 0

    state = stage.state(loop)
    promoted = git(stage.root.path if mode == "merge" else tree, "rev-parse", "HEAD")
    figure("moments", 1)
    figure("superseded", sum(each.stale for each in state.rounds))
    figure("unreviewed", promoted not in passed_heads(state))
    assert promoted == state.round.head and promoted in passed_heads(state) and state.rounds[0].stale
