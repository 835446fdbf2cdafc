"""What a verb costs as a whole process, against `python3 -c pass`."""

import json
import os
import statistics
import subprocess  # noqa: TID251 (what is measured is the start of processes itself)
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mam.broker import spool
from mam.broker.envelope import keys
from mam.control_plane.benchmarks import budgets, suite
from mam.control_plane.benchmarks.suite import Figure, NotMeasured
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.registry.records import Job


def verbs(runs: int = 21, agents: int = 100, jobs: int = 10_000) -> list[Figure]:
    """Each verb and a bare interpreter in turn, so that a slow moment of the machine hits both. Raises NotMeasured."""
    with suite.place() as mam:
        suite.fill(mam, agents, jobs)
        status = [mam.command, "status", "--json", "--root", str(mam.layout.root)]
        with _open_job(mam) as job:
            where = ["--registry-dir", str(mam.layout.jobs), "--job", job.id, "--attempt", "1"]
            beat = [mam.command, "job", "heartbeat", *where]
            found = [
                _against_bare(mam, "`mam job heartbeat`", beat, budgets.HEARTBEAT_RATIO, runs),
                _against_bare(mam, "`mam --help`", [mam.command, "--help"], budgets.HELP_RATIO, runs),
                _against_bare(
                    mam,
                    f"`mam status --json`, {agents} sessions, {jobs} jobs",
                    status,
                    budgets.STATUS_RATIO,
                    runs,
                ),
            ]
            beats = len(spool.entries(mam.layout.run_dir(job.session) / "outbox"))
        shown = json.loads(subprocess.run(status, cwd=mam.layout.root, capture_output=True, check=True).stdout)
    seen = (beats, len(shown["sessions"]), shown["jobs"].get("reported"))
    if seen != (runs, agents, jobs):
        raise NotMeasured(what="verbs", why="{} heartbeats, {} agents, {} jobs were seen".format(*seen))
    return found


@contextmanager
def _open_job(mam: Mam) -> Generator[Job]:
    """A job that runs, and somebody who reads its agent's FIFO as a runner does."""
    job = suite.job_row("job-heartbeat", mam, "agent-0", "running")
    Path(job.folder).mkdir()
    keys.create(mam.layout.job_key(job.id))
    delegation.write_record(mam.layout, job)
    run_dir = mam.layout.run_dir("agent-0")
    (run_dir / "outbox").mkdir(parents=True)
    os.mkfifo(run_dir / "wake")
    reader = os.open(run_dir / "wake", os.O_RDWR | os.O_NONBLOCK)
    try:
        yield job
    finally:
        os.close(reader)


def _against_bare(mam: Mam, what: str, argv: Sequence[str], budget: float, runs: int) -> Figure:
    bare = [sys.executable, "-c", "pass"]
    pairs = [(_wall_s(argv, mam.layout.root), _wall_s(bare, mam.layout.root)) for _ in range(runs)]
    ratio = statistics.median(a / b for a, b in pairs)
    return Figure(what, f"{ratio:.1f} × `python3 -c pass`", f"≤ {budget:g} ×", ratio <= budget)


def _wall_s(argv: Sequence[str], cwd: Path) -> float:
    began = time.perf_counter()
    subprocess.run(argv, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
