import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.broker.errors import Busy
from mam.broker.host import locks
from tests.support import until

HOLDER = """
import sys
import threading
from pathlib import Path
from mam.broker.host import locks
with locks.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until it is told to go."""
    argv = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        yield child
        child.kill()


def free(path: Path) -> bool:
    try:
        with locks.hold(path, wait_s=0.01):
            return True
    except Busy:
        return False


def test_a_lock_that_is_held_is_busy_and_who_gave_up_waiting_never_keeps_it(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    for _ in range(3):
        with pytest.raises(Busy, match="lock"), locks.hold(tmp_path / "lock", wait_s=0.01):
            pass

    holder.communicate("go\n")

    until(lambda: free(tmp_path / "lock"))


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system lists no locks")
def test_who_holds_a_lock_is_named_and_that_it_is_stopped(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    def said() -> str:
        with pytest.raises(Busy) as caught, locks.hold(tmp_path / "lock", wait_s=0):
            pass
        return str(caught.value)

    assert f"in use by pid {holder.pid} ({sys.executable} -c" in said()
    holder.send_signal(signal.SIGSTOP)
    until(lambda: f"in use by pid {holder.pid} (stopped: {sys.executable} -c" in said())
    holder.kill()
    holder.wait()
    assert locks.holder(tmp_path / "lock") == "somebody"


def test_a_lock_is_taken_as_soon_as_its_holder_is_killed(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    assert not free(tmp_path / "lock")
    holder.kill()

    with locks.hold(tmp_path / "lock"):
        assert not free(tmp_path / "lock")


@pytest.mark.req("M76")
def test_who_only_asks_sees_a_holder_and_leaves_neither_threads_nor_descriptors_behind(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))

    assert all(locks.is_held(tmp_path / "lock") for _ in range(200))
    for _ in range(200):
        with pytest.raises(Busy), locks.hold(tmp_path / "lock", wait_s=0):
            pass

    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors)


def test_who_only_asks_is_no_holder_to_another_one_who_asks(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)

        assert not locks.is_held(tmp_path / "lock")
    assert not locks.is_held(tmp_path / "never made") and not (tmp_path / "never made").exists()


def test_a_lock_whose_file_its_holder_removed_is_held_by_one_of_those_who_waited(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "lock", [], []

    def wait() -> None:
        with locks.hold(path):
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            path.unlink()

    with locks.hold(path):
        waiting = [threading.Thread(target=wait) for _ in range(8)]
        for thread in waiting:
            thread.start()
        path.unlink()
    for thread in waiting:
        thread.join(60)

    assert most == [1] * 8 and not path.exists()


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system lists no locks")
def test_who_locks_a_file_of_the_same_number_on_another_disk_is_no_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").touch()
    listed = f"1: FLOCK  ADVISORY  WRITE {os.getpid()} 08:01:{(tmp_path / 'lock').stat().st_ino} 0 EOF\n"
    (tmp_path / "listed").write_text(listed)
    monkeypatch.setattr(locks, "_LISTED", tmp_path / "listed")

    assert locks.holder(tmp_path / "lock") == "somebody"
