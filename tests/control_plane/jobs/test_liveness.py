"""Six states of an agent at work, by rule: what is a question, what is none, and since when."""

from dataclasses import replace
from typing import Any

import pytest

from mam.control_plane.jobs import liveness
from mam.control_plane.jobs.liveness import Patience, Seen
from mam.control_plane.registry.records import Attempt, Job, Session

SHA = "a" * 64
NOW = 10_000_000
MIN = 60_000
JOB = Job("job-00000001", "mam/0/jobs", "t", "writer", "running", 1, "/j", SHA, 120, 60, 3600, 3, 0, 0)
ATTEMPT = Attempt("job-00000001", 1, "writer", NOW - 30 * MIN, delivered_at=NOW - 30 * MIN, started_at=NOW - 29 * MIN)
SESSION = Session(
    "writer", "grok", "creator", "running", 1, "1", "tmux", "s", "%1", "/w", "", "[]", "{}", "c", 0, 0,
    screen="working", screen_at=NOW - 29 * MIN,
)  # fmt: skip
SEEN = Seen(NOW, alive=True, heard_at=NOW - 1000)
PATIENCE = Patience(stuck_ms=MIN, stalled_ms=15 * MIN, heartbeat_s=10)


def judge(session: Session = SESSION, attempt: Attempt = ATTEMPT, seen: Seen = SEEN, job: Job = JOB):  # type: ignore[no-untyped-def]
    return liveness.judge(job, attempt, session, seen, PATIENCE)


def test_an_agent_that_said_something_lately_progresses() -> None:
    found = judge(attempt=replace(ATTEMPT, last_progress_at=NOW - MIN))

    assert (found.state, found.due, found.evidence) == ("progressing", False, "it said what it does")


@pytest.mark.req("M99")
@pytest.mark.parametrize("sign", ["written_at", "committed_at"])
def test_a_conversation_that_grows_or_a_new_commit_is_progress_too(sign: str) -> None:
    assert judge().state == "stalled"
    changed: dict[str, Any] = {sign: NOW - MIN}
    assert judge(seen=SEEN._replace(**changed)).state == "progressing"


@pytest.mark.req("M99")
def test_heartbeats_alone_are_no_progress() -> None:
    found = judge(attempt=replace(ATTEMPT, last_heartbeat_at=NOW))

    assert (found.state, found.due, found.since) == ("stalled", True, ATTEMPT.started_at)


@pytest.mark.req("M99")
@pytest.mark.parametrize("screen", ["asking", "dialog", "error"])
def test_a_question_on_the_screen_blocks_and_is_due_when_it_stands(screen: str) -> None:
    fresh = judge(replace(SESSION, screen=screen, screen_at=NOW - MIN + 1))
    stands = judge(replace(SESSION, screen=screen, screen_at=NOW - MIN))

    assert (fresh.state, fresh.due) == ("blocked", False)
    assert (stands.state, stands.due) == ("blocked", True)


@pytest.mark.req("M99")
def test_the_agents_own_hook_is_believed_before_its_screen_and_not_after_it_moved_on() -> None:
    hooked = replace(SESSION, hook="permission", hook_at=NOW - 2 * MIN, screen_at=NOW - 3 * MIN)
    assert (judge(hooked).state, judge(hooked).due) == ("blocked", True)

    moved_on = replace(hooked, screen="working", screen_at=NOW - MIN)
    assert judge(moved_on, replace(ATTEMPT, last_progress_at=NOW)).state == "progressing"

    answered = replace(hooked, hook="permission_answered")
    assert judge(answered, replace(ATTEMPT, last_progress_at=NOW)).state == "progressing"


def test_a_question_of_the_last_turn_says_nothing_about_this_one() -> None:
    old = replace(SESSION, screen="asking", screen_at=NOW - 40 * MIN)

    assert judge(old, replace(ATTEMPT, last_progress_at=NOW)).state == "progressing"


@pytest.mark.req("M99")
def test_a_turn_that_ended_without_a_report_waits_idly() -> None:
    found = judge(replace(SESSION, screen="ready", screen_at=NOW - 2 * MIN))

    assert (found.state, found.due) == ("idle_waiting", True)


def test_a_screen_that_was_ready_before_the_prompt_says_nothing_about_this_turn() -> None:
    was_ready = replace(SESSION, screen="ready", screen_at=NOW - 31 * MIN)

    assert judge(was_ready, replace(ATTEMPT, last_progress_at=NOW)).state == "progressing"


@pytest.mark.req("M98")
@pytest.mark.parametrize("misses", [1, 3, 60])
def test_missed_heartbeats_are_counted_by_the_jobs_own_limit(misses: int) -> None:
    own = replace(JOB, heartbeat_misses=misses)
    assert judge(seen=SEEN._replace(heard_at=NOW - misses * 10_000), job=own).state != "silent"
    assert judge(seen=SEEN._replace(heard_at=NOW - misses * 10_000 - 1), job=own).state == "silent"


@pytest.mark.req("M98")
def test_a_slow_timer_of_the_agents_own_sets_the_interval() -> None:
    slow = replace(ATTEMPT, heartbeat_s=60.0, last_progress_at=NOW - 179_000)

    assert judge(attempt=slow, seen=SEEN._replace(heard_at=0)).state == "progressing"


def test_what_an_agent_asks_itself_blocks_at_once_with_its_words() -> None:
    found = judge(seen=SEEN._replace(question="Which database?", asked_at=NOW - 1000))

    assert (found.state, found.due, found.evidence) == ("blocked", True, "Which database?")
    assert found.text.endswith("Which database?"), "status shows what is asked"


def test_only_proof_is_death_and_could_not_look_is_none() -> None:
    assert judge(seen=SEEN._replace(alive=False)).state == "dead"
    assert judge(seen=SEEN._replace(alive=None)).state != "dead"


def test_time_in_which_nobody_could_look_is_no_silence_and_no_standstill() -> None:
    slept = [(NOW - 28 * MIN, NOW - 1000)]

    assert judge(seen=SEEN._replace(heard_at=NOW - 28 * MIN, gaps=slept)).state == "progressing"


def test_time_in_which_nobody_could_look_makes_no_question_and_no_ready_screen_stand_longer() -> None:
    began, slept = NOW - 5 * MIN, [(NOW - 4 * MIN, NOW - 1000)]
    attempt = replace(ATTEMPT, delivered_at=began - MIN, started_at=began - MIN)
    doubts = {
        "screen": replace(SESSION, screen="asking", screen_at=NOW - 4 * MIN),
        "ready": replace(SESSION, screen="ready", screen_at=NOW - 4 * MIN),
        "hook": replace(SESSION, screen_at=began, hook="permission", hook_at=NOW - 4 * MIN),
    }

    for name, session in doubts.items():
        assert judge(session, attempt).due, name
        assert not judge(session, attempt, SEEN._replace(gaps=slept)).due, name


def test_a_turn_that_said_something_after_its_screen_was_ready_waits_from_then_on() -> None:
    ready = replace(SESSION, screen="ready", screen_at=NOW - 5 * MIN)

    assert judge(ready).due
    assert not judge(ready, replace(ATTEMPT, last_progress_at=NOW - 1000)).due


def test_what_has_not_begun_does_not_stand_still() -> None:
    waiting = replace(JOB, state="dispatched")

    assert judge(attempt=replace(ATTEMPT, started_at=None), job=waiting).state != "stalled"
