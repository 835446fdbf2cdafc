"""`mam why`: what is going on, on what evidence, and what to do next. Pure: rows in, an explanation out."""

import json
from typing import NamedTuple

from mam.broker import proof, topics
from mam.control_plane import sessions
from mam.control_plane.registry import View
from mam.control_plane.rows import LIVE, OPEN, PRESUMED, Attempt, Job, Session
from mam.control_plane.views import ago, clean


class Explanation(NamedTuple):
    subject: str
    state: str
    because: str
    evidence: list[str]
    awaited: str
    next: str

    def text(self) -> str:
        lines = [f"{self.subject} is {self.state}", f"  because  {self.because}"]
        lines += [f"  seen     {line}" for line in self.evidence]
        lines.append(f"  awaited  {self.awaited}")
        lines.append(f"  next     {self.next}")
        return "\n".join(lines)


def job(view: View, job: Job, *, now: int, monitor: bool) -> Explanation:
    """Why a job is in its state. *monitor* says whether one runs: without it nothing moves."""
    attempt = view.attempt(job.id, job.attempt)
    session = view.session(job.session)
    evidence = _job_evidence(view, job, attempt, session, now)
    if job.state in OPEN:
        because, awaited, next_step = _open_job(job, attempt, session, now)
        if not monitor:
            because, next_step = f"{because}; no monitor runs", "mam up"
    elif job.state in PRESUMED:
        because = job.detail or "a limit was passed"
        awaited = "nothing; a report of this attempt would still be accepted, and marked late"
        next_step = _after_presumed_end(job, session)
    elif job.state == "cancelled":
        because = f"it was cancelled: {job.detail}" if job.detail else "it was cancelled"
        awaited, next_step = "nothing", f"mam job retry {job.id}"
    else:
        because = _reported(job)
        awaited, next_step = "nothing", f"mam verify {job.id}, or read {job.report_path}"
    state = f"{job.state} (attempt {job.attempt}, {ago(job.updated_at, now)})"
    return Explanation(f"job {job.id}", state, because, evidence, awaited, next_step)


def _reported(job: Job) -> str:
    if job.detail == "report_altered":
        return "its agent reported, but the report file is not the one that was signed: it counts as failed"
    late = ", after it had been given up" if job.late else ""
    verdict = f", verdict {job.verdict}" if job.verdict else ""
    return f"{job.session} reported {job.result}{verdict}{late}"


def _after_presumed_end(job: Job, session: Session | None) -> str:
    if session is None:
        return f"mam job retry {job.id} --to OTHER"
    if session.status not in LIVE:
        return f"mam agent resume {session.name}, then mam job retry {job.id}"
    if session.screen in ("asking", "dialog"):
        return f"answer the question in its pane, then mam job retry {job.id}"
    return f"mam job retry {job.id}"


def _open_job(job: Job, attempt: Attempt | None, session: Session | None, now: int) -> tuple[str, str, str]:
    if session is None:
        return "its agent is not in the registry", "nothing", f"mam job cancel {job.id}"
    if session.status not in LIVE:
        why = session.ended_reason or session.status
        return f"{session.name} is {session.status} ({why})", "its return", f"mam agent resume {session.name}"
    if attempt is None or attempt.received_at is None:
        wait = "the runner to take the prompt"
        reachable = "online" if session.presence == "online" else "not connected to the broker"
        return f"the runner of {session.name} is {reachable}", wait, f"mam doctor, or mam job cancel {job.id}"
    if attempt.delivered_at is None:
        because = f"{session.name} has the prompt, its screen is {session.screen or 'not seen yet'}"
        return because, "a screen that takes a prompt", f"look at the pane of {session.name}"
    if attempt.delivery == "unknown" and attempt.started_at is None:
        because = "the runner ended around the paste: nobody can tell whether the prompt arrived"
        return because, f"`started`, for {job.started_within_s:g} s", f"look at the pane; mam job cancel {job.id}"
    if attempt.started_at is None:
        because = f"the prompt was submitted {ago(attempt.delivered_at, now)}"
        return because, f"`started`, within {job.started_within_s:g} s", f"look at the pane of {session.name}"
    if session.screen in ("asking", "dialog", "error"):
        return f"its screen is {session.screen}", "a person", f"look at the pane of {session.name}"
    because = f"it works: started {ago(attempt.started_at, now)}"
    if attempt.last_note:
        because += f", last said “{clean(attempt.last_note)}” {ago(attempt.last_progress_at or 0, now)}"
    return because, f"its report, within {job.limit_s:g} s of the dispatch", f"mam tail {job.id}"


def _job_evidence(view: View, job: Job, attempt: Attempt | None, session: Session | None, now: int) -> list[str]:
    lines = []
    last = view.connection.execute(
        "SELECT kind, outcome, arrived_at FROM events WHERE scope = ? ORDER BY seq DESC LIMIT 1", (topics.job(job.id),)
    ).fetchone()
    lines.append(f"last event: {last[0]} ({last[1]}) {ago(last[2], now)}" if last else "no event of its agent yet")
    if attempt is not None and attempt.delivery:
        reason = f", {attempt.delivery_reason}" if attempt.delivery_reason else ""
        lines.append(f"prompt: {attempt.delivery}{reason}")
    if attempt is not None and attempt.last_heartbeat_at:
        lines.append(
            f"last heartbeat {ago(attempt.last_heartbeat_at, now)} (the runner lives; says nothing of the work)"
        )
    lines += [f"finding {f.code}: {f.text}" for f in view.findings(job.id)]
    if session is not None:
        lines += _screen(session, now)
    return lines


def session(view: View, session: Session, *, now: int) -> Explanation:
    """Why a session is in its state."""
    busy = view.open_job(session.name)
    evidence = _process_evidence(session) + _screen(session, now)
    evidence += [f"finding {f.code}: {f.text}" for f in view.findings(session.name)]
    if session.status == "stopped":
        because, awaited = "it was stopped on purpose; its conversation is kept", "nothing"
        next_step = f"mam agent resume {session.name}"
    elif session.status == "ended":
        code = f", exit code {session.exit_code}" if session.exit_code is not None else ""
        because, awaited = f"{session.ended_reason or 'its process is gone'}{code}", "nothing"
        next_step = f"mam agent resume {session.name}"
    elif session.status == "starting":
        because, awaited = "its runner has not reported over the bus yet", "its presence"
        next_step = f"mam doctor; the runner's log is {json.loads(session.binding)['DELEGATE_JOB_LOGS_DIR']}"
    else:
        because = f"its runner is {session.presence or 'unseen'}, its screen {session.screen or 'not seen yet'}"
        awaited = f"the end of {busy.id}" if busy else "a job"
        next_step = f"mam why {busy.id}" if busy else f"mam job delegate --to {session.name} --brief FILE"
    return Explanation(f"agent {session.name}", session.status, because, evidence, awaited, next_step)


def _process_evidence(session: Session) -> list[str]:
    lines = []
    for label, identity in (("runner", sessions.runner_id(session)), ("agent", sessions.agent_id(session))):
        if identity is not None:
            lines.append(f"{label}: pid {identity.pid} {'lives' if proof.alive(identity) else 'is gone'}")
    return lines


def _screen(session: Session, now: int) -> list[str]:
    if not session.screen_text:
        return []
    last = [clean(line) for line in session.screen_text.splitlines() if line.strip()][-3:]
    return [
        f"screen ({session.screen}, {ago(session.screen_at or session.updated_at, now)}): {line[:120]}" for line in last
    ]
