"""Waiting for a job's end, as `mam job wait` does, with what it is doing told meanwhile."""

import time
from typing import NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host.progress import Progress, silent
from mam.broker.host.text import clean
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.monitor_process import NoMonitorHere
from mam.control_plane.jobs import attention, jobs
from mam.control_plane.jobs.attention import Want
from mam.control_plane.jobs.state import ASKED_NOTE
from mam.control_plane.jobs.verify import verify
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, Job, Session
from mam.control_plane.sessions.refusals import pane

POLL_S = 0.05
MONITOR_LOOK_S = 2.0


class WaitedInVain(MamError):
    """The job has not ended in time. It goes on."""

    job: str
    state: str
    waited_s: float
    wants: list[str]

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


def await_end(mam: Mam, job_id: str, *, wait_s: float, say: Progress = silent, columns: int | None = None) -> EndedJob:
    """
    Follow one job until it ends; a monitor that dies meanwhile is started again, since nothing would end without one.

    Raises UnknownJob, WaitedInVain after *wait_s*, NoMonitorHere, and MonitorFailed.
    """
    deadline = time.monotonic() + wait_s
    look_again = 0.0
    watch = mam.registry.watch()
    try:
        version, news = -1, News(say, columns)
        while True:
            if (seen := watch.data_version()) != version or time.monotonic() > look_again:
                version, job = seen, jobs.need(watch, job_id)
                news.tell(watch, job, now_ms())
            code = jobs.exit_code(job)
            if code is not None:
                return EndedJob(job, verify(mam.layout, watch, job_id).ok, code)
            if time.monotonic() > deadline:
                news.repeat()
                raise WaitedInVain(job=job_id, state=job.state, waited_s=wait_s, wants=[*map(Want.text, news.wants)])
            if time.monotonic() > look_again:
                if monitor_process.ensure(mam, say=say) is None:
                    raise NoMonitorHere(kept=f"{job_id} is kept")
                look_again = time.monotonic() + MONITOR_LOOK_S
            time.sleep(POLL_S)
    finally:
        watch.connection.close()


class News:
    """What is told to a person who waits for a job: whom for, each change, and at once what its agent wants."""

    def __init__(self, say: Progress, columns: int | None = None) -> None:
        self._say, self._columns = say, columns
        self._told = ""
        self.wants: list[Want] = []

    def tell(self, view: View, job: Job, now: int) -> None:
        """Say what differs from what was said last."""
        session = view.session(job.session)
        if not self._told and session is not None and job.state in OPEN:
            self._say(f"waiting for {session.name} ({session.agent}); its pane: {pane(session)}")
        line = self._line(view, job, session)
        if line != self._told:
            self._say(line)
            self._told = line
        before, self.wants = self.wants, attention.wants(view, job, now) if job.state in OPEN else []
        for want in self.wants:
            if want not in before:
                self._say(want.text(self._columns))

    def repeat(self) -> None:
        """Say again what is wanted: the wait ends, and what was said at its beginning is far above."""
        for want in self.wants:
            self._say(want.text(self._columns))

    @staticmethod
    def _line(view: View, job: Job, session: Session | None) -> str:
        attempt = view.attempt(job.id, job.attempt)
        line = f"{job.id} is {job.state}"
        # A question is told by itself, with what answers it.
        if (
            attempt is not None
            and attempt.last_note
            and job.state == "running"
            and not attempt.last_note.startswith(ASKED_NOTE)
        ):
            line += f": {clean(attempt.last_note)}"
        if session is not None and session.status not in LIVE and job.state in OPEN:
            line += f"; its agent is {session.status}: mam why {job.id}"
        return line
