"""
The one typed snapshot of a control root: what `mam status` prints, and what every other face shows.

It is read in one consistent view; what lies outside of the database (processes, locks, git's files) is looked at in the
same moment. Nothing here writes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.control_root import monitor_status
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.monitor_status import MonitorStatus
from mam.control_plane.explain import tables
from mam.control_plane.jobs import attention
from mam.control_plane.jobs.attention import Want
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.registry.records import LIVE, OPEN, Finding, Job, Loop, Session
from mam.control_plane.worktrees import state as worktree_state

# Raised with every change that a reader of the JSON could trip over; members that are only added do not raise it.
SCHEMA = 1


class WorktreeNow(NamedTuple):
    """A worktree of MAM's own. *state*: what its record and git's files say together (`worktrees/state.py`)."""

    name: str
    state: str
    branch: str
    path: str


class LoopNow(NamedTuple):
    """A loop that is not archived. *runs*: a process carries it out at this moment."""

    loop: Loop
    runs: bool


class Snapshot(NamedTuple):
    """A control root at one moment (*at*, ms since 1970). *monitor* None: no monitor is proven to run."""

    at: int
    root: str
    fingerprint: str
    monitor: MonitorStatus | None
    sessions: Sequence[Session]
    open_jobs: Sequence[Job]
    job_counts: dict[str, int]
    worktrees: Sequence[WorktreeNow]
    loops: Sequence[LoopNow]
    findings: Sequence[Finding]
    runtime: str | None  # the mam that monitor and runners start from; None in a root of 0.1.0 until its next `mam up`
    wants: Sequence[Want] = ()  # of a person, by agents: questions of open jobs, and screens that ask

    def job_of(self, session: str) -> Job | None:
        """The open job of an agent; an agent has one at most."""
        return next((job for job in self.open_jobs if job.session == session), None)

    def to_json(self) -> dict[str, Any]:
        """As `mam status --json` prints it; *schema* says which members there are and what they mean."""
        known = self.monitor
        return {
            "schema": SCHEMA,
            "root": self.root,
            "fingerprint": self.fingerprint,
            "monitor": {"pid": known.process.pid, "broker": known.broker, "problem": known.problem} if known else None,
            "sessions": [tables.session_data(session) for session in self.sessions],
            "open_jobs": [tables.job_data(job) for job in self.open_jobs],
            "jobs": self.job_counts,
            "worktrees": [tree._asdict() for tree in self.worktrees],
            "loops": [_loop_json(each) for each in self.loops],
            "findings": [
                {"code": f.code, "subject": f.subject, "since": f.since, "text": f.text} for f in self.findings
            ],
            "runtime": self.runtime,
            "wants": [want._asdict() for want in self.wants],
        }


def _loop_json(each: LoopNow) -> dict[str, object]:
    row = tables.loop_row(each.loop, 0, runs=each.runs)
    return dict(zip(("id", "state", "round", "head"), row, strict=False))


def take(mam: Mam) -> Snapshot:
    """
    The snapshot of this moment; nothing is started and nothing is changed by it.

    Raises NoRegistry, SchemaMismatch, RegistryUnusable.
    """
    at, monitor = now_ms(), monitor_status.look(mam.layout)
    with mam.registry.view() as view:
        sessions, worktrees, loops = view.sessions(), view.worktrees(), view.loops()
        jobs, counts, findings = view.jobs(states=OPEN), view.count_jobs(), view.findings()
        wants = [want for job in jobs for want in attention.wants(view, job, at)]
    busy = {job.session for job in jobs}
    for each in sessions if monitor is not None else ():  # what is only remembered asks nothing now
        wants += attention.on_screen(each, "", at) if each.status in LIVE and each.name not in busy else []
    return Snapshot(
        at=at,
        root=str(mam.layout.root),
        fingerprint=mam.fingerprint,
        monitor=monitor,
        sessions=sessions,
        open_jobs=jobs,
        job_counts=counts,
        worktrees=[WorktreeNow(t.name, worktree_state.now(mam.layout.root, t), t.branch, t.path) for t in worktrees],
        loops=[LoopNow(loop, loop.ended_at is None and loop_locks.runs(mam, loop.id)) for loop in loops],
        findings=findings,
        runtime=mam.runtime,
        wants=wants,
    )
