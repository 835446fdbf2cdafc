"""Work handed to an agent: a job made, or tried again. Files first, then one transaction."""

import hashlib
import json
import secrets
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mam.broker import spool
from mam.broker.envelope import keys, topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import atomic_files, fault_points
from mam.broker.host.atomic_files import Durability, write_json
from mam.control_plane.config.layout import Layout
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import jobs, prompts
from mam.control_plane.jobs import state as job_state
from mam.control_plane.jobs.jobs import JobArchived, JobStillOpen, need
from mam.control_plane.jobs.reports import set_aside
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, Attempt, Job, OutboxMessage, Session
from mam.control_plane.registry.transactions import Transaction
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions.lookup import SessionGivenAway, SessionHasJob, SessionNotRunning, need_session

BRIEF_LIMIT_BYTES = 1024 * 1024


class BriefRefused(MamError):
    """The brief cannot be read, or is not text of the allowed size. No job was made."""

    source: str
    why: str

    code = "brief_refused"
    exit_code = 2
    message = "the brief from {source} was refused: {why}"
    remedy_text = "write what is to be done as UTF-8 text of at most 1 MiB; put more into files and name them"


class JobExists(MamError):
    """The chosen job id is taken."""

    job: str

    code = "job_exists"
    message = "there is a job {job} already"
    remedy_text = "leave --id out, or choose another one"


class JobFilesGone(MamError):
    """The brief of the job does not exist any more, so the job cannot be tried again."""

    job: str
    folder: str

    code = "job_files_gone"
    message = "the files of {job} are gone from {folder}"
    remedy_text = "`mam job delegate` the work anew; what was said of the job is still in `mam tail {job}`"


class Limits(NamedTuple):
    """The limits of one job. Times are in seconds."""

    started_within_s: float
    deliver_within_s: float
    limit_s: float
    heartbeat_misses: int
    retries: int = 0  # how many further attempts are made by themselves after a presumed end


class LoopPart(NamedTuple):
    """
    What makes a job part of a loop. A review has *head_sha*, and a *tree* of that commit if it is made here.

    *tip* is what HEAD of the tree names: another commit where the tree's uncommitted work is under review.
    """

    loop: str
    round: int
    first_line: str
    base_sha: str | None = None
    head_sha: str | None = None
    tree: Path | None = None
    tip: str | None = None


def default_limits(mam: Mam) -> Limits:
    settings = mam.settings
    return Limits(
        settings.started_within_s, settings.deliver_within_s, settings.attempt_limit_s, settings.heartbeat_misses
    )


def check_brief(content: bytes, source: str) -> str:
    """The text of a brief. Raises BriefRefused for empty, oversized and binary ones."""
    if len(content) > BRIEF_LIMIT_BYTES:
        raise BriefRefused(source=source, why=f"it has {len(content)} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BriefRefused(source=source, why=f"it is not UTF-8 (byte {error.start})") from error
    if not text.strip():
        raise BriefRefused(source=source, why="it is empty")
    if "\0" in text:
        raise BriefRefused(source=source, why="it holds NUL bytes")
    return text


def delegate(
    mam: Mam,
    session: str,
    task: str,
    *,
    title: str = "",
    job_id: str | None = None,
    limits: Limits | None = None,
    part: LoopPart | None = None,
) -> Job:
    """
    Hand *task* to the agent session *session*.

    When this returns the job is in the registry and will be sent, whatever
    ends now. When it raises, nothing of it is left.

    Raises: UnknownSession, SessionNotRunning, SessionBusy, OtherBinding, JobExists, BadName.
    """
    mam.check_place()
    job_id = topics.check_job_id(job_id) if job_id else f"job-{secrets.token_hex(6)}"
    with mam.registry.view() as view:
        found = _ready(view, session)
        if part is None:
            runtime.check_binding(mam, found)
        if view.job(job_id) is not None:
            raise JobExists(job=job_id)
    folder = mam.layout.jobs / job_id
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise JobExists(job=job_id) from error
    try:
        fault_points.point("job.files")
        job = _plan(mam, folder, job_id, session, title or task.strip().splitlines()[0], limits, part)
        job = _write_files(mam, folder, job, task, part)
        with mam.registry.transaction() as tx:
            _ready(tx, session)
            _enter(tx, job, mam.layout, mam.command)
    except (sqlite3.IntegrityError, MamError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        mam.layout.job_key(job_id).unlink(missing_ok=True)
        if isinstance(error, sqlite3.IntegrityError):
            raise SessionGivenAway(session=session) from error
        raise
    spool.wake(mam.layout.monitor_wake)
    return job


def _ready(view: View, session: str) -> Session:
    found = need_session(view, session)
    busy = view.open_job(session)
    if busy is not None:
        raise SessionHasJob(session=session, job=busy.id)
    if found.status not in LIVE:
        raise SessionNotRunning(session=session, status=found.status)
    return found


def _plan(
    mam: Mam, folder: Path, job_id: str, session: str, title: str, limits: Limits | None, part: LoopPart | None
) -> Job:
    now = now_ms()
    return Job(
        id=job_id,
        topic_prefix=topics.job_prefix(mam.fingerprint),
        title=" ".join(title.split())[:120],
        session=session,
        state="queued",
        attempt=1,
        folder=str(folder),
        brief_sha256="",
        **(limits or default_limits(mam))._asdict(),
        created_at=now,
        updated_at=now,
        loop=part.loop if part else None,
        round=part.round if part else None,
        base_sha=part.base_sha if part else None,
        head_sha=part.head_sha if part else None,
    )


def _write_files(mam: Mam, folder: Path, job: Job, task: str, part: LoopPart | None) -> Job:
    """Key, brief and record; the job with its brief's hash."""
    mam.layout.job_key(job.id).unlink(missing_ok=True)  # of a crash: the folder is ours alone, and no row has this id
    keys.create(mam.layout.job_key(job.id))
    brief_path, report = Path(job.brief_path), Path(job.report_path)
    verbs = prompts.commands(mam.command, mam.layout.jobs, job.id, 1)
    first_line, review = part.first_line if part else "", job.head_sha is not None
    text = prompts.brief(verbs, job.title, job.session, brief_path, report, task, first_line=first_line, review=review)
    content = text.encode("utf-8", "surrogateescape")
    atomic_files.write(brief_path, content, Durability.FILE, exclusive=True, point="key.link")  # the row has its hash
    report.parent.mkdir(mode=0o700)
    if part and part.head_sha:
        identity = {"loop_id": part.loop, "round": part.round, "base_sha": part.base_sha, "head_sha": part.head_sha}
        place = {"reviewer": job.session, "tree": str(part.tree or ""), "tip": part.tip or part.head_sha}
        write_json(folder / "identity.json", {**identity, **place})
    write_record(mam.layout, job)
    return replace(job, brief_sha256=hashlib.sha256(content).hexdigest())


def write_record(layout: Layout, job: Job) -> None:
    """job.json: what an agent's verbs need to know, so that they never open the database."""
    record: dict[str, object] = {
        "job": job.id,
        "attempt": job.attempt,
        "session": job.session,
        "topic_prefix": job.topic_prefix,
        "key_file": str(layout.job_key(job.id)),
        "spool": str(layout.run_dir(job.session) / "outbox"),
        "wake": str(layout.run_dir(job.session) / "wake"),
        "monitor_wake": str(layout.monitor_wake),
        "report": job.report_path,
    }
    identity = atomic_files.read(Path(job.folder) / "identity.json")
    if identity:
        record["review"] = {name: identity[name] for name in ("base_sha", "head_sha", "tree", "tip")}
    write_json(Path(job.folder) / "job.json", record)


def _enter(tx: Transaction, job: Job, layout: Layout, mam_command: str) -> None:
    """Put a job's new attempt and the order to dispatch it."""
    now = now_ms()
    tx.put(job)
    tx.put(Attempt(job.id, job.attempt, job.session, now))
    brief, report = Path(job.brief_path), Path(job.report_path)
    verbs = prompts.commands(mam_command, Path(job.folder).parent, job.id, job.attempt)
    text = prompts.prompt(verbs, job.id, job.attempt, brief, report, review=job.head_sha is not None)
    data = {
        "brief_path": job.brief_path,
        "brief_sha256": job.brief_sha256,
        "key_file": str(layout.job_key(job.id)),
        "prompt": text,
        "deliver_within_s": max(1, round(job.deliver_within_s)),
    }
    order_id = f"{job.id}/{job.attempt}"
    tx.put(OutboxMessage(order_id, job.session, "dispatch", job.id, job.attempt, None, json.dumps(data), now))


def retry(mam: Mam, job_id: str, session: str | None = None) -> Job:
    """
    Make a new attempt of an ended job, on its own session or on another one.

    What the old attempt still says is recorded and has no effect. Where it raises, the job and its files are as before.
    Raises UnknownJob, JobStillOpen, JobArchived, SessionBusy, SessionNotRunning.
    """
    mam.check_place()
    begun = None
    try:
        with mam.registry.transaction() as tx:
            job = need(tx, job_id)
            if job.state in OPEN:
                raise JobStillOpen(job=job_id, state=job.state)
            if job.archived_at is not None:
                raise JobArchived(job=job_id, folder=job.folder)
            if not Path(job.brief_path).exists():
                raise JobFilesGone(job=job_id, folder=job.folder)
            target = _ready(tx, session or job.session)
            again = job_state.again(job, target.name, now=now_ms())
            jobs.withdraw(tx, job)
            jobs.call_off(tx, job, "tried again")
            _enter(tx, again, mam.layout, mam.command)
            begun = job
            write_record(mam.layout, again)
            set_aside_report(job)  # last: what fails before it must leave the old report in its place
            Path(again.report_path).parent.mkdir(mode=0o700, exist_ok=True)
    except sqlite3.IntegrityError as error:
        raise SessionGivenAway(session=session or job.session) from error
    except (MamError, OSError):
        if begun is not None:
            _undo(mam, begun)
        raise
    spool.wake(mam.layout.monitor_wake)
    return again


def set_aside_report(job: Job) -> None:
    """Move the report of *job*'s attempt out of the way, so that it can never count as the next one's."""
    report = Path(job.report_path)
    if report.exists():
        fault_points.point("report.aside")
        report.replace(set_aside(job))


def _undo(mam: Mam, job: Job) -> None:
    """Put the files of *job* back as they were, unless its next attempt is on record after all."""
    with mam.registry.locked(), mam.registry.view() as view:
        if need(view, job.id).attempt != job.attempt:
            return
        if set_aside(job).exists():
            fault_points.point("retry.undo")
            set_aside(job).replace(job.report_path)
        write_record(mam.layout, job)
