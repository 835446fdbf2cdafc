"""Which process is meant: the same pid is not the same process."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId

WAITS = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is up and ends when its standard input does."""
    process = subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_this_process_is_alive_and_knows_itself() -> None:
    assert process_identity.me().pid == os.getpid()
    assert process_identity.alive(process_identity.me())
    assert process_identity.of(os.getpid()) == process_identity.me()


def test_the_identity_of_a_process_stays_the_same_for_its_life(child: subprocess.Popen[bytes]) -> None:
    first = process_identity.of(child.pid)
    assert first is not None and child.stdin is not None
    child.stdin.write(b"work")
    assert process_identity.of(child.pid) == first
    assert process_identity.alive(first)
    assert first != process_identity.me()
    assert first.boot == process_identity.me().boot


def test_a_pid_with_another_start_time_is_another_process(child: subprocess.Popen[bytes]) -> None:
    real = process_identity.of(child.pid)
    assert real is not None
    assert not process_identity.alive(real._replace(start=str(int(float(real.start)) - 1)))
    assert not process_identity.alive(real._replace(pid=os.getpid()))


def test_the_same_pid_and_start_on_another_boot_is_another_process() -> None:
    assert not process_identity.alive(process_identity.me()._replace(boot="00000000-0000-0000-0000-000000000000"))


def test_a_dead_process_is_nobody(child: subprocess.Popen[bytes]) -> None:
    before = process_identity.of(child.pid)
    assert before is not None
    child.kill()
    child.wait()
    assert not process_identity.alive(before)
    assert process_identity.of(child.pid) is None


def test_a_zombie_does_not_run_though_its_pid_is_taken(child: subprocess.Popen[bytes]) -> None:
    before = process_identity.of(child.pid)
    assert before is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it ended, and stays unreaped
    os.kill(child.pid, 0)
    assert process_identity.start_time(child.pid) is None
    assert process_identity.of(child.pid) is None
    assert not process_identity.alive(before)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**31])
def test_what_is_no_pid_is_nobody(pid: int) -> None:
    assert process_identity.of(pid) is None
    assert not process_identity.alive(ProcessId(pid, "1", process_identity.boot_id()))


@pytest.mark.skipif(not process_identity.LINUX, reason="the name stands among the fields on Linux only")
@pytest.mark.parametrize("name", ["a) Z 1 2 3", "(((", ") (", " R 1"])
def test_a_name_that_looks_like_the_fields_changes_nothing(name: str) -> None:
    script = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", script, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with open(f"/proc/{process.pid}/comm") as comm:
            assert comm.read() == name + "\n"
        known = process_identity.of(process.pid)
        assert known is not None and known.start.isdigit()
        assert process_identity.alive(known)
    finally:
        process.kill()
        process.communicate()


def test_the_start_time_is_the_clock_ticks_since_boot() -> None:
    """It is a moment between the machine's start and now, and a child's is not before its parent's."""
    if not process_identity.LINUX:
        pytest.skip("the unit is the system's own elsewhere")
    with open("/proc/uptime") as uptime:
        now_s = float(uptime.read().split()[0])
    ticks = os.sysconf("SC_CLK_TCK")
    assert 0 < int(process_identity.me().start) <= (now_s + 1) * ticks
    parent = process_identity.of(os.getppid())
    assert parent is not None and int(parent.start) <= int(process_identity.me().start)
