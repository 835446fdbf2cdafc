"""Where registry and world disagree: every kind by its code, and no difference where nobody could look."""

from dataclasses import replace
from pathlib import Path

import pytest

from mam.broker.host import process_identity
from mam.control_plane.jobs import liveness
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import job_checks, reconcile
from mam.control_plane.monitor.reconcile import World
from mam.control_plane.registry.records import Attempt, Session
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions.activity import Activity
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.protocol import Pane
from tests.control_plane.loops.test_review_trees import a_loop
from tests.support.desk import Desk

OLD = -60_000


def old(desk: Desk, name: str = "writer", **more: object) -> Session:
    """A session that nobody works on at this moment."""
    row = desk.session(name, **more)
    aged = replace(row, updated_at=desk.clock + OLD)
    with desk.mam.registry.transaction() as tx:
        tx.put(aged)
    return aged


def pane(desk: Desk, session: Session, *, dead: bool = False, pane_id: str = "p1", tag: str = "") -> Pane:
    return Pane(pane_id, tag or runtime.tag(desk.mam, session.name), 1, dead, None)


def kinds(desk: Desk, world: World) -> list[tuple[str, str]]:
    with desk.mam.registry.view() as view:
        return [(drift.kind, drift.subject) for drift in reconcile.compare(desk.mam, view, world)]


def world_of(session: Session, *panes: Pane) -> World:
    return World({(session.mux, session.mux_server): panes})


def test_what_is_as_the_rows_say_is_no_difference(desk: Desk) -> None:
    session = old(desk)

    assert kinds(desk, world_of(session, pane(desk, session))) == []


@pytest.mark.req("M94")
@pytest.mark.parametrize("dead", [True, False])
def test_a_dead_pane_and_a_missing_one_are_kind_a(desk: Desk, dead: bool) -> None:
    session = old(desk)
    panes = [pane(desk, session, dead=True)] if dead else []

    assert kinds(desk, world_of(session, *panes)) == [("A", "writer")]


@pytest.mark.req("M93")
def test_each_row_is_compared_with_its_own_server(desk: Desk) -> None:
    one, other = old(desk), old(desk, "second", mux_server="/elsewhere")
    world = World({(one.mux, one.mux_server): [pane(desk, one)], (other.mux, other.mux_server): [pane(desk, other)]})

    assert kinds(desk, world) == []


@pytest.mark.req("M93")
def test_a_server_that_did_not_answer_is_no_difference(desk: Desk) -> None:
    old(desk)

    assert kinds(desk, World({})) == []


def test_a_row_that_is_being_worked_on_is_no_difference(desk: Desk) -> None:
    session = desk.session()

    assert kinds(desk, world_of(session)) == []


@pytest.mark.req("M94")
def test_a_pane_with_our_tag_that_no_row_names_is_kind_b_and_foreign_panes_are_none(desk: Desk) -> None:
    session = old(desk)
    mine, ours = pane(desk, session), f"{desk.mam.fingerprint}/forgotten"

    world = world_of(session, mine, pane(desk, session, pane_id="p2", tag=ours))
    assert kinds(desk, world) == [("B", "forgotten")]
    world = world_of(session, mine, pane(desk, session, pane_id="p2", tag="0123456789ab/writer"))
    assert kinds(desk, world) == []


@pytest.mark.req("M94")
def test_a_dead_pane_beside_and_one_of_a_session_that_is_just_resumed_are_no_kind_b(desk: Desk) -> None:
    session = old(desk)
    world = world_of(session, pane(desk, session), pane(desk, session, pane_id="p2", dead=True))
    assert kinds(desk, world) == []

    with desk.mam.registry.transaction() as tx:
        tx.put(replace(session, updated_at=desk.clock))
    assert kinds(desk, world_of(session, pane(desk, session), pane(desk, session, pane_id="p2"))) == []


def test_a_row_that_names_no_pane_yet_misses_none(desk: Desk) -> None:
    session = old(desk, pane="")

    assert kinds(desk, world_of(session)) == []


@pytest.mark.parametrize(("status", "command"), [("running", "kill 1"), ("ended", "mam agent resume writer")])
def test_what_ends_a_second_pane_is_a_command_that_does(desk: Desk, status: str, command: str) -> None:
    session = old(desk, status=status)
    world = world_of(session, pane(desk, session), pane(desk, session, pane_id="p2"))

    with desk.mam.registry.view() as view:
        said = {drift.next for drift in reconcile.compare(desk.mam, view, world) if drift.kind == "B"}

    assert said == {command}


def test_only_a_row_without_a_pane_adopts_the_one_that_carries_its_tag(desk: Desk) -> None:
    session = old(desk, pane="")

    def adoptable(*panes: Pane) -> list[str]:
        with desk.mam.registry.view() as view:
            return [pane_id for _, pane_id in reconcile.adoptable(desk.mam, view, world_of(session, *panes))]

    assert adoptable(pane(desk, session)) == ["p1"]
    assert adoptable(pane(desk, session), pane(desk, session, pane_id="p2")) == [], "two are a doubt"
    assert adoptable(pane(desk, session, dead=True)) == []
    assert adoptable(pane(desk, session, tag="0123456789ab/writer")) == []


@pytest.mark.parametrize(("status", "age_ms"), [("ended", -OLD), ("running", 0)])
def test_a_row_that_has_ended_or_is_being_worked_on_adopts_no_pane(desk: Desk, status: str, age_ms: int) -> None:
    session = desk.session(pane="", status=status, updated_at=desk.clock - age_ms)

    with desk.mam.registry.view() as view:
        assert reconcile.adoptable(desk.mam, view, world_of(session, pane(desk, session))) == []


def test_a_clock_that_was_set_back_hides_no_dead_pane(desk: Desk) -> None:
    session = old(desk)
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(session, updated_at=desk.clock + 3_600_000))

    assert kinds(desk, world_of(session)) == [("A", "writer")]
    with desk.mam.registry.view() as view:
        assert [each.session for each in job_checks.ended_sessions(desk.mam, view.sessions())] == ["writer"]


@pytest.mark.req("M94")
def test_a_conversation_that_is_nowhere_is_kind_c(desk: Desk) -> None:
    session = old(desk, conversation="gone", agent="scripted")
    with desk.mam.registry.transaction() as tx:
        tx.put(Attempt("job-00000009", 1, "writer", desk.clock + OLD, started_at=desk.clock + OLD))

    assert kinds(desk, world_of(session, pane(desk, session))) == [("C", "writer")]
    (desk.mam.layout.run_dir("writer") / "memory.json").write_text("[]", "utf-8")
    assert kinds(desk, world_of(session, pane(desk, session))) == []


@pytest.mark.req("M94")
@pytest.mark.parametrize("doubt", ["none", "prompt of now", "directory gone", "agent unknown"])
def test_a_conversation_counts_as_missing_only_where_it_could_be_there(desk: Desk, doubt: str) -> None:
    agent = "nobody-knows" if doubt == "agent unknown" else "scripted"
    cwd = str(desk.mam.layout.root / "away") if doubt == "directory gone" else str(desk.mam.layout.root)
    session = old(desk, conversation="gone", agent=agent, cwd=cwd)
    begun = desk.clock + (0 if doubt == "prompt of now" else OLD)
    with desk.mam.registry.transaction() as tx:
        tx.put(Attempt("job-00000009", 1, "writer", begun, started_at=begun))

    assert kinds(desk, world_of(session, pane(desk, session))) == ([("C", "writer")] if doubt == "none" else [])


def test_an_open_job_of_a_dead_session_is_kind_e(desk: Desk) -> None:
    session = old(desk)
    desk.job()
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(session, status="ended"))

    assert kinds(desk, world_of(session)) == [("E", "job-00000001")]


def test_a_server_that_is_gone_is_one_finding_however_many_panes_it_had(desk: Desk) -> None:
    sessions = [old(desk, name) for name in ("one", "two", "three")]

    found = kinds(desk, World({(sessions[0].mux, sessions[0].mux_server): None}))

    assert found == [("F", sessions[0].mux_server)]


def test_a_server_that_is_gone_with_nobody_alive_in_it_is_no_finding(desk: Desk) -> None:
    session = old(desk, status="stopped")

    assert kinds(desk, World({(session.mux, session.mux_server): None})) == []


def test_a_card_of_a_job_that_is_archived_or_unknown_is_kind_h(desk: Desk) -> None:
    desk.session()
    desk.job()
    with desk.mam.registry.transaction() as tx:
        tx.put(a_loop("loop-1a2b3c4d"))
    here = ["jobs/job-00000001/state", "loops/loop-1a2b3c4d/state"]
    seen = [*here, "jobs/job-99999999/state", "loops/gone/state", "monitor/state", "odd"]

    with desk.mam.registry.view() as view:
        left = reconcile.left_over(view, seen)

    assert left == ["jobs/job-99999999/state", "loops/gone/state"]
    assert kinds(desk, World({}, cards=left)) == [("H", topic) for topic in left]


def test_a_monitor_of_another_version_is_kind_i(desk: Desk) -> None:
    assert kinds(desk, World({}, monitor_version="0.0.1")) == [("I", "monitor")]


@pytest.mark.req("M95")
def test_rows_outside_of_the_control_root_are_compared_like_all_others_and_stay(desk: Desk, tmp_path: Path) -> None:
    elsewhere = old(desk, "elsewhere", cwd=str(tmp_path))

    assert kinds(desk, world_of(elsewhere, pane(desk, elsewhere))) == []
    assert kinds(desk, world_of(elsewhere)) == [("A", "elsewhere")]
    with desk.mam.registry.view() as view:
        assert view.session("elsewhere") is not None


class TestTwentyAmongTwenty:
    """Twenty agents stuck in different ways among twenty that work: all are noticed in time, none wrongly."""

    STUCK_MS, STALLED_MS = 60_000, 900_000
    WAYS = ("asking", "dialog", "error", "ready", "silent", "stalled", "asked", "hook")

    def team(self, desk: Desk) -> dict[str, str]:
        """Forty agents at work; the stuck ones' jobs, and as what each is to be noticed."""
        me, now = process_identity.me(), desk.clock
        stuck: dict[str, str] = {}
        alive = {"pid": me.pid, "pid_start": me.start, "boot_id": me.boot}
        for number in range(40):
            name, job_id = f"agent-{number}", f"job-000000{number:02d}"
            way = self.WAYS[number % len(self.WAYS)] if number < 20 else ""
            screen = way if way in ("asking", "dialog", "error", "ready") else "working"
            desk.session(name, screen=screen, screen_at=now + 1, **alive)
            job = desk.job(name, job_id)
            desk.take(job_id, desk.wire(job_id, "started"))
            with desk.mam.registry.transaction() as tx:
                session, attempt = tx.session(name), tx.attempt(job_id, 1)
                assert session is not None and attempt is not None
                tx.put(replace(attempt, delivered_at=now, started_at=now, last_progress_at=None))
                if way == "hook":
                    tx.put(replace(session, hook="permission", hook_at=now + 2))
            if way == "asked":
                data = {"question_id": f"{number:012x}", "question": "which?", "choices": []}
                desk.take(job.id, desk.wire(job_id, "asked", data))
            if way:
                stuck[job_id] = {"ready": "idle_waiting", "silent": "silent", "stalled": "stalled"}.get(way, "blocked")
        return stuck

    def look(self, desk: Desk, stuck: dict[str, str], at_ms: int) -> dict[str, str]:
        """What is found at *at_ms* after the prompts, while the healthy ones go on and only the silent are silent."""
        now = desk.clock + at_ms
        with desk.mam.registry.transaction() as tx:
            for job in tx.open_jobs():
                attempt = tx.attempt(job.id, 1)
                if job.id not in stuck and attempt is not None:
                    tx.observe(attempt, last_progress_at=now - 1000)
        sweep, signs = SpoolSweep(desk.mam.layout.run, desk.inbox), Activity(desk.mam)
        heard = lambda job, _: 0 if stuck.get(job) == "silent" else now  # noqa: E731
        seen = job_checks.Watched(sweep, heard, signs, began=0, now=now)
        with desk.mam.registry.view() as view:
            limits = liveness.Patience(self.STUCK_MS, self.STALLED_MS, heartbeat_s=10)
            verdicts, findings = job_checks.jobs_now(view, seen, limits)
        assert verdicts == [], "no job is ended for it"
        return {finding.subject: finding.code for finding in findings}

    @pytest.mark.scorecard(25)
    @pytest.mark.req("M99")
    def test_all_are_noticed_within_their_time_and_one_second_and_no_other_ever(self, desk: Desk) -> None:
        stuck = self.team(desk)
        waiting = {job for job, code in stuck.items() if code == "stalled"}

        early = self.look(desk, stuck, 5_000)
        in_time = self.look(desk, stuck, self.STUCK_MS + 1000)
        late = self.look(desk, stuck, self.STALLED_MS + 1000)

        asked = {job for job in early if early[job] == "blocked"}
        assert set(early) == asked and len(asked) == 2, "only what an agent asks itself is said at once"
        assert in_time == {job: code for job, code in stuck.items() if job not in waiting}
        assert late == stuck


def test_a_look_at_the_world_asks_each_server_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        desk.session(f"agent-{number}", mux_server=str(desk.mam.layout.run / f"headless-{number % 2}"))
    asked: list[tuple[str, ...]] = []

    class Server:
        def panes(self) -> list[Pane]:
            return []

    def make(*place: object) -> Server:
        asked.append((str(place[0]), str(place[1])))
        return Server()

    monkeypatch.setattr(mux_catalog, "make", make)
    with desk.mam.registry.view() as view:
        reconcile.look(desk.mam, view)

    assert len(asked) == 2
