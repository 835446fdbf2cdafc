"""Logs that grew large begin anew."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mam.broker.host import rotated_log
from mam.control_plane.control_root import monitor_process
from tests.support import MAM, Root, until

pytestmark = pytest.mark.hostile


class TestLogs:
    def test_the_monitors_own_log_begins_anew_when_it_is_large(self, root: Root) -> None:
        root.mam("down")
        log = root.path / ".mam" / "logs" / "monitor.log"
        log.parent.mkdir(exist_ok=True)
        log.write_bytes(b"x" * (rotated_log.LIMIT_BYTES + 1))
        with log.open("ab") as file:  # as of a monitor that has run for long
            child = subprocess.Popen(
                [MAM, "monitor", "run"], cwd=root.path, env={**os.environ, **root.env}, stdout=file, stderr=file
            )
        try:
            until(lambda: log.with_name("monitor.log.1").exists() and log.exists(), what="the log was set aside")
            known = until(lambda: monitor_process.look(root.parts.layout))
            assert known.process.pid == child.pid
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(120)
        assert b"ending" in log.read_bytes()

    def test_what_is_started_finds_no_large_log_of_its_predecessors(self, root: Root) -> None:
        root.mam("down")
        layout = root.parts.layout
        for log in (layout.logs / "monitor.log", layout.broker / "nats.log"):
            log.parent.mkdir(exist_ok=True)
            log.write_bytes(b"x" * (rotated_log.LIMIT_BYTES + 1))

        assert root.mam("up").code == 0

        for log in (layout.logs / "monitor.log", layout.broker / "nats.log"):
            assert log.stat().st_size < rotated_log.LIMIT_BYTES and log.with_name(f"{log.name}.1").exists()

    def test_output_that_goes_elsewhere_is_left_alone(self, tmp_path: Path) -> None:
        log = tmp_path / "monitor.log"
        log.write_bytes(b"x" * 100)
        program = (
            "import sys; from pathlib import Path; from mam.broker.host import rotated_log as logs;"
            "logs.renew_own_output(Path(sys.argv[1]), limit_bytes=10); print('still here')"
        )

        done = subprocess.run([sys.executable, "-c", program, str(log)], capture_output=True, text=True)

        assert done.stdout == "still here\n" and log.read_bytes() == b"x" * 100
