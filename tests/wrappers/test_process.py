"""The one door to other programs."""

import os
import pickle
import signal
import stat
import sys
from pathlib import Path

import pytest

from mam.broker.host import process_identity
from mam.wrappers import process
from mam.wrappers.process import CommandFailed, CommandTimedOut, ProgramMissing
from tests.support import until

PYTHON = sys.executable


class TestRun:
    def test_output_and_code_are_returned(self) -> None:
        assert process.run(["sh", "-c", "echo out; echo err >&2"]) == (0, "out\n", "err\n")

    def test_a_code_that_was_not_expected_raises_with_all_that_was_said(self) -> None:
        with pytest.raises(CommandFailed) as caught:
            process.run(["sh", "-c", "echo half done; echo why not >&2; exit 9"])
        error = caught.value
        assert (error.data["code"], error.data["stdout"], error.data["stderr"]) == (9, "half done", "why not")
        assert "why not" in str(error) and "exit code 9" in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)

    def test_an_expected_code_is_no_error(self) -> None:
        assert process.run(["sh", "-c", "exit 3"], expect=(0, 3)).code == 3

    def test_with_no_expectation_every_code_is_returned(self) -> None:
        assert process.run(["sh", "-c", "kill -9 $$"], expect=()).code == -9

    def test_what_takes_too_long_is_killed(self, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        with pytest.raises(CommandTimedOut, match=r"0\.5 s"):
            # exec: the pid that is killed is the one that sleeps
            process.run(
                ["sh", "-c", 'trap "" TERM; echo $$ > "$1"; exec sleep 3600', "sh", str(pid_file)], timeout_s=0.5
            )
        assert not pid_file.exists() or process_identity.start_time(int(pid_file.read_text("utf-8"))) is None

    def test_a_missing_program_is_named(self) -> None:
        with pytest.raises(ProgramMissing, match="no-such-program"):
            process.run(["no-such-program", "word"])

    def test_a_file_that_may_not_be_run_is_a_missing_program(self, tmp_path: Path) -> None:
        file = tmp_path / "plain file"
        file.write_text("text", "utf-8")
        with pytest.raises(ProgramMissing, match="plain file"):
            process.run([str(file)])

    def test_a_missing_directory_is_named_and_not_the_program(self, tmp_path: Path) -> None:
        with pytest.raises(ProgramMissing, match="not-here"):
            process.run(["true"], cwd=tmp_path / "not-here")

    def test_a_directory_that_is_a_file_is_named_and_not_the_program(self, tmp_path: Path) -> None:
        (tmp_path / "a-file").write_text("", "utf-8")
        with pytest.raises(ProgramMissing, match="a-file"):
            process.run(["true"], cwd=tmp_path / "a-file")

    def test_bytes_that_are_no_text_are_replaced(self) -> None:
        done = process.run([PYTHON, "-c", r"import os; os.write(1, b'a\xff\x00\xfez')"])
        assert done.stdout == "a\ufffd\x00\ufffdz"

    def test_huge_output_on_both_streams_is_complete(self) -> None:
        write = "import sys; sys.stdout.write('o' * 3_000_000); sys.stderr.write('e' * 3_000_000)"
        done = process.run([PYTHON, "-c", write])
        assert (len(done.stdout), len(done.stderr)) == (3_000_000, 3_000_000)

    def test_an_error_shows_the_end_of_huge_output(self) -> None:
        with pytest.raises(CommandFailed) as caught:
            process.run([PYTHON, "-c", "import sys; sys.exit('x' * 500_000 + 'the reason')"])
        assert str(caught.value.data["stderr"]).endswith("the reason")
        assert len(str(caught.value)) < 10_000

    def test_standard_input_is_what_was_given_and_ends(self) -> None:
        assert process.run(["cat"], stdin="줄\n".encode()).stdout == "줄\n"
        assert process.run(["cat"]).stdout == ""

    def test_no_shell_reads_the_words(self) -> None:
        words = ["$HOME", "a;b", "*", "`id`", "'"]
        assert process.run(["printf", r"%s\n", *words]).stdout.splitlines() == words

    def test_a_given_environment_is_the_whole_environment(self) -> None:
        shown = process.run(["/usr/bin/env"], env={"ONLY": "this"}).stdout
        assert shown == "ONLY=this\n"


class TestSpawn:
    def end(self, pid: int) -> None:
        os.killpg(pid, signal.SIGKILL)
        self.await_end(pid)

    def await_end(self, pid: int) -> None:
        until(lambda: process_identity.start_time(pid) is None)

    def test_it_leads_a_session_of_its_own_without_standard_input(self, tmp_path: Path) -> None:
        pid = process.spawn(["sh", "-c", 'read line || echo "no input"; exec sleep 3600'], tmp_path / "log", tmp_path)
        try:
            assert os.getsid(pid) == os.getpgid(pid) == pid
            until(lambda: (tmp_path / "log").read_text("utf-8") == "no input\n")
        finally:
            self.end(pid)

    def test_its_output_is_appended_to_a_log_that_only_we_can_read(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        before = os.umask(0)
        try:
            for word in ("first", "second"):
                self.await_end(process.spawn(["sh", "-c", f"echo {word}; echo {word} >&2"], log, tmp_path))
        finally:
            os.umask(before)
        assert log.read_text("utf-8").split() == ["first", "first", "second", "second"]
        assert stat.S_IMODE(log.stat().st_mode) == 0o600

    def test_it_outlives_who_started_it(self, tmp_path: Path) -> None:
        starter = (
            "import sys; from pathlib import Path; from mam.wrappers import process; here = Path(sys.argv[1]);"
            "print(process.spawn(['sleep', '3600'], here / 'log', here))"
        )
        pid = int(process.run([PYTHON, "-c", starter, str(tmp_path)]).stdout)
        survivor = process_identity.of(pid)
        try:
            assert survivor is not None and process_identity.alive(survivor)
        finally:
            os.killpg(pid, signal.SIGKILL)
        until(lambda: not process_identity.alive(survivor))

    def test_it_gets_the_descriptors_that_were_passed_and_no_others(self, tmp_path: Path) -> None:
        passed, kept = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
        try:
            script = f"for n in {passed} {kept}; do [ -e /dev/fd/$n ] && echo has $n; done; true"
            self.await_end(process.spawn(["sh", "-c", script], tmp_path / "log", tmp_path, pass_fds=[passed]))
        finally:
            os.close(passed)
            os.close(kept)
        assert (tmp_path / "log").read_text("utf-8") == f"has {passed}\n"

    @pytest.mark.parametrize("program", ["no-such-program", "/etc/passwd"])
    def test_a_program_that_cannot_run_is_named(self, tmp_path: Path, program: str) -> None:
        with pytest.raises(ProgramMissing, match=program):
            process.spawn([program], tmp_path / "log", tmp_path)


AROUND = {"TMUX": "/tmp/t,1,0", "TMUX_PANE": "%3", "CLAUDECODE": "1", "HERDR_ENV": "1", "CMUX_X": "1"}


class TestUnnested:
    def test_traces_of_another_agent_or_pane_are_dropped_and_the_rest_kept(self) -> None:
        kept = {"PATH": "/bin", "MAM_SESSION": "s", "CMU": "no", "한": "글"}
        assert (
            process.unnested({**kept, **AROUND, "TMUX_TMPDIR": "/t", "MAM_VERSION": "0", "CODEX_THREAD_ID": "x"})
            == kept
        )

    def test_in_our_own_pane_the_pane_itself_stays_true(self) -> None:
        assert process.unnested_pane({"A": "1", **AROUND}) == {"A": "1", "TMUX": "/tmp/t,1,0", "TMUX_PANE": "%3"}


def test_a_program_sees_no_password_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAM_BROKER_PASSWORD", "s3cret-canary")
    shown = [PYTHON, "-c", "import os; print(sorted(os.environ), flush=True)"]

    process.spawn(shown, tmp_path / "log", tmp_path)
    until(lambda: "PATH" in (tmp_path / "log").read_text())

    for seen in (process.run(shown).stdout, process.run(shown, env=os.environ).stdout, (tmp_path / "log").read_text()):
        assert "PATH" in seen and "MAM_BROKER_PASSWORD" not in seen
