"""Ending processes: asked first, killed where they do not listen, and only where they are proven to be ours."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mam.broker.host import ending, process_identity
from mam.broker.host.ending import DoesNotEnd
from mam.broker.host.process_identity import ProcessId
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


End = Callable[..., bool]
ENDS = pytest.mark.parametrize("end", [ending.end_process, ending.end_group])


@ENDS
def test_one_that_obeys_term_is_not_killed(tmp_path: Path, end: End) -> None:
    out = tmp_path / "said"
    obeys = 'trap "echo goodbye > $1; exit 0" TERM; echo ready > "$1"; while :; do sleep 0.05; done'
    child = subprocess.Popen(["sh", "-c", obeys, "sh", str(out)], start_new_session=True)
    until(lambda: out.exists() and out.read_text("utf-8") == "ready\n")
    identity = process_identity.of(child.pid)
    assert identity is not None

    assert end(identity, wait_s=60) is True

    assert (child.wait(), out.read_text("utf-8")) == (0, "goodbye\n")


@ENDS
@pytest.mark.parametrize("other", [{"start": "1"}, {"boot": "another-boot"}])
def test_a_pid_that_is_that_of_another_process_now_is_left_alone(stays: Group, end: End, other: dict[str, Any]) -> None:
    assert end(stays.identity._replace(**other), wait_s=0.1) is False
    assert process_identity.alive(stays.identity) and process_identity.alive(stays.child)


@ENDS
def test_nothing_to_end_is_no_error(end: End) -> None:
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    identity = process_identity.of(child.pid)
    assert identity is not None
    child.kill()
    child.wait()

    assert end(identity, wait_s=0.1) is False


def test_a_process_that_ignores_term_is_killed_and_its_child_is_left_alone(stays: Group) -> None:
    assert ending.end_process(stays.identity, wait_s=0.2) is True
    assert not process_identity.alive(stays.identity) and process_identity.alive(stays.child)


def test_members_that_ignore_term_are_killed(stays: Group) -> None:
    assert ending.end_group(stays.identity, wait_s=0.2) is True
    until(lambda: not process_identity.alive(stays.identity) and not process_identity.alive(stays.child))


def test_children_that_outlive_the_leader_are_ended(leaves: Group) -> None:
    assert process_identity.alive(leaves.child)
    assert ending.end_group(leaves.identity, wait_s=0.2) is True
    until(lambda: not process_identity.alive(leaves.child))


@ENDS
def test_one_that_not_even_kill_ends_is_named(stays: Group, end: End, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process in an uninterruptible wait cannot be made; one that gets no signal behaves the same.
    with monkeypatch.context() as deaf:
        deaf.setattr(os, "kill", lambda pid, name: None)
        deaf.setattr(os, "killpg", lambda pid, name: None)
        with pytest.raises(DoesNotEnd, match=str(stays.identity.pid)):
            end(stays.identity, wait_s=0.02)
