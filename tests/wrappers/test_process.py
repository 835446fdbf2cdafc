"""The one door to other programs."""

import os
import pickle
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId
from mam.wrappers import process
from mam.wrappers.process import CommandFailed, CommandTimedOut, ProgramMissing
from tests.support import until

PYTHON = sys.executable
# Writes its own pid, then its child's, both deaf to TERM; the leader stays or leaves.
DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    with open(sys.argv[1] + ".part", "w") as file:
        file.write(f"{os.getpid()} {child}")
    os.rename(sys.argv[1] + ".part", sys.argv[1])
if child and sys.argv[2] == "leaves":
    os._exit(0)
while True:
    time.sleep(3600)
"""


class Group:
    """A process group of our own, and a way to be sure that it ends."""

    def __init__(self, out: Path, *words: str) -> None:
        self.leader = subprocess.Popen([PYTHON, "-c", DEAF, str(out), *words], start_new_session=True)
        until(out.exists)
        pids = [int(word) for word in out.read_text("utf-8").split()]
        self.identity = process_identity.of(pids[0]) or ProcessId(pids[0], "0", process_identity.boot_id())
        child = process_identity.of(pids[1])
        assert child is not None
        self.child = child

    def clear(self) -> None:
        try:
            os.killpg(self.leader.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.leader.wait()


@pytest.fixture
def stays(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path / "pids", "stays")
    yield group
    group.clear()


@pytest.fixture
def leaves(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path / "pids", "leaves")
    until(lambda: process_identity.start_time(group.leader.pid) is None)
    yield group
    group.clear()


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


class TestEndGroup:
    def test_members_that_ignore_term_are_killed(self, stays: Group) -> None:
        assert process.end_group(stays.identity, wait_s=0.2) is True
        until(lambda: not process_identity.alive(stays.identity) and not process_identity.alive(stays.child))

    def test_children_that_outlive_the_leader_are_ended(self, leaves: Group) -> None:
        assert process_identity.alive(leaves.child)
        assert process.end_group(leaves.identity, wait_s=0.2) is True
        until(lambda: not process_identity.alive(leaves.child))

    def test_a_member_that_obeys_term_is_not_killed(self, tmp_path: Path) -> None:
        out = tmp_path / "said"
        obeys = 'trap "echo goodbye > $1; exit 0" TERM; echo ready > "$1"; while :; do sleep 0.05; done'
        child = subprocess.Popen(["sh", "-c", obeys, "sh", str(out)], start_new_session=True)
        until(lambda: out.exists() and out.read_text("utf-8") == "ready\n")
        identity = process_identity.of(child.pid)
        assert identity is not None
        assert process.end_group(identity) is True
        assert (child.wait(), out.read_text("utf-8")) == (0, "goodbye\n")

    @pytest.mark.parametrize("other", [{"start": "1"}, {"boot": "another-boot"}])
    def test_a_pid_that_is_somebody_elses_now_is_left_alone(self, stays: Group, other: dict[str, str]) -> None:
        assert process.end_group(stays.identity._replace(**other), wait_s=0.1) is False
        assert process_identity.alive(stays.identity) and process_identity.alive(stays.child)

    def test_nothing_to_end_is_no_error(self) -> None:
        child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        identity = process_identity.of(child.pid)
        assert identity is not None
        child.kill()
        child.wait()
        assert process.end_group(identity, wait_s=0.1) is False


def test_a_program_sees_no_password_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAM_BROKER_PASSWORD", "s3cret-canary")
    shown = [PYTHON, "-c", "import os; print(sorted(os.environ), flush=True)"]

    process.spawn(shown, tmp_path / "log", tmp_path)
    until(lambda: "PATH" in (tmp_path / "log").read_text())

    for seen in (process.run(shown).stdout, process.run(shown, env=os.environ).stdout, (tmp_path / "log").read_text()):
        assert "PATH" in seen and "MAM_BROKER_PASSWORD" not in seen
