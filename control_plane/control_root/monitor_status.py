"""
What a monitor says of itself, by files alone: for commands that only ask.

What starts and ends a monitor is in monitor_process.py, and costs a short command more than the look itself.
"""

import os
from typing import NamedTuple

from mam.broker.host import atomic_files, process_identity
from mam.broker.host.process_identity import ProcessId
from mam.control_plane.config.layout import Layout


class MonitorStatus(NamedTuple):
    """What a running monitor says of itself."""

    process: ProcessId
    ready: bool
    version: str
    broker: str
    problem: str
    stopped: bool = False  # its process stands still: what it said of itself is old


def look(layout: Layout, *, made_at: str | None = None) -> MonitorStatus | None:
    """The monitor of this control root, proven alive by pid, start time and boot; None where there is none."""
    state = atomic_files.read(layout.monitor_state)
    pid = state.get("pid")
    here = os.path.realpath(made_at or layout.root)  # one control root may be reached by several paths
    if not isinstance(pid, int) or os.path.realpath(str(state.get("root"))) != here:
        return None  # a copied control root brings the state of its original along
    named = ProcessId(pid, str(state.get("start")), str(state.get("boot")))
    if not process_identity.alive(named):
        return None
    version, broker, problem = (str(state.get(name, "")) for name in ("version", "broker", "problem"))
    if stopped := process_identity.is_stopped(pid):
        problem = f"its process {pid} was stopped, and sees, sends and records nothing; `kill -CONT {pid}` wakes it"
    return MonitorStatus(named, bool(state.get("ready")), version, broker, problem, stopped)
