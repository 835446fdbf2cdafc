"""One life of an agent is not taken for another, and a slow start is no death."""

from dataclasses import replace

from mam.broker.envelope.events import Presence, Signal
from mam.broker.envelope.payloads import now_ms
from mam.control_plane.monitor import job_checks
from mam.control_plane.sessions import state as session_state
from tests.support.desk import Desk


def test_a_pane_that_is_slow_to_open_is_not_gone(desk: Desk) -> None:
    desk.session(status="starting", pane="", updated_at=now_ms() - 11_000)

    with desk.mam.registry.view() as view:
        assert job_checks.ended_sessions(desk.mam, view.sessions()) == []


def test_a_runner_that_speaks_after_it_was_given_up_is_taken_back(desk: Desk) -> None:
    row = desk.session(status="ended", ended_reason="the pane closed before the runner reported")
    seen = Presence(online=True, incarnation="0001", pid=1, start_time="1", boot_id="b", version="1")

    after = session_state.presence(row, seen, now=1)

    assert (after.status, after.ended_reason) == ("running", None)
    assert session_state.presence(replace(after, status="ended"), seen, now=1).status == "ended"
    assert session_state.presence(replace(row, status="stopped"), seen, now=1).status == "stopped"


def test_the_end_of_an_earlier_life_does_not_end_this_one(desk: Desk) -> None:
    row = desk.session()

    assert session_state.signal(row, Signal(name="agent_exited", incarnation="0000"), now=1) == row
    assert session_state.signal(row, Signal(name="agent_exited", incarnation="0001"), now=1).status == "ended"
