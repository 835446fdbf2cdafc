"""An agent on a real terminal: its own group, in the foreground, never left behind."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId
from tests.support import until

HERE = Path(__file__).parent
AGENT = HERE.parents[1] / "support" / "terminal_agent.py"
# No HOME and no locale: the agent's environment is exactly what it was given.
ENV = {"PATH": os.defpath, "GIVEN": "한국어 $x", "PYTHONCOERCECLOCALE": "0"}


class Stage:
    """A terminal, a leader on it, and the leader's agent."""

    def __init__(self, folder: Path, argv: Sequence[str], cwd: Path, wait_s: float) -> None:
        self._out = folder / "told"
        self._shown = b""
        self.terminal, inside = pty.openpty()
        spec = json.dumps({"argv": argv, "env": ENV, "cwd": str(cwd)})
        command = [sys.executable, str(HERE / "leader.py"), str(self._out), str(wait_s), spec]
        try:
            self.leader = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
        finally:
            os.close(inside)
        self.began = self.await_told("began")
        self.agent = ProcessId(self.began["pid"], self.began["start"], process_identity.boot_id())

    def told(self, what: str) -> list[dict[str, Any]]:
        lines = self._out.read_text("utf-8").splitlines() if self._out.exists() else []
        return [told for told in map(json.loads, lines) if told["what"] == what]

    def await_told(self, what: str, times: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = until(lambda: self.told(what)[times - 1 : times], what=what)[0]
        return found

    def shown(self) -> str:
        """All that the terminal has shown so far."""
        while select.select([self.terminal], [], [], 0)[0]:
            try:
                self._shown += os.read(self.terminal, 65536)
            except OSError:  # everybody left the terminal
                break
        return self._shown.decode("utf-8", "replace")

    def await_shown(self, text: str) -> str:
        until(lambda: text in self.shown(), what=text)
        return self.shown()

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def order(self, sign: signal.Signals) -> None:
        os.kill(self.leader.pid, sign)

    def looks(self, times: int) -> bool:
        """What the leader says, asked for the *times*th time, about the agent's foreground."""
        self.order(signal.SIGUSR2)
        answer: bool = self.await_told("looked", times)["foreground"]
        return answer

    def child(self) -> ProcessId:
        found = re.search(r"child=(\d+)\.", self.await_shown("."))
        assert found
        return process_identity.of(int(found.group(1))) or pytest.fail("the child is gone already")

    def clear(self) -> None:
        self.leader.kill()
        self.leader.wait()
        os.close(self.terminal)
        try:
            os.killpg(self.began["pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass


Start = Callable[..., Stage]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Stage] = []

    def make(*words: str, argv: Sequence[str] = (), cwd: Path = tmp_path, wait_s: float = 0.2) -> Stage:
        stage = Stage(tmp_path, argv or [sys.executable, str(AGENT), *words], cwd, wait_s)
        made.append(stage)
        return stage

    yield make
    for stage in made:
        stage.clear()


class TestBirth:
    def test_the_agent_leads_its_own_group_in_the_foreground_of_the_leaders_session(
        self, start: Start, tmp_path: Path
    ) -> None:
        stage = start("facts")
        stage.await_shown("ready")
        seen = json.loads((tmp_path / "facts").read_text("utf-8"))
        pid = stage.agent.pid
        assert seen["ids"] == [pid, pid, stage.leader.pid, pid]
        assert seen["tty"] is True
        assert stage.began["group"] == stage.leader.pid != pid

    def test_words_environment_and_directory_are_exactly_what_was_given(self, start: Start, tmp_path: Path) -> None:
        cwd = tmp_path / "a dir; $HOME\n한"
        cwd.mkdir()
        words = ["two words", "", "$HOME", "l\nb", "한"]
        start("facts", *words, cwd=cwd).await_shown("ready")
        seen = json.loads((cwd / "facts").read_text("utf-8"))
        assert (seen["words"], seen["env"], seen["cwd"]) == (words, ENV, str(cwd))

    def test_the_agent_is_born_with_no_signal_ignored(self, start: Start) -> None:
        stage = start(argv=["sh", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status; read line"])
        shown = stage.await_shown("SigIgn")
        masks = [int(mask, 16) for mask in re.findall(r"Sig(?:Ign|Blk):\s+([0-9a-f]+)", shown)]
        # 32 and 33 belong to the C library: it blocks them around forks, and no program may set them.
        assert [mask & ~(0b11 << 31) for mask in masks] == [0, 0]

    def test_a_pipe_that_nobody_reads_ends_a_tool_of_the_agent(self, start: Start) -> None:
        stage = start(argv=["bash", "-c", "yes | head -1; echo codes ${PIPESTATUS[*]}; read x"])
        stage.await_shown(f"codes {128 + signal.SIGPIPE} 0")

    def test_a_program_that_does_not_exist_is_named_on_the_terminal(self, start: Start) -> None:
        stage = start(argv=["no-such-agent", "word"])
        assert stage.await_told("exited")["code"] == 127
        stage.await_shown("cannot start no-such-agent")

    def test_a_directory_that_does_not_exist_starts_nothing(self, start: Start, tmp_path: Path) -> None:
        stage = start("echo", cwd=tmp_path / "not here")
        assert stage.await_told("exited")["code"] == 127
        assert "ready" not in stage.await_shown("not here")


class TestTerminal:
    def test_what_is_typed_reaches_the_agent_and_its_answer_the_terminal(self, start: Start) -> None:
        stage = start("echo")
        stage.await_shown("ready")
        stage.type("한국어 hello\n")
        stage.await_shown("heard 한국어 hello")

    def test_the_agent_has_the_foreground_but_not_while_a_tool_of_its_own_has_it(self, start: Start) -> None:
        stage = start("tool")
        stage.await_shown("ready")
        assert stage.looks(1) is True
        stage.type("\n")
        stage.await_shown("tool runs")
        assert stage.looks(2) is False
        stage.type("q\n")
        stage.await_shown("tool ended")
        assert stage.looks(3) is True

    def test_ctrl_c_reaches_the_agent_and_not_its_leader(self, start: Start) -> None:
        stage = start("echo")
        stage.await_shown("ready")
        stage.type("\x03")
        assert stage.await_told("exited")["code"] == -signal.SIGINT
        assert stage.leader.wait() == 0

    def test_an_agent_stopped_by_ctrl_z_is_noticed_and_goes_on_in_the_foreground(self, start: Start) -> None:
        stage = start("echo")
        stage.await_shown("ready")
        for times in (1, 2):
            stage.type("\x1a")
            stage.await_told("stopped", times)
            stage.type(f"again {times}\n")
            stage.await_shown(f"heard again {times}")
            assert stage.looks(times) is True

    def test_an_agent_that_gave_the_terminal_away_and_stopped_gets_it_back(self, start: Start) -> None:
        stage = start("giver")
        assert stage.await_told("stopped")["foreground"] is False
        stage.type("once more\n")
        stage.await_shown("heard once more")


class TestEnd:
    @pytest.mark.parametrize("code", [0, 3])
    def test_its_own_code_is_reported_once(self, start: Start, code: int) -> None:
        stage = start(argv=["sh", "-c", f"exit {code}"])
        assert stage.await_told("exited") == {"what": "exited", "code": code, "foreground": False}
        assert stage.await_told("polled again")["result"] is None

    def test_an_agent_that_obeys_is_ended_by_term(self, start: Start) -> None:
        stage = start("echo", wait_s=60)
        stage.await_shown("ready")
        stage.order(signal.SIGUSR1)
        assert stage.await_told("exited")["code"] == -signal.SIGTERM

    def test_an_agent_and_a_child_that_ignore_term_are_killed(self, start: Start) -> None:
        stage = start("deaf")
        child = stage.child()
        stage.order(signal.SIGUSR1)
        assert stage.await_told("exited")["code"] == -signal.SIGKILL
        until(lambda: not process_identity.alive(child))

    def test_a_stopped_agent_is_ended_too(self, start: Start) -> None:
        stage = start("echo")
        stage.await_shown("ready")
        os.kill(stage.leader.pid, signal.SIGSTOP)  # so that nobody wakes the agent
        os.kill(stage.agent.pid, signal.SIGSTOP)
        stage.order(signal.SIGUSR1)
        os.kill(stage.leader.pid, signal.SIGCONT)
        assert stage.await_told("exited")["code"] in (-signal.SIGTERM, -signal.SIGKILL)

    def test_the_leaders_death_ends_the_agent(self, start: Start) -> None:
        stage = start("echo")
        stage.await_shown("ready")
        assert process_identity.alive(stage.agent)
        os.kill(stage.leader.pid, signal.SIGKILL)
        until(lambda: not process_identity.alive(stage.agent))

    def test_the_leaders_death_ends_also_a_stopped_agent(self, start: Start) -> None:
        stage = start("echo")
        stage.await_shown("ready")
        os.kill(stage.leader.pid, signal.SIGSTOP)
        os.kill(stage.agent.pid, signal.SIGSTOP)
        os.kill(stage.leader.pid, signal.SIGKILL)
        until(lambda: not process_identity.alive(stage.agent))
