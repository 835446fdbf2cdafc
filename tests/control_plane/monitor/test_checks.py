"""One look of the monitor at everything: what it notes, and what it does not do again and again."""

import logging
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mam.broker.host import process_identity
from mam.control_plane.explain import agents_and_jobs
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.inbox import Inbox
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import job_checks, reconcile
from mam.control_plane.monitor.checks import DARK_S, MonitorChecks
from mam.control_plane.registry.records import FINAL, PRESUMED, Finding
from mam.control_plane.sessions import runtime
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.protocol import MuxSilent, Pane
from tests.support import until
from tests.support.desk import Desk


@pytest.fixture
def looking(desk: Desk) -> MonitorChecks:
    return MonitorChecks(
        desk.mam, desk.mam.registry, SpoolSweep(desk.mam.layout.run, desk.inbox), desk.inbox, lambda: desk.clock
    )


def look(desk: Desk, looking: MonitorChecks) -> list[str]:
    """The codes of all findings after one look."""
    with desk.mam.registry.view() as view:
        looking.tick(view, "", [])
    with desk.mam.registry.view() as view:
        return [finding.code for finding in view.findings()]


@pytest.mark.parametrize("gone", ["brief.md", "job.json"])
def test_a_job_that_cannot_be_tried_again_is_one_finding_and_no_line_of_the_log_a_second(
    desk: Desk, looking: MonitorChecks, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    desk.session()
    limits = delegation.default_limits(desk.mam)._replace(retries=2)
    job = delegation.delegate(desk.mam, "writer", "do it", job_id="job-00000001", limits=limits)
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(job, state="lost"))
    (Path(job.folder) / gone).unlink()
    if gone == "job.json":
        (Path(job.folder) / gone / "in the way").mkdir(parents=True)

    with caplog.at_level(logging.INFO):
        found = [look(desk, looking) for _ in range(3)]

    assert found == [["retry_refused"]] * 3 and caplog.text == ""
    jobs.archive(desk.mam, job.id)
    assert look(desk, looking) == []


@pytest.mark.parametrize("change", [{"status": "stopped"}, {"incarnation": "0002"}], ids=["stopped", "its next life"])
def test_a_session_that_is_another_one_meanwhile_adopts_no_pane(
    desk: Desk, looking: MonitorChecks, change: dict[str, Any]
) -> None:
    session = desk.session(pane="", updated_at=desk.clock - 60_000)
    pane = Pane("p9", runtime.tag(desk.mam, "writer"), 1, dead=False, exit_code=None)
    with desk.mam.registry.view() as before:
        before.sessions()
        with desk.mam.registry.transaction() as tx:
            tx.put(replace(session, **change))
        looking._adopt(before, reconcile.World({(session.mux, session.mux_server): [pane]}))

    with desk.mam.registry.view() as view:
        after = view.session("writer")
    assert after is not None and after.pane == ""


def test_multiplexers_that_do_not_answer_are_asked_again_later_and_one_at_a_time(
    desk: Desk, looking: MonitorChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {name: desk.session(name, mux_server=name, updated_at=desk.clock - 60_000) for name in ("a", "b", "c")}
    there = Pane("p1", runtime.tag(desk.mam, "c"), 1, dead=False, exit_code=None)
    asked: list[str] = []

    class Server:
        def __init__(self, name: str) -> None:
            self.name = name

        def panes(self) -> list[Pane]:
            asked.append(self.name)
            if self.name != "c":
                raise MuxSilent(server=self.name, why="no answer within 10 s")
            return [there]

    monkeypatch.setattr(mux_catalog, "make", lambda _, server, *__: Server(server))
    with desk.mam.registry.transaction() as tx:
        for row in rows.values():
            tx.put(replace(row, pid=1, pid_start=process_identity.start_time(1), boot_id=process_identity.boot_id()))
    looks = []
    for later_s in (0, 0, DARK_S + 1, 0):
        looking._dark = {place: since - later_s for place, since in looking._dark.items()}
        looking._reconcile_at = 0.0
        assert look(desk, looking) == []
        looks.append("".join(asked))
        asked.clear()

    assert looks == ["abc", "c", "ac", "bc"]


@pytest.mark.parametrize(("code", "awaited"), [("blocked", "a person"), ("silent", "its heartbeat")])
def test_why_says_what_was_found_where_the_screen_shows_nothing_of_it(desk: Desk, code: str, awaited: str) -> None:
    desk.session(screen="working")
    job = desk.job()
    desk.take(job.id, desk.wire(job.id, "started"))
    with desk.mam.registry.transaction() as tx:
        attempt = tx.attempt(job.id, 1)
        assert attempt is not None
        tx.put(replace(attempt, received_at=desk.clock, delivered_at=desk.clock))
        tx.put(Finding(code, job.id, desk.clock, "what was seen"))

    with desk.mam.registry.view() as view:
        said = agents_and_jobs.job(view, desk.row(job.id), agents_and_jobs.Observed(desk.clock, monitor=True))

    assert (said.because, said.awaited) == ("what was seen", awaited)


def test_a_finding_says_what_is_true_now_since_it_was_first_seen(desk: Desk) -> None:
    for at, text in ((1, "on a"), (2, "on b")):
        with desk.mam.registry.view() as view:
            job_checks.note_findings(desk.mam.registry, view, [Finding("main_moved", "/repo", at, text)])

    with desk.mam.registry.view() as view:
        assert [(each.since, each.text) for each in view.findings()] == [(1, "on b")]


def test_a_finding_of_a_question_says_what_is_asked(desk: Desk, looking: MonitorChecks) -> None:
    me = process_identity.me()
    desk.session(pid=me.pid, pid_start=me.start, boot_id=me.boot)
    job = desk.job()
    asked = {"question_id": "0123456789ab", "question": "Which database?", "choices": []}
    desk.take(job.id, desk.wire(job.id, "started"), desk.wire(job.id, "asked", asked))

    assert look(desk, looking) == ["blocked"]
    with desk.mam.registry.view() as view:
        assert "Which database?" in view.findings()[0].text


@pytest.mark.parametrize(
    ("retries", "status", "monitor", "following"),
    [
        (1, "ended", True, "mam agent resume writer"),
        (1, "running", True, "mam why writer"),
        (1, "running", False, "mam up"),
        (0, "ended", True, "mam agent resume writer, then mam job retry job-00000001"),
    ],
)
def test_why_asks_for_no_retry_that_the_monitor_makes_by_itself(
    desk: Desk, retries: int, status: str, monitor: bool, following: str
) -> None:
    desk.session()
    desk.job()
    with desk.mam.registry.transaction() as tx:
        session, job = tx.session("writer"), tx.job("job-00000001")
        assert session is not None and job is not None
        tx.put(replace(session, status=status))
        tx.put(replace(job, state="lost", retries=retries))

    with desk.mam.registry.view() as view:
        said = agents_and_jobs.job(
            view, desk.row("job-00000001"), agents_and_jobs.Observed(desk.clock, monitor=monitor)
        )

    assert said.next == following
    assert ("attempt 2 of 2" in said.awaited) == (retries == 1)


def test_why_says_that_a_runner_was_stopped_and_what_wakes_it(desk: Desk) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        here = process_identity.of(sleeper.pid)
        assert here is not None
        session = desk.session(pid=here.pid, pid_start=here.start, boot_id=here.boot)

        def evidence() -> str:
            with desk.mam.registry.view() as view:
                return agents_and_jobs.session(
                    view, session, agents_and_jobs.Observed(desk.clock, monitor=True)
                ).evidence[0]

        assert evidence() == f"runner: pid {here.pid} lives"
        sleeper.send_signal(signal.SIGSTOP)
        until(lambda: evidence() == f"runner: pid {here.pid} was stopped: kill -CONT {here.pid}")
    finally:
        sleeper.kill()
        sleeper.wait()


def attempts_of(desk: Desk, looking: MonitorChecks, state: str, retries: int) -> list[int]:
    """The attempts of a job that always comes to a presumed end, one look after the other."""
    limits = delegation.default_limits(desk.mam)._replace(retries=retries)
    job = delegation.delegate(desk.mam, "writer", "do it", job_id="job-00000001", limits=limits)
    seen = []
    for _ in range(4):
        with desk.mam.registry.transaction() as tx:
            row = tx.job(job.id)
            assert row is not None
            tx.put(replace(row, state=state))
        look(desk, looking)
        seen.append(desk.row(job.id).attempt)
    return seen


@pytest.mark.parametrize(("retries", "attempts"), [(0, [1, 1, 1, 1]), (2, [2, 3, 3, 3])])
@pytest.mark.parametrize("state", PRESUMED)
def test_a_job_is_tried_again_as_often_as_its_policy_says_and_by_default_never(
    desk: Desk, looking: MonitorChecks, state: str, retries: int, attempts: list[int]
) -> None:
    desk.session()

    assert attempts_of(desk, looking, state, retries) == attempts


@pytest.mark.parametrize("state", FINAL)
def test_what_was_reported_or_cancelled_is_not_tried_again(desk: Desk, looking: MonitorChecks, state: str) -> None:
    desk.session()

    assert attempts_of(desk, looking, state, 3) == [1, 1, 1, 1]


def test_a_next_attempt_waits_without_a_complaint_until_its_agent_is_free(desk: Desk, looking: MonitorChecks) -> None:
    desk.session()
    limits = delegation.default_limits(desk.mam)._replace(retries=1)
    first = delegation.delegate(desk.mam, "writer", "do it", job_id="job-00000001", limits=limits)
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(first, state="lost"))
    other = desk.job(job_id="job-00000002")

    assert look(desk, looking) == []
    assert desk.row(first.id).attempt == 1
    desk.take(other.id, desk.report(desk.row(other.id)))
    assert look(desk, looking) == []
    assert desk.row(first.id).attempt == 2


def test_a_difference_counts_from_the_second_sight_and_goes_with_its_reason(
    desk: Desk, looking: MonitorChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = process_identity.me()
    old = desk.session(pid=me.pid, pid_start=me.start, boot_id=me.boot, updated_at=desk.clock - 60_000)
    panes: list[Pane] = []

    class Server:
        def panes(self) -> list[Pane]:
            return panes

    monkeypatch.setattr(mux_catalog, "make", lambda *_: Server())

    def sight() -> list[str]:
        looking._reconcile_at = 0.0
        return look(desk, looking)

    assert (sight(), sight()) == ([], ["pane_dead"])
    panes.append(Pane(old.pane, runtime.tag(desk.mam, "writer"), 1, dead=False, exit_code=None))
    assert sight() == []
    panes.clear()
    assert sight() == [], "it is a first sight again"


def test_who_is_not_heard_by_a_monitor_that_just_began_is_not_silent(desk: Desk) -> None:
    me = process_identity.me()
    desk.session(screen="working", pid=me.pid, pid_start=me.start, boot_id=me.boot)
    job = desk.job()
    desk.take(job.id, desk.wire(job.id, "started"))
    desk.clock += 300_000
    inbox = Inbox(desk.mam.registry, desk.keyring, clock=lambda: desk.clock)
    began = MonitorChecks(
        desk.mam, desk.mam.registry, SpoolSweep(desk.mam.layout.run, inbox), inbox, lambda: desk.clock
    )

    assert look(desk, began) == []
    for _ in range(10):
        desk.clock += 10_000
        found = look(desk, began)
    assert found == ["silent"]


def test_a_runner_whose_connection_the_broker_still_holds_is_found_dead_all_the_same(
    desk: Desk, looking: MonitorChecks
) -> None:
    desk.session(pid=2**22 + 1, pid_start="1", boot_id=process_identity.boot_id(), presence="online")

    look(desk, looking)

    with desk.mam.registry.view() as view:
        after = view.session("writer")
    assert after is not None and (after.status, after.ended_reason) == ("ended", "the runner ended without a word")


def test_why_of_an_open_job_says_what_is_wrong_with_the_broker(desk: Desk) -> None:
    desk.session()
    job = desk.job()

    with desk.mam.registry.view() as view:
        said = agents_and_jobs.job(
            view, job, agents_and_jobs.Observed(desk.clock, monitor=True, problem="not connected")
        )

    assert "not connected" in said.because and said.next == "mam doctor"
