"""What a runner's messages make of a session and of a delivery: only this life counts, and what began goes on."""

from dataclasses import replace

import pytest

from mam.broker.envelope.events import DeliveryReport, Presence, Signal
from mam.control_plane.jobs import state as job_state
from mam.control_plane.registry.records import Attempt, Job, Session
from mam.control_plane.sessions import state as session_state

NOW = 1000
SESSION = Session(
    "writer", "grok", "creator", "running", 2, "0002", "tmux", "s", "%1", "/w", "", "[]", "{}", None, 0, 0
)  # fmt: skip
JOB = Job("job-00000001", "mam/0/jobs", "t", "writer", "queued", 1, "/j", "a" * 64, 120, 60, 3600, 6, 0, 0)
ATTEMPT = Attempt("job-00000001", 1, "writer", 0)
HERE = Presence(online=True, incarnation="0002", pid=7, start_time="1", boot_id="b", version="0")
EXIT = Signal(name="agent_exited", exit_code=3, incarnation="0002")


def test_a_runner_that_speaks_for_the_first_time_was_given_up_too_early_and_a_stopped_one_stays_stopped() -> None:
    given_up = replace(SESSION, status="ended", ended_reason="the pane closed before the runner reported")

    back = session_state.presence(given_up, HERE, now=NOW)
    assert (back.status, back.ended_reason, back.pid) == ("running", None, 7)
    for row in (replace(given_up, pid=6), replace(SESSION, status="stopped")):
        assert session_state.presence(row, HERE, now=NOW).status == row.status


@pytest.mark.parametrize("name", ["agent_exited", "permission", "conversation_id"])
def test_what_an_earlier_life_said_changes_nothing_of_this_one(name: str) -> None:
    said = Signal.model_validate({"name": name, "incarnation": "0001", "conversation_id": "old"})

    assert session_state.signal(SESSION, said, now=NOW) == SESSION


def test_the_screen_of_an_earlier_life_or_of_a_dead_agent_is_not_this_ones() -> None:
    assert session_state.shows(SESSION, Signal(name="screen", incarnation="0002"))
    assert not session_state.shows(SESSION, Signal(name="screen", incarnation="0001"))
    assert not session_state.shows(replace(SESSION, status="ended"), Signal(name="screen", incarnation="0002"))


def test_last_words_that_come_after_the_death_was_found_still_say_how_the_agent_ended_and_only_once() -> None:
    found = replace(SESSION, status="ended", ended_reason="the runner ended without a word")

    told = session_state.signal(found, EXIT, now=NOW)

    assert (told.ended_reason, told.exit_code) == ("the agent ended", 3)
    assert session_state.signal(told, Signal(name="agent_exited", exit_code=9), now=NOW) == told
    stopped = replace(SESSION, status="stopped")
    assert session_state.signal(stopped, EXIT, now=NOW) == stopped


def test_a_hook_of_an_agent_that_has_ended_says_nothing() -> None:
    asks = Signal(name="permission", incarnation="0002")

    assert session_state.signal(SESSION, asks, now=NOW).hook == "permission"
    ended = replace(SESSION, status="ended")
    assert session_state.signal(ended, asks, now=NOW) == ended


def test_a_conversation_that_is_known_is_not_exchanged() -> None:
    first = session_state.signal(SESSION, Signal(name="conversation_id", conversation_id="one"), now=NOW)

    assert first.conversation == "one"
    assert session_state.signal(first, Signal(name="conversation_id", conversation_id="two"), now=NOW) == first


def test_a_refused_prompt_ends_nothing_that_has_begun() -> None:
    refused = DeliveryReport(state="refused", reason="dialog")

    assert job_state.delivery(JOB, ATTEMPT, refused, now=NOW)[0].state == "agent_blocked"
    begun = replace(ATTEMPT, started_at=1)
    assert job_state.delivery(replace(JOB, state="running"), begun, refused, now=NOW)[0].state == "running"


@pytest.mark.parametrize(
    ("attempt", "state"),
    [
        (ATTEMPT, "dispatched"),
        (replace(ATTEMPT, delivery="unknown", delivered_at=1), "dispatched"),
        (replace(ATTEMPT, delivery="submitted", delivered_at=1), "lost"),
        (replace(ATTEMPT, started_at=1), "lost"),
    ],
)
def test_work_that_had_begun_is_lost_with_the_agent_that_was_started_anew(attempt: Attempt, state: str) -> None:
    restarted = DeliveryReport(state="unknown", reason="restarted")

    assert job_state.delivery(JOB, attempt, restarted, now=NOW)[0].state == state


def test_the_presence_of_an_earlier_life_changes_nothing_and_offline_is_a_question_not_an_end() -> None:
    for seen in (HERE, HERE.model_copy(update={"online": False})):
        assert session_state.presence(SESSION, seen.model_copy(update={"incarnation": "0001"}), now=NOW) == SESSION

    asked = session_state.presence(SESSION, HERE.model_copy(update={"online": False}), now=NOW)
    assert (asked.presence, asked.status) == ("offline", "running")
