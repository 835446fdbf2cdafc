"""Disks that are full or turn read-only: typed errors, nothing half done, and all goes on afterwards."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from tests.support import Root, repository, until
from tests.support.bystander import JOB, mam
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile


def mounted(*words: str) -> None:
    """Mount a disk of the test's own. A folder in which something is being opened is busy for a moment."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")

    def tried() -> bool:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        if done.returncode != 0:
            subprocess.run(["umount", "-l", words[-1]], stderr=-3)  # what a bind without its `ro` left
            if "busy" not in done.stderr:
                pytest.skip(f"no disk may be mounted here: {done.stderr}")
        return done.returncode == 0

    until(tried, what="the disk is mounted")


class TestDisks:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Root]:
        """A control root whose .mam is a disk of 32 MB."""
        root = Root(tmp_path / "repo", mux="headless")
        disk = repository(root.path) / ".mam"
        disk.mkdir(mode=0o700)
        mounted("-t", "tmpfs", "-o", "size=32m,mode=700", "tmpfs", str(disk))
        try:
            assert root.mam("init").code == 0
            yield root
        finally:
            (disk / "fill").unlink(missing_ok=True)
            root.clean()
            subprocess.run(["umount", "-l", str(disk)], check=True)

    @pytest.fixture
    def read_only(self, root: Root) -> Iterator[Root]:
        """A control root with a running job, on a disk that was just mounted read-only."""
        root.agent("writer", {"started": {}}, {"hang": {}})
        job = root.delegate("writer", "x", "--id", JOB)
        until(lambda: root.job(job).state == "running")
        disk = str(root.path / ".mam")
        mounted("-o", "bind,ro", disk, disk)
        yield root
        subprocess.run(["umount", "-l", disk], check=True)

    def fill(self, root: Root) -> Path:
        path = root.path / ".mam" / "fill"
        with path.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue
        return path

    def report(self, root: Root, job: str) -> list[str]:
        path = root.path.parent / "report.md"
        path.write_text("done all the same\n")
        words = ["job", "report", "--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
        return [*words, "--result", "done", "--file", str(path), "--json"]

    def test_a_full_disk_is_said_leaves_nothing_half_done_and_all_goes_on_when_there_is_room(self, small: Root) -> None:
        small.agent("writer", {"started": {}}, {"hang": {}})
        small.agent("second")
        job = small.delegate()
        until(lambda: small.job(job).state == "running")
        outbox = small.parts.layout.run_dir("writer") / "outbox"
        until(lambda: not any(outbox.iterdir()), what="the spool is settled")
        monitor = monitor_process.look(small.parts.layout)
        before = names(small.parts.layout.jobs), names(small.parts.layout.secrets)

        filler = self.fill(small)
        told = small.mam(*self.report(small, job))
        new = small.mam("job", "delegate", "--to", "second", "--brief", "README", "--json")

        assert (told.code, told.error["code"]) in ((1, "spool_unwritable"), (1, "file_refused"))
        assert new.code == 1 and "No space left" in new.error["message"] + str(new.error["data"])
        assert (names(small.parts.layout.jobs), names(small.parts.layout.secrets)) == before
        assert names(outbox) == []
        assert small.mam("why", job).code == 0 and small.mam("status").code == 0
        filler.unlink()
        assert small.mam(*self.report(small, job)).code == 0
        until(lambda: small.job(job).state == "reported")
        assert small.mam("job", "wait", small.delegate("second"), "--timeout", "90", timeout_s=100).code == 0
        assert monitor_process.look(small.parts.layout) == monitor
        assert "Traceback" not in small.ok("agent", "show", "writer")

    def test_a_disk_that_is_full_when_an_agent_ends_does_not_hide_its_end(self, small: Root) -> None:
        small.agent("writer", {"started": {}}, {"hang": {}})
        job = small.delegate()
        until(lambda: small.job(job).state == "running")

        filler = self.fill(small)
        os.kill(small.session("writer").agent_pid, signal.SIGKILL)
        until(lambda: not process_identity.alive(process_identity.ProcessId(small.session("writer").pid, "", "")))
        until(lambda: process_identity.start_time(small.session("writer").pid) is None, what="the runner ended")
        filler.unlink()

        until(lambda: small.session("writer").status == "ended")
        until(lambda: small.job(job).state == "lost")

    @pytest.mark.parametrize("action", ["ENOSPC", "EIO"])
    @pytest.mark.parametrize("point", ["spool.fsync", "spool.rename"])
    def test_a_verb_that_the_disk_refuses_says_so_leaves_nothing_and_works_the_next_time(
        self, desk: Desk, point: str, action: str
    ) -> None:
        desk.session()
        job = desk.job()
        outbox = desk.mam.layout.run_dir("writer") / "outbox"
        words = ["job", "started", "--registry-dir", str(desk.mam.layout.jobs), "--job", job.id, "--attempt", "1"]

        said = mam(desk, *words, MAM_FAULT=f"verb@{point}:1:{action}")

        assert said.returncode == 1
        assert json.loads(said.stderr)["error"]["code"] == "spool_unwritable"
        assert names(outbox) == []
        assert mam(desk, *words).returncode == 0 and len(names(outbox)) == 1

    @pytest.mark.parametrize("point", ["spool.fsync", "spool.rename", "bus.publish", "delivery.conclude"])
    def test_a_runner_whose_disk_refuses_once_goes_on(self, root: Root, point: str) -> None:
        root.env["MAM_FAULT"] = f"runner@{point}:1:ENOSPC,runner@{point}:3:EIO"
        root.agent()
        del root.env["MAM_FAULT"]

        assert root.mam("job", "wait", root.delegate(), "--timeout", "60").code == 0

    def test_on_a_read_only_disk_everybody_says_so_and_what_can_be_read_is_shown(self, read_only: Root) -> None:
        for line in ("status", "agent list", "job list", f"job show {JOB}", f"why {JOB}", f"verify {JOB}"):
            assert read_only.mam(*line.split()).code == 0, line
        for words in (
            ["init"],
            ["agent", "create", "second", "--agent", "scripted"],
            ["agent", "stop", "writer", "--force"],
            ["agent", "send", "writer", "x"],
            ["job", "cancel", JOB],
            ["registry", "export"],
            self.report(read_only, JOB)[:-1],
        ):
            said = read_only.mam(*words, "--json")
            assert said.code == 1, words
            assert said.error["code"] != "internal"
            assert "ead-only" in said.error["message"], said.error

        found = read_only.mam("doctor", "--json").json["findings"]
        assert any(f["what"] == "control root" and "read-only" in f["detail"] for f in found)

    def test_after_a_read_only_spell_the_same_processes_finish_the_job(self, root: Root, read_only: Root) -> None:
        monitor = monitor_process.look(root.parts.layout)
        assert root.mam(*self.report(root, JOB)).code == 1

        subprocess.run(["mount", "-o", "remount,rw,bind", str(root.path / ".mam")], check=True)

        assert root.mam(*self.report(root, JOB)).code == 0
        until(lambda: root.job(JOB).state == "reported")
        assert monitor_process.look(root.parts.layout) == monitor


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
