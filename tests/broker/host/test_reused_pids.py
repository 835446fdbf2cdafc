"""A process id that another process has now: that one is never taken for the one that is gone."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from mam.control_plane.sessions import lifecycle
from tests.support import Root
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process, to be left alone."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    yield child
    child.kill()
    child.wait()


class TestReusedPids:
    """Each record names a pid that is somebody else's now: another start time, or another machine's boot."""

    def identities(self, pid: int) -> list[dict[str, str]]:
        mine = process_identity.of(pid)
        assert mine is not None
        return [{"start": "1", "boot": mine.boot}, {"start": mine.start, "boot": "another-machine"}]

    @pytest.mark.parametrize("which", [0, 1], ids=["start time", "boot"])
    def test_of_a_monitor(self, root: Root, other: subprocess.Popen[bytes], which: int) -> None:
        root.mam("down")
        state = {"pid": other.pid, "root": str(root.path), "ready": True, **self.identities(other.pid)[which]}
        root.parts.layout.monitor_state.write_text(json.dumps(state))

        assert root.mam("down").code == 0
        assert root.mam("up").code == 0

        assert other.poll() is None
        known = monitor_process.look(root.parts.layout)
        assert known is not None and known.process.pid != other.pid

    @pytest.mark.parametrize("which", [0, 1], ids=["start time", "boot"])
    def test_of_a_runner_and_its_agent(self, desk: Desk, other: subprocess.Popen[bytes], which: int) -> None:
        found = self.identities(other.pid)[which]
        desk.session(pid=other.pid, pid_start=found["start"], agent_pid=other.pid, agent_start=found["start"])
        with desk.mam.registry.transaction() as tx:
            row = tx.session("writer")
            assert row is not None
            tx.put(replace(row, boot_id=found["boot"]))

        for _ in range(2):
            assert lifecycle.stop(desk.mam, "writer").status == "stopped"

        assert other.poll() is None

    def test_of_whoever_left_a_lock_file(self, root: Root, other: subprocess.Popen[bytes]) -> None:
        """Locks are held by descriptors: what stands in their files, and how old they are, says nothing."""
        root.mam("down")
        layout = root.parts.layout
        for path in (layout.monitor_lock, layout.registry_lock, layout.broker / "lock", layout.run / "x.lock"):
            path.write_text(f"{other.pid}\nother-host\n")
            path.chmod(0o600)
        (layout.run_dir("writer")).mkdir(exist_ok=True)
        (layout.run_dir("writer") / "life.lock").write_text(str(other.pid))

        root.agent()

        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0
