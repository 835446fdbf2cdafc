"""What processes that have nothing to do cost: memory, processor, disk."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mam.control_plane.benchmarks import budgets
from mam.control_plane.benchmarks.suite import Figure

IDLE_S = 20.0


class Allowance(NamedTuple):
    """The most that a process may take, resident MB and percent of a core; and whether it may write to the disk."""

    megabytes: float
    core_percent: float
    may_write: bool = False


RUNNER = Allowance(budgets.RUNNER_MB, budgets.RUNNER_CORE_PERCENT, may_write=True)
MONITOR = Allowance(budgets.MONITOR_MB, budgets.MONITOR_CORE_PERCENT)


class _Usage(NamedTuple):
    cpu_s: float
    resident_mb: float
    written_bytes: int  # what was sent to the disk


def measure(processes: Mapping[str, tuple[int, Allowance]], seconds: float = IDLE_S) -> list[Figure]:
    """
    What each process (name → pid, allowance) takes in *seconds* of quiet, which begin when nothing is written any more.

    Raises OSError where a process ended meanwhile.
    """
    _await_quiet([pid for pid, _ in processes.values()], quiet_s=min(3.0, seconds))
    before = {name: _usage(pid) for name, (pid, _) in processes.items()}
    time.sleep(seconds)
    found = []
    for name, (pid, allowed) in processes.items():
        after = _usage(pid)
        percent = (after.cpu_s - before[name].cpu_s) / seconds * 100
        wrote = after.written_bytes - before[name].written_bytes
        met = after.resident_mb <= allowed.megabytes and percent <= allowed.core_percent
        value = f"{after.resident_mb:.0f} MB, {percent:.2f} % of a core, {wrote} bytes written in {seconds:g} s"
        budget = f"≤ {allowed.megabytes:g} MB, ≤ {allowed.core_percent:g} %"
        found.append(Figure(f"{name}, idle", value, budget, met and (allowed.may_write or wrote == 0)))
    return found


def _await_quiet(pids: Sequence[int], quiet_s: float) -> None:
    """Until nothing was written for a while: what went before is not what is measured."""
    deadline, seen, since = time.monotonic() + 60, -1, time.monotonic()
    while time.monotonic() - since < quiet_s and time.monotonic() < deadline:
        written = sum(_usage(pid).written_bytes for pid in pids)
        if written != seen:
            seen, since = written, time.monotonic()
        time.sleep(0.2)


def _usage(pid: int) -> _Usage:
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    tasks = [path.read_text().split()[0] for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    resident_mb = int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return _Usage(sum(map(int, tasks)) / 1e9, resident_mb, int(io["write_bytes"]))
