"""Waiting for a job's end, as `mam job wait` does, with what it is doing told meanwhile."""

import time
from typing import NamedTuple

from mam.broker.errors import MamError
from mam.broker.host.progress import Progress, silent
from mam.broker.host.text import clean
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import jobs
from mam.control_plane.jobs.verify import verify
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, Job

POLL_S = 0.05
MONITOR_LOOK_S = 2.0


class WaitedInVain(MamError):
    """The job has not ended in time. It goes on."""

    job: str
    state: str
    waited_s: float

    code = "wait_ended"
    exit_code = 4
    message = "{job} is still {state} after {waited_s:g} s"
    remedy_text = "`mam why {job}` says what is awaited; `mam job wait {job}` waits again"


class EndedJob(NamedTuple):
    """A job that has ended. *exit_code*: 0 reported as done, 3 as failed or not_pass, 1 for any other end."""

    job: Job
    every_event_verified: bool
    exit_code: int

    @property
    def duration_s(self) -> float:
        """From its delegation to its end, by this machine's clock."""
        return ((self.job.ended_at or self.job.updated_at) - self.job.created_at) / 1000


def await_end(mam: Mam, job_id: str, *, wait_s: float, say: Progress = silent) -> EndedJob:
    """
    Follow one job until it ends; a monitor that dies meanwhile is started again, since nothing would end without one.

    Raises UnknownJob, WaitedInVain after *wait_s*, and MonitorFailed.
    """
    deadline = time.monotonic() + wait_s
    look_again = time.monotonic() + MONITOR_LOOK_S
    watch = mam.registry.watch()
    try:
        version, told, job = -1, "", jobs.need(watch, job_id)
        while True:
            if (seen := watch.data_version()) != version:
                version, job = seen, jobs.need(watch, job_id)
                told = _tell(watch, job, told, say)
            code = jobs.exit_code(job)
            if code is not None:
                return EndedJob(job, verify(mam.layout, watch, job_id).ok, code)
            if time.monotonic() > deadline:
                raise WaitedInVain(job=job_id, state=job.state, waited_s=wait_s)
            if time.monotonic() > look_again:
                monitor_process.ensure(mam, say=say)
                look_again = time.monotonic() + MONITOR_LOOK_S
            time.sleep(POLL_S)
    finally:
        watch.connection.close()


def _tell(view: View, job: Job, told: str, say: Progress) -> str:
    """Say what the job does where that differs from what was *told* last; what is told now."""
    attempt = view.attempt(job.id, job.attempt)
    line = f"{job.id} is {job.state}"
    if attempt is not None and attempt.last_note and job.state == "running":
        line += f": {clean(attempt.last_note)}"
    session = view.session(job.session)
    if session is not None and session.status not in LIVE and job.state in OPEN:
        line += f"; its agent is {session.status}: mam why {job.id}"
    if line != told:
        say(line)
    return line
