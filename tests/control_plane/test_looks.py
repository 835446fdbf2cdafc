"""One look of the monitor at everything: what it notes, and what it does not do again and again."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from mam.broker import proof
from mam.control_plane import delegation, jobs, reconcile, seats, watch, why
from mam.control_plane.looking import DARK_S, Looking
from mam.control_plane.rows import Finding
from mam.control_plane.sweep import Sweep
from mam.wrappers.mux import LookFailed, Pane

from .conftest import Desk


@pytest.fixture
def looking(desk: Desk) -> Looking:
    return Looking(desk.mam, desk.mam.registry, Sweep(desk.mam.layout.run, desk.inbox), desk.inbox, lambda: desk.clock)


def look(desk: Desk, looking: Looking) -> list[str]:
    """The codes of all findings after one look."""
    with desk.mam.registry.view() as view:
        looking.tick(view, "", [])
    with desk.mam.registry.view() as view:
        return [finding.code for finding in view.findings()]


@pytest.mark.parametrize("gone", ["brief.md", "job.json"])
def test_a_job_that_cannot_be_tried_again_is_one_finding_and_no_line_of_the_log_a_second(
    desk: Desk, looking: Looking, caplog: pytest.LogCaptureFixture, gone: str
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


def test_a_session_that_was_stopped_meanwhile_adopts_no_pane(desk: Desk, looking: Looking) -> None:
    session = desk.session(pane="", updated_at=desk.clock - 60_000)
    pane = Pane("p9", seats.tag(desk.mam, "writer"), 1, dead=False, exit_code=None)
    with desk.mam.registry.view() as before:
        before.sessions()
        with desk.mam.registry.transaction() as tx:
            tx.put(replace(session, status="stopped"))
        looking._adopt(before, reconcile.World({(session.mux, session.mux_server): [pane]}))

    with desk.mam.registry.view() as view:
        after = view.session("writer")
    assert after is not None and after.pane == ""


def test_multiplexers_that_do_not_answer_are_asked_again_later_and_one_at_a_time(
    desk: Desk, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {name: desk.session(name, mux_server=name, updated_at=desk.clock - 60_000) for name in ("a", "b", "c")}
    there = Pane("p1", seats.tag(desk.mam, "c"), 1, dead=False, exit_code=None)
    asked: list[str] = []

    class Server:
        def __init__(self, name: str) -> None:
            self.name = name

        def panes(self) -> list[Pane]:
            asked.append(self.name)
            if self.name != "c":
                raise LookFailed(server=self.name, why="no answer within 10 s")
            return [there]

    monkeypatch.setattr(reconcile.muxes, "make", lambda _, server, *__: Server(server))
    with desk.mam.registry.transaction() as tx:
        for row in rows.values():
            tx.put(replace(row, pid=1, pid_start=proof.start_time(1), boot_id=proof.boot_id()))
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
        said = why.job(view, desk.row(job.id), why.Now(desk.clock, monitor=True))

    assert (said.because, said.awaited) == ("what was seen", awaited)


def test_a_finding_says_what_is_true_now_since_it_was_first_seen(desk: Desk) -> None:
    for at, text in ((1, "on a"), (2, "on b")):
        with desk.mam.registry.view() as view:
            watch.note_findings(desk.mam.registry, view, [Finding("main_moved", "/repo", at, text)])

    with desk.mam.registry.view() as view:
        assert [(each.since, each.text) for each in view.findings()] == [(1, "on b")]
