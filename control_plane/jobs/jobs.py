"""Jobs: found, cancelled, archived. `delegation` makes them."""

import base64
import json
from dataclasses import replace
from pathlib import Path

from mam.broker import spool
from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import state as job_state
from mam.control_plane.registry.queries import View, pages
from mam.control_plane.registry.records import FINAL, LIVE, OPEN, PRESUMED, Job, OutboxMessage
from mam.control_plane.registry.transactions import Transaction


class UnknownJob(MamError):
    """No job has this id."""

    job: str

    code = "unknown_job"
    exit_code = 2
    message = "there is no job {job!r}"
    remedy_text = "`mam job list` shows them"


class JobStillOpen(MamError):
    """The job must have ended first."""

    job: str
    state: str

    code = "job_open"
    message = "{job} is {state}"
    remedy_text = "`mam job cancel {job}` first, or wait for its end"


class JobArchived(MamError):
    """The job was archived. Its key was destroyed, so it cannot be verified or tried again."""

    job: str
    folder: str

    code = "job_archived"
    message = "{job} was archived: its key is destroyed"
    remedy_text = "its brief, report and events lie in {folder}; `mam job delegate` the brief anew"


class JobEnded(MamError):
    """The job was reported, so it cannot be cancelled."""

    job: str
    state: str

    code = "job_ended"
    message = "{job} is {state} already"
    remedy_text = "`mam job retry {job}` makes a new attempt"


class JobOfLoop(MamError):
    """The job is a part of an open loop, and only the loop may try it again."""

    job: str
    loop: str

    code = "job_of_loop"
    message = "{job} belongs to the loop {loop}, which asks for it itself"
    remedy_text = "`mam why {loop}` says what it waits for; `mam loop resume {loop}` asks again"


def need(view: View, job_id: str) -> Job:
    """The job called *job_id*. Raises UnknownJob."""
    job = view.job(job_id)
    if job is None:
        raise UnknownJob(job=job_id)
    return job


def cancel(mam: Mam, job_id: str, reason: str = "") -> Job:
    """End a job; cancelling a cancelled one changes nothing. Raises UnknownJob, JobEnded for a reported one."""
    mam.check_place()
    with mam.registry.transaction() as tx:
        job = need(tx, job_id)
        if job.state == "reported":
            raise JobEnded(job=job_id, state=job.state)
        attempt = tx.attempt(job_id, job.attempt)
        assert attempt is not None
        after, ended = job_state.cancel(job, attempt, reason, now=now_ms())
        if after != job:
            tx.put(after)
            tx.put(ended)
            withdraw(tx, job)
            call_off(tx, job, reason)
    spool.wake(mam.layout.monitor_wake)
    return after


def call_off(tx: Transaction, job: Job, reason: str) -> None:
    """Tell the runner of *job*'s attempt, where one lives, to forget it."""
    session = tx.session(job.session)
    if session is not None and session.status in LIVE:
        data = json.dumps({"reason": reason})
        order_id = f"{job.id}/{job.attempt}/cancel"
        life = session.incarnation
        tx.put(OutboxMessage(order_id, job.session, "cancel", job.id, job.attempt, life, data, now_ms()))


def withdraw(tx: Transaction, job: Job) -> None:
    for order in tx.outbox():
        if order.job == job.id:
            tx.drop(order)


def check_own(view: View, job_id: str) -> None:
    """Whether a person may try this job again: an open loop asks for its own. Raises UnknownJob, JobOfLoop."""
    job = need(view, job_id)
    loop = view.loop(job.loop) if job.loop else None
    if loop is not None and loop.ended_at is None:
        raise JobOfLoop(job=job_id, loop=loop.id)


def archive(mam: Mam, job_id: str) -> Path:
    """
    Put an ended job away: its events go into its folder, its key is destroyed, its topic is dead for ever.

    Raises UnknownJob, JobStillOpen. Archiving twice is harmless.
    """
    mam.check_place()
    with mam.registry.transaction() as tx:
        job = need(tx, job_id)
        if job.state in OPEN:
            raise JobStillOpen(job=job_id, state=job.state)
        target = Path(job.folder) / "events.jsonl"
        if job.archived_at is None:
            _export(tx, job, target)  # in here: what comes in between would be deleted unseen
            tx.put(replace(job, archived_at=now_ms()))
            tx.connection.execute("DELETE FROM events WHERE scope = ?", (topics.job(job_id),))
    mam.layout.job_key(job_id).unlink(missing_ok=True)
    spool.wake(mam.layout.monitor_wake)
    return target


def _export(view: View, job: Job, target: Path) -> None:
    lines = []
    for event in pages(view, topics.job(job.id)):
        event["wire"] = base64.b64encode(event["wire"]).decode()
        lines.append(json.dumps(event, ensure_ascii=False))
    content = "".join(f"{line}\n" for line in lines).encode()
    atomic_files.write(target, content, Durability.NAME, point="archive.rename")  # the rows are deleted after this


def exit_code(job: Job) -> int | None:
    """What `job wait` ends with for a job in this state, or None while it is open."""
    if job.state == "reported":
        return 3 if job.result == "failed" or job.verdict == "not_pass" else 0
    if job.state in FINAL or job.state in PRESUMED:
        return 1
    return None
