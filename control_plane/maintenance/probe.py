"""`mam doctor --probe`: a small job proves that an agent takes a turn and can report from inside its sandbox."""

from mam.broker.errors import MamError
from mam.broker.host.progress import Progress, silent
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate, jobs, wait
from mam.control_plane.registry.records import Job

TASK = """This is a probe of your connection to MAM: change nothing.
Run the `started` command of your prompt, write one line that says "the probe arrived" to the report path,
then run the `report` command of your prompt with --result done."""


class ProbeFailed(MamError):
    """The agent did not report the probe's job."""

    agent: str
    state: str
    detail: str
    job: str

    code = "probe_failed"
    message = "{agent} did not take the turn: {detail}"
    remedy_text = "`mam why {job}` says how far it came"


def probe(mam: Mam, agent: str, *, wait_s: float, say: Progress = silent) -> Job:
    """
    The probe's job, reported. A probe that takes longer than *wait_s* is cancelled.

    Raises ProbeFailed, and what `delegate` raises: UnknownSession, SessionBusy, SessionNotRunning.
    """
    monitor_process.ensure(mam, say=say)
    job = delegate.delegate(mam, agent, TASK, title="probe by mam doctor")
    say(f"{job.id}: waiting for {agent}")
    try:
        job = wait.await_end(mam, job.id, wait_s=wait_s).job
    except wait.WaitedInVain:
        job = jobs.cancel(mam, job.id, "the probe took too long")
    if job.state != "reported":
        raise ProbeFailed(agent=agent, state=job.state, detail=job.detail or job.state, job=job.id)
    return job
