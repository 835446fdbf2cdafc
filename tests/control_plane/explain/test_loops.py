"""What a person is told of a loop at each moment: who waits for an answer, what counts, what to do next."""

import json
from collections.abc import Iterator

import pytest

from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops.state import LoopState, Round
from mam.control_plane.sessions import runtime
from tests.support import MAM, until
from tests.support.stage import Child, Stage


@pytest.fixture
def asker(stage: Stage) -> Iterator[str]:
    """A reviewer that asks on its screen before it passes anything."""
    script: list[dict[str, object]] = [{"started": {}}, {"ask": "run the tests?"}, {"report": {"verdict": "pass"}}]
    stage.root.agent("asker", *script, role="reviewer")
    yield "asker"
    stage.root.ok("agent", "stop", "asker", "--force")


def test_a_question_on_a_reviewers_screen_is_told_once_with_the_command_that_shows_it(stage: Stage, asker: str) -> None:
    loop = stage.plan()
    child = stage.start(stage.changed(), loop, reviewers=(asker, "rev-a"))

    line = said_when(child, asker)

    assert line.strip() == f"… the screen of {asker} asks for a permission"
    assert said_when(child, "mam agent").strip() == f"→ mam agent show {asker}"
    why = stage.root.ok("why", loop)
    assert why["because"].endswith(f"the screen of {asker} asks for a permission")
    assert (why["awaited"], why["next"]) == ("a person", f"mam agent show {asker}")
    session = stage.root.session(asker)
    runtime.multiplexer(stage.root.parts, session).press(session.pane, "Enter")
    _, rest = child.communicate(timeout=90)
    assert child.returncode == 0 and "asks for a permission" not in rest


def test_a_question_that_an_agent_put_with_its_verb_is_told_with_the_command_that_answers_it(stage: Stage) -> None:
    loop = stage.plan()
    ask = f"{MAM} job ask --registry-dir $MAM_JOBS_DIR --job {loop}-r1-rev-a --attempt 1 'which one?'"
    turns = {"rev-a": [[{"sh": ask}, {"report": "pass"}]]}
    (stage.plans / f"{loop}.json").write_text(json.dumps(turns), "utf-8")
    child = stage.start(stage.changed(), loop)

    line = said_when(child, "which one?")

    command = stage.root.ok("why", loop)["next"]
    assert command.startswith(f"mam job answer {loop}-r1-rev-a TEXT --question ")
    assert line.strip() == "… rev-a asks: “which one?”"
    assert said_when(child, "mam job answer").strip() == f"→ {command}"
    stage.root.ok("job", "answer", f"{loop}-r1-rev-a", "this one")
    child.communicate(timeout=90)
    assert child.returncode == 0


def test_work_that_was_reported_after_its_loop_had_given_it_up_is_not_done_again(stage: Stage) -> None:
    tree = stage.changed()
    stage.agent("late", "--cwd", str(tree), role="creator")
    loop = stage.plan(late=[[{"gate": "held"}, {"report": "done"}]])
    stuck = stage.run(tree, loop, "--creator", "late", "--limit", "3")
    assert (stuck.json["state"], stage.job(loop, 1).state) == ("stuck", "timed_out")

    stage.go(loop, "held")
    until(lambda: stage.job(loop, 1).state == "reported", what="the late report")
    done = stage.resume(loop)

    assert (done.code, done.json["outcome"]) == (0, "passed"), done.err
    assert stage.job(loop, 1).attempt == 1
    stage.root.ok("agent", "stop", "late")


def test_what_was_promoted_already_is_no_next_step(stage: Stage) -> None:
    tree = stage.changed()
    loop = stage.plan()
    head = stage.run(tree, loop, "--promote", "branch").json["head_sha"]
    why = stage.root.ok("why", loop)
    assert why["because"].endswith(f"; {tree.name} is at {head}") and why["next"] == f"mam loop show {loop}"


def test_a_round_without_a_commit_is_not_shown_as_one() -> None:
    state = LoopState(("a",), "writer", 3, rounds=(Round(1, work=True),))
    assert loop_files.rounds_table(state) == [["1", "-", "-", "-"]]


def said_when(child: Child, words: str) -> str:
    """The first line of what it says that holds *words*."""
    assert child.stderr is not None
    for line in child.stderr:
        said = str(line)
        if words in said:
            return said
    raise AssertionError(f"it ended without a word of {words!r}")
