"""
Clocks, sleeps, silences and screens that mislead: nobody's work is given up, ended or typed into by mistake.

Limits by themselves: tests/control_plane/jobs/test_state.py. Screens of real agents: tests/agents. Lives that begin
and end at once: tests/control_plane/sessions/test_two_at_once.py.
"""

import os
import shlex
import signal
from pathlib import Path

import pytest

from mam.agents.protocol import ScreenState as AgentSignal
from mam.broker.envelope import topics
from mam.broker.envelope.events import Signal
from mam.broker.envelope.orders import FreeText
from mam.broker.envelope.payloads import now_ms
from mam.broker.host import process_identity
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.monitor import job_checks
from mam.control_plane.monitor.monitor import Monitor
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions import state as session_state
from mam.wrappers.runner.ledger import Ledger
from tests.support import Root, until
from tests.support.desk import Desk
from tests.wrappers.runner.terminal import Terminal

pytestmark = pytest.mark.hostile

EVENTS = topics.events("writer")
HOUR_S = 3600
LIMITS = delegation.Limits(started_within_s=120, deliver_within_s=60, limit_s=2 * HOUR_S, heartbeat_misses=6)


class Night:
    """One job, and a monitor whose clock the test sets."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        me = process_identity.me()  # a runner that lives
        desk.session(pid=me.pid, pid_start=me.start, boot_id=me.boot, presence="online")
        self.job = delegation.delegate(desk.mam, "writer", "do it", job_id="job-00000001", limits=LIMITS)
        desk.clock = now_ms()
        self.begin()

    def begin(self) -> None:
        """Start a monitor, also in place of an earlier one."""
        self.monitor = Monitor(self.desk.mam, clock=lambda: self.desk.clock)
        self.view = self.desk.mam.registry.watch()
        self.look()

    def look(self) -> None:
        self.monitor._tick(self.view)

    def pass_by(self, seconds: float, every_s: float = 10) -> None:
        """Time in which the monitor looks as it does."""
        for _ in range(int(seconds / every_s)):
            self.desk.clock += int(every_s * 1000)
            self.look()

    def jump(self, seconds: float) -> None:
        """What a sleeping machine and a clock that is set have in common: from one look to the next it is later."""
        self.desk.clock += int(seconds * 1000)
        self.look()

    def submitted(self) -> None:
        topic = (EVENTS, self.desk.runtime("writer", "delivery", {"state": "submitted"}, job=self.job.id, attempt=1))
        assert [s.outcome for s in self.desk.settle([topic])] == ["accepted"]

    def say(self, kind: str, **data: object) -> None:
        assert self.desk.take(self.job.id, self.desk.wire(self.job.id, kind, data)) == ["accepted"]

    @property
    def state(self) -> str:
        return self.desk.row(self.job.id).state

    @property
    def open_questions(self) -> int:
        with self.desk.mam.registry.view() as view:
            return len(view.open_questions())

    @property
    def findings(self) -> list[str]:
        with self.desk.mam.registry.view() as view:
            return [finding.code for finding in view.findings()]


@pytest.fixture
def night(desk: Desk) -> Night:
    return Night(desk)


class TestClocks:
    def test_a_machine_that_slept_through_every_limit_ends_no_job(self, night: Night) -> None:
        night.submitted()
        night.say("started")
        night.say("heartbeat")
        night.pass_by(20)

        night.jump(10 * HOUR_S)

        assert (night.state, night.findings) == ("running", [])

    def test_after_the_sleep_the_rest_of_each_limit_still_counts(self, night: Night) -> None:
        night.submitted()
        night.say("started")
        night.pass_by(HOUR_S, every_s=10)
        night.jump(10 * HOUR_S)

        night.pass_by(HOUR_S - 60)
        assert night.state == "running"
        night.pass_by(120)

        assert night.state == "timed_out"

    @pytest.mark.parametrize("seconds", [600, 8 * HOUR_S])
    def test_a_clock_set_forward_blocks_no_agent_that_is_about_to_start(self, night: Night, seconds: int) -> None:
        night.submitted()
        night.jump(seconds)
        assert night.state == "dispatched"

        night.pass_by(130)

        assert night.state == "agent_blocked"

    def test_a_prompt_that_waits_for_its_runner_has_its_whole_limit_after_the_sleep(self, night: Night) -> None:
        night.pass_by(10)
        night.jump(HOUR_S)
        assert night.state == "queued"

        night.pass_by(100)

        assert night.state == "agent_blocked"

    def test_what_was_said_between_the_last_look_and_the_sleep_has_slept_as_well(self, night: Night) -> None:
        night.submitted()
        night.desk.clock += 900
        night.say("started")

        night.jump(10 * HOUR_S)

        assert night.state == "running"

    def test_a_clock_set_back_ends_nothing_and_limits_go_on_from_there(self, night: Night) -> None:
        night.submitted()
        night.say("started")
        night.jump(-600)
        assert (night.state, night.findings) == ("running", [])

        night.pass_by(2 * HOUR_S + 620)

        assert night.state == "timed_out"

    def test_a_clock_set_forward_and_back_again_gives_no_time_away(self, night: Night) -> None:
        night.submitted()
        night.pass_by(60)
        night.jump(600)
        night.pass_by(20)
        night.jump(-600)

        night.pass_by(70)

        assert night.state == "agent_blocked"

    def test_the_next_monitor_knows_of_the_sleep(self, night: Night) -> None:
        night.submitted()
        night.say("started")
        night.jump(10 * HOUR_S)

        night.begin()
        night.pass_by(30)

        assert night.state == "running"

    def test_a_question_gets_no_fallback_while_everybody_slept(self, night: Night) -> None:
        night.submitted()
        night.say("started")
        asked = {
            "question_id": "0123456789ab",
            "question": "which?",
            "choices": ["a", "b"],
            "timeout_s": 3600,
            "fallback": "a",
        }
        night.say("asked", **asked)

        night.jump(10 * HOUR_S)
        assert night.open_questions == 1
        night.pass_by(3700)

        assert night.open_questions == 0

    @pytest.mark.parametrize("junk", ["", "[]", "null", '{"gaps": 1}', '{"gaps": [[1]]}', '{"gaps": [[0, Infinity]]}'])
    def test_a_torn_note_of_the_sleeps_is_none(self, night: Night, junk: str) -> None:
        (night.desk.mam.layout.run / "gaps.json").write_text(junk)

        night.begin()

        assert night.state == "queued"

    def test_looks_that_are_slow_are_no_sleep(self, night: Night) -> None:
        night.submitted()

        night.pass_by(140, every_s=14)

        assert night.state == "agent_blocked"

    def test_a_report_spooled_before_the_clock_was_set_back_is_recorded(self, night: Night) -> None:
        night.submitted()
        wire = night.desk.report(night.job)
        night.desk.clock -= 900_000

        assert night.desk.take(night.job.id, wire) == ["accepted"]
        assert night.state == "reported"

    def test_a_life_that_begins_after_the_clock_was_set_back_is_the_younger_one(self, desk: Desk) -> None:
        ahead = f"{now_ms() + 600_000:013x}-ffffffff"

        assert runtime.new_incarnation(after=ahead) > ahead
        assert runtime.new_incarnation(after="0001") > "0001"


class TestSilence:
    def test_one_heartbeat_and_then_silence_is_a_question_until_the_limit(self, night: Night) -> None:
        night.submitted()
        night.say("started")
        night.say("heartbeat")

        night.pass_by(HOUR_S)

        assert (night.state, night.findings) == ("running", ["silent"])
        assert night.desk.take(night.job.id, night.desk.report(night.job)) == ["accepted"]
        night.look()
        assert (night.state, night.findings) == ("reported", [])

    def test_a_report_that_comes_after_the_job_was_given_up_counts_and_is_marked(self, night: Night) -> None:
        night.submitted()
        night.pass_by(130)
        assert night.state == "agent_blocked"

        assert night.desk.take(night.job.id, night.desk.report(night.job)) == ["accepted"]

        assert (night.state, night.desk.row(night.job.id).late) == ("reported", 1)


class TestEnds:
    def test_the_last_words_of_a_runner_that_was_found_dead_first_still_say_how_it_ended(self, desk: Desk) -> None:
        desk.session(screen="ready")
        exited = {"name": "agent_exited", "exit_code": 3, "evidence": "no such model", "incarnation": "0001"}
        wire = desk.runtime("writer", "signal", exited)
        job_checks.act(desk.mam.registry, [job_checks.Ended("writer", "0001", "the runner ended without a word")], [])

        desk.settle([(EVENTS, wire)])

        with desk.mam.registry.view() as view:
            row = view.session("writer")
        assert row is not None
        assert (row.status, row.exit_code, row.ended_reason) == ("ended", 3, "the agent ended")
        assert (row.screen, row.screen_text) == ("gone", "no such model")

    def test_nothing_shows_a_ready_screen_once_its_agent_is_gone(self, desk: Desk) -> None:
        desk.session(screen="ready")
        late = desk.runtime("writer", "signal", {"name": "screen", "state": "ready", "incarnation": "0001"})
        job_checks.act(desk.mam.registry, [job_checks.Ended("writer", "0001", "the runner ended without a word")], [])

        desk.settle([(EVENTS, late)])

        with desk.mam.registry.view() as view:
            row = view.session("writer")
        assert row is not None and row.screen == "gone"

    def test_a_screen_of_an_earlier_life_is_not_this_ones(self, desk: Desk) -> None:
        desk.session(incarnation="0002", status="starting")
        late = desk.runtime("writer", "signal", {"name": "screen", "state": "ready", "incarnation": "0001"})

        desk.settle([(EVENTS, late)])

        with desk.mam.registry.view() as view:
            row = view.session("writer")
        assert row is not None and row.screen is None

    def test_the_end_of_an_earlier_life_that_was_looked_up_before_does_not_end_this_one(self, desk: Desk) -> None:
        desk.session(incarnation="0002", status="starting")

        job_checks.act(desk.mam.registry, [job_checks.Ended("writer", "0001", "the machine was restarted")], [])

        with desk.mam.registry.view() as view:
            row = view.session("writer")
        assert row is not None and row.status == "starting"

    def test_a_stopped_session_is_not_said_to_have_ended_by_itself(self, desk: Desk) -> None:
        row = desk.session(status="stopped")

        assert session_state.signal(row, Signal(name="agent_exited", incarnation="0001"), now=1) == row

    def test_an_agent_that_dies_at_its_start_has_no_ready_screen(self, root: Root) -> None:
        script = "echo welcome; sleep 1; echo no such model >&2; exit 3"
        words = ["agent", "create", "brief", "--agent", "command", "--no-wait", "--", "sh", "-c", script]
        assert root.mam(*words).code == 0

        until(lambda: root.session("brief").status == "ended")

        assert (root.session("brief").screen, root.session("brief").exit_code) == ("gone", 3)
        assert any("no such model" in line for line in root.ok("why", "brief")["evidence"])


class TestStoppedRunners:
    """A runner that was stopped (a suspended shell, a debugger) finds everything of the meantime in its socket."""

    def heard(self, root: Root) -> str:
        memory = root.path / ".mam" / "run" / "writer" / "memory.json"
        return memory.read_text("utf-8") if memory.exists() else ""

    def test_free_text_is_not_typed_when_its_sender_was_told_that_it_failed(self, root: Root) -> None:
        root.agent()
        runner = root.session("writer").pid
        os.kill(runner, signal.SIGSTOP)
        try:
            said = root.mam("agent", "send", "writer", "delete it", "--json", env={"MAM_DELIVER_WITHIN_S": "1"})
            assert said.code == 4, said.out
        finally:
            os.kill(runner, signal.SIGCONT)

        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0
        assert "delete it" not in self.heard(root)

    def test_a_prompt_is_not_typed_when_its_job_was_given_up(self, root: Root) -> None:
        root.agent()
        runner = root.session("writer").pid
        os.kill(runner, signal.SIGSTOP)
        try:
            job = root.delegate("writer", "old work", "--deliver-within", "1")
            assert root.mam("job", "wait", job, "--timeout", "30").code == 1
            assert root.job(job).state == "agent_blocked"
        finally:
            os.kill(runner, signal.SIGCONT)

        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0
        assert job not in self.heard(root)
        assert root.job(job).state == "agent_blocked"

    def test_a_delivery_that_was_stopped_while_it_waited_pastes_nothing_after_its_time(self, tmp_path: Path) -> None:
        terminal, ledger = Terminal(), Ledger(tmp_path / "deliveries")
        terminal.signal = AgentSignal.WORKING
        delivery = terminal.delivery(FreeText(prompt="do it", deliver_within_s=30), ledger)
        assert terminal.drive(delivery, until=5.0) is None

        terminal.signal = AgentSignal.READY
        outcome = delivery.step(3600.0)

        assert outcome is not None and (outcome.state, terminal.done) == ("refused", [])


class TestScreens:
    def fake(self, root: Root, text: str) -> Path:
        """A program in the place of an agent CLI: notes its words, shows *text*, and stays."""
        program = root.path / "fake"
        words = root.path / "words"
        program.write_text(f"#!/bin/sh\necho \"$@\" >> {shlex.quote(str(words))}\nprintf '{text}'\nexec sleep 3600\n")
        program.chmod(0o755)
        return program

    def test_a_dialog_that_nobody_expected_is_neither_dead_nor_typed_into(self, root: Root) -> None:
        program = self.fake(root, "Something new has come up.\\nPress any key\\n")
        words = ["agent", "create", "writer", "--agent", "claude", "--program", str(program), "--no-wait"]
        assert root.mam(*words).code == 0
        until(lambda: root.session("writer").screen == "starting")

        job = root.delegate("writer", "do it", "--deliver-within", "1")
        done = root.mam("job", "wait", job, "--timeout", "30", "--json")

        assert done.json["state"] == "agent_blocked" and "busy" in done.json["detail"]
        assert root.session("writer").status == "running"
        evidence = root.ok("why", job)["evidence"]
        assert any("Something new" in line for line in evidence)
        assert not any("MAM job" in line for line in evidence)

    def test_a_conversation_that_was_never_kept_is_begun_anew_under_a_new_id(self, root: Root) -> None:
        program = self.fake(root, "hello\\n")
        words = ["agent", "create", "writer", "--agent", "claude", "--program", str(program), "--no-wait"]
        assert root.mam(*words).code == 0
        first = root.session("writer").conversation
        until(lambda: (root.path / "words").exists())
        root.mam("agent", "stop", "writer")

        said = root.mam("agent", "resume", "writer", "--no-wait")

        assert said.code == 0 and "no conversation was kept" in said.err
        second = root.session("writer").conversation
        assert first and second and first != second
        lines = until(lambda: (found := (root.path / "words").read_text().splitlines()) and len(found) == 2 and found)
        assert second in lines[1] and first not in lines[1] and "--resume" not in lines[1]
