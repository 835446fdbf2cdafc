"""What the monitor ends by itself: only on proof, only the life that was looked at, and nothing that still speaks."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mam.broker import spool
from mam.broker.envelope import topics
from mam.broker.host import process_identity
from mam.control_plane.jobs import liveness
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import job_checks
from mam.control_plane.monitor.job_checks import Ended, PresumedEnd
from mam.control_plane.registry.records import Job, Session
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions.activity import Activity
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.protocol import MuxGone, MuxSilent, Pane
from tests.support.desk import Desk

SPAWNING_MS, NO_PANE_MS = job_checks.NEVER_REPORTED_MS, job_checks.NO_PANE_MS


class Server:
    def __init__(self, answer: Callable[[], list[Pane]]) -> None:
        self.panes = answer


def fails(error: Exception) -> list[Pane]:
    raise error


GONE, DUMB = MuxGone(server="s"), MuxSilent(server="s", why="no answer")


def ended(desk: Desk, monkeypatch: pytest.MonkeyPatch, session: Session, answer: Callable[[], list[Pane]]) -> list[str]:
    monkeypatch.setattr(mux_catalog, "make", lambda *_: Server(answer))
    return [each.session for each in job_checks.ended_sessions(desk.mam, [session])]


def unheard(desk: Desk, silent_ms: int, pane: str = "p1") -> Session:
    """A session whose runner never said anything, since so long."""
    return desk.session(pane=pane, updated_at=desk.clock - silent_ms)


def test_a_multiplexer_that_does_not_answer_ends_no_session_and_one_that_is_gone_does(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = unheard(desk, SPAWNING_MS + 1000)

    assert ended(desk, monkeypatch, session, lambda: fails(DUMB)) == []
    own = Pane("p1", runtime.tag(desk.mam, "writer"), 1, dead=False, exit_code=None)
    assert ended(desk, monkeypatch, session, lambda: [own]) == []
    assert ended(desk, monkeypatch, session, lambda: [own._replace(dead=True, exit_code=0)]) == ["writer"]
    assert ended(desk, monkeypatch, session, lambda: [own._replace(tag="another's")]) == ["writer"]
    assert ended(desk, monkeypatch, session, lambda: fails(GONE)) == ["writer"]


def test_a_pane_that_is_still_being_opened_has_longer_than_one_that_was_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = unheard(desk, SPAWNING_MS + 1000, pane="")

    assert ended(desk, monkeypatch, opening, lambda: fails(GONE)) == []
    assert ended(desk, monkeypatch, replace(opening, pane="p1"), lambda: fails(GONE)) == ["writer"]
    long_ago = replace(opening, updated_at=desk.clock - NO_PANE_MS - 1000)
    assert ended(desk, monkeypatch, long_ago, lambda: fails(GONE)) == ["writer"]


def lost(desk: Desk) -> list[tuple[str, str]]:
    """Verdicts of one look at the open jobs."""
    sweep, signs = SpoolSweep(desk.mam.layout.run, desk.inbox), Activity(desk.mam)
    seen = job_checks.Watched(sweep, lambda *_: desk.clock, signs, began=0, now=desk.clock)
    with desk.mam.registry.view() as view:
        return [(each.job, each.state) for each in job_checks.jobs_now(view, seen, liveness.Patience())[0]]


def deliver(desk: Desk, job: Job) -> None:
    with desk.mam.registry.transaction() as tx:
        attempt = tx.attempt(job.id, 1)
        assert attempt is not None
        tx.put(replace(attempt, delivered_at=desk.clock))


def test_a_job_of_a_dead_agent_is_lost_only_when_its_spool_holds_nothing_of_it(desk: Desk) -> None:
    session, job = desk.session(), desk.job()
    deliver(desk, job)
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(session, status="ended"))
    outbox = desk.mam.layout.run_dir("writer") / "outbox"
    kept = spool.write(outbox, "a" * 32, topics.job(job.id), desk.report(job))

    assert lost(desk) == [], "it reported; nobody has read it yet"
    kept.unlink()
    assert lost(desk) == [(job.id, "lost")]


def test_a_job_that_never_reached_its_dead_agent_waits_for_its_return(desk: Desk) -> None:
    session = desk.session()
    desk.job()
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(session, status="ended"))

    assert lost(desk) == []


@pytest.mark.parametrize(("incarnation", "status"), [("0001", "ended"), ("0000", "running")])
def test_only_the_life_that_was_looked_at_is_ended(desk: Desk, incarnation: str, status: str) -> None:
    desk.session()

    job_checks.act(desk.mam.registry, [Ended("writer", incarnation, "gone")], [])

    with desk.mam.registry.view() as view:
        after = view.session("writer")
    assert after is not None and after.status == status


@pytest.mark.parametrize(("attempt", "state"), [(1, "queued"), (2, "lost")])
def test_a_verdict_about_an_earlier_attempt_ends_nothing(desk: Desk, attempt: int, state: str) -> None:
    desk.session()
    job = desk.job()
    with desk.mam.registry.transaction() as tx:
        first = tx.attempt(job.id, 1)
        assert first is not None
        tx.put(replace(first, attempt=2))
        tx.put(replace(job, attempt=2))

    job_checks.act(desk.mam.registry, [], [PresumedEnd(job.id, attempt, "lost", "its agent is gone")])

    assert desk.row(job.id).state == state


@pytest.mark.parametrize("delivered", [True, False])
def test_a_prompt_that_was_given_up_is_called_back_and_one_that_arrived_is_not(desk: Desk, delivered: bool) -> None:
    me = process_identity.me()
    desk.session(pid=me.pid, pid_start=me.start, boot_id=me.boot)
    job = desk.job()
    if delivered:
        deliver(desk, job)

    job_checks.act(desk.mam.registry, [], [PresumedEnd(job.id, 1, "agent_blocked", "not delivered")])

    with desk.mam.registry.view() as view:
        assert ("cancel" in [order.kind for order in view.outbox()]) != delivered
