"""`mam why`: what is going on, on what evidence, and what to do next. Pure: rows and a look in, an explanation out."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from mam.agents.border import UNREADABLE
from mam.agents.protocol import Screen
from mam.agents.screen import tail
from mam.broker.envelope import topics
from mam.broker.host import process_identity
from mam.broker.host.text import clean, fold
from mam.control_plane.explain.tables import ago, span
from mam.control_plane.jobs.attention import answered_text, answers, asked_text, waiting
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, PRESUMED, Attempt, Job, Session
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions.refusals import pane, remedy

SHOWN_LINES = 4
FRAME = " \t" + "".join(map(chr, range(0x2500, 0x25A0)))  # box drawing and block elements
FRAMED = re.compile("[\u2500-\u259f]")


class Observed(NamedTuple):
    """What was looked at for this explanation."""

    ms: int
    monitor: bool  # without one nothing moves
    problem: str = ""  # what the monitor says is wrong with the broker
    screen: Screen | None = None  # the pane as it is now; None where it could not be looked at
    signal: str = ""  # what its adapter reads there


class Explanation(NamedTuple):
    """What `mam why` says of one thing: its state, the reason, what is awaited, and the next step."""

    subject: str
    state: str
    because: str
    evidence: list[str]
    awaited: str
    next: str

    def text(self, columns: int | None = None) -> str:
        """As it is printed: folded to *columns*, but for the next step, which is copied as it stands."""
        parts = [("because", self.because), *(("seen", line) for line in self.evidence), ("awaited", self.awaited)]
        told = [fold(f"  {name:<7}  {text}", columns, indent=" " * 11) for name, text in parts]
        following = "\n           ".join(self.next.split("; then "))
        return "\n".join([f"{self.subject} is {self.state}", *told, f"  next     {following}"])


def job(view: View, job: Job, now: Observed) -> Explanation:
    """Why a job is in its state."""
    attempt = view.attempt(job.id, job.attempt)
    session = view.session(job.session)
    evidence = _job_evidence(view, job, attempt, session, now)
    if job.archived_at is not None:
        because, awaited = f"it was archived {ago(job.archived_at, now.ms)}; its key is destroyed", "nothing"
        next_step = f"see {job.folder}"
    elif job.state in OPEN:
        because, awaited, next_step = _open_job(view, job, attempt, session, now)
        if not now.monitor:
            because, next_step = f"{because}; no monitor runs", "mam up"
        elif now.problem:
            because, next_step = f"{because}; the monitor has a problem: {now.problem}", "mam doctor"
    elif job.state in PRESUMED:
        because = job.detail or "a limit was passed"
        awaited, next_step = _by_itself(view, job, session, now) or (
            "nothing; a report of this attempt would still be accepted, and marked late",
            _after_presumed_end(job, attempt, session, now),
        )
    elif job.state == "cancelled":
        because = f"it was cancelled: {job.detail}" if job.detail else "it was cancelled"
        awaited, next_step = "nothing", f"mam job retry {job.id}"
        if now.signal == "working":
            because += f"; {job.session} was not interrupted and still works"
    else:
        because = _reported(job)
        awaited, next_step = "nothing", f"mam verify {job.id}, or read {job.report_path}"
    state = f"{job.state} (attempt {job.attempt}, {ago(job.updated_at, now.ms)})"
    return Explanation(f"job {job.id}", state, because, evidence, awaited, next_step)


def _by_itself(view: View, job: Job, session: Session | None, now: Observed) -> tuple[str, str] | None:
    """What a job waits for whose next attempt the monitor makes: a `mam job retry` would be one too many."""
    refused = any(found.code == "retry_refused" for found in view.findings(job.id))
    if job.attempt > job.retries or session is None or refused:
        return None
    awaited = f"attempt {job.attempt + 1} of {job.retries + 1}: by itself, once {session.name} is there and free"
    if session.status not in LIVE:
        return awaited, back(session)
    return awaited, f"mam why {session.name}" if now.monitor else "mam up"


def _reported(job: Job) -> str:
    if job.detail == "report_altered":
        return "its agent reported, but the report file is not the one that was signed: it counts as failed"
    late = ", after it had been given up" if job.late else ""
    verdict = f", verdict {job.verdict}" if job.verdict else ""
    return f"{job.session} reported {job.result}{verdict}{late}"


def _after_presumed_end(job: Job, attempt: Attempt | None, session: Session | None, now: Observed) -> str:
    again = f"mam job retry {job.id}"
    if session is None:
        return f"{again} --to OTHER"
    if session.status not in LIVE:
        return f"{back(session)}, then {again}"
    if attempt is not None and attempt.delivery == "refused":
        return remedy(session, attempt.delivery_reason or "", again, other=f"{again} --to OTHER")
    if now.signal == UNREADABLE:
        return f"mam agent check {session.agent}, then {again}"
    if now.signal == "working":
        return f"{session.name} still works: wait for its late report, or {again} --to OTHER"
    if now.signal in ("asking", "dialog"):
        return f"answer the question in its pane ({pane(session)}), then {again}"
    return again


def back(session: Session) -> str:
    """The step that brings an ended session back."""
    if not Path(session.cwd).is_dir():
        return f"make {session.cwd} again (a worktree: at the same path), then mam agent resume {session.name}"
    return f"mam agent resume {session.name}"


def _open_job(
    view: View, job: Job, attempt: Attempt | None, session: Session | None, now: Observed
) -> tuple[str, str, str]:
    if session is None:
        return "its agent is not in the registry", "nothing", f"mam job cancel {job.id}"
    if session.status not in LIVE:
        why = session.ended_reason or session.status
        return f"{session.name} is {session.status} ({why})", "its return", back(session)
    if asked := waiting(view, job):
        because = "; ".join(f"it asked {ago(each.asked_at, now.ms)}: {asked_text(each)}" for each in asked)
        awaited = "an answer" if len(asked) == 1 else f"{len(asked)} answers"
        return because, awaited, "; then ".join(answers(each) for each in asked)
    if attempt is None or attempt.received_at is None:
        reachable = "online" if session.presence == "online" else "not connected to the broker"
        because, wait = f"the runner of {session.name} is {reachable}", "the runner to take the prompt"
        return because, wait, f"mam doctor, or mam job cancel {job.id}"
    look = f"look at its pane: {pane(session)}"
    seen = now.signal or session.screen or "not seen yet"
    if attempt.delivered_at is None:
        look = f"mam agent check {session.agent}" if seen == UNREADABLE else look
        return f"{session.name} has the prompt, its screen is {seen}", "a screen that takes a prompt", look
    if attempt.started_at is None:
        if attempt.delivery == "unknown":
            because = "the runner ended around the paste: whether the prompt arrived is unknown"
            return because, f"`started`, for {span(job.started_within_s)}", f"{look}; or mam job cancel {job.id}"
        because = f"the prompt was submitted {ago(attempt.delivered_at, now.ms)}"
        return because, f"`started`, within {span(job.started_within_s)}", look
    if seen in ("asking", "dialog", "error"):
        return f"its screen is {seen}", "a person", look
    doubts = {finding.code: finding for finding in view.findings(job.id)}
    for code, awaited in (("blocked", "a person"), ("silent", "its heartbeat"), ("stalled", "its report, or a person")):
        if code in doubts:
            return doubts[code].text, awaited, look
    if "idle_waiting" in doubts:
        because = "its agent took the prompt back to a ready screen without reporting"
        nudge = f"mam agent send {session.name} 'write your report and run the report command of your prompt'"
        return because, "its report", nudge
    because = f"it works: started {ago(attempt.started_at, now.ms)}"
    if attempt.last_note and attempt.last_progress_at:
        because += f", last said “{clean(attempt.last_note)}” {ago(attempt.last_progress_at or 0, now.ms)}"
    return because, f"its report, within {span(job.limit_s)} of the dispatch", f"mam tail {job.id}"


def _job_evidence(view: View, job: Job, attempt: Attempt | None, session: Session | None, now: Observed) -> list[str]:
    lines = []
    query = "SELECT kind, outcome, arrived_at FROM events WHERE scope = ? ORDER BY seq DESC LIMIT 1"
    last = view.connection.execute(query, (topics.job(job.id),)).fetchone()
    lines.append(
        f"last event: {last[0]} ({last[1]}) {ago(last[2], now.ms)}" if last else "no event of its agent is kept"
    )
    if attempt is not None and attempt.delivery:
        reason = f", {attempt.delivery_reason}" if attempt.delivery_reason else ""
        lines.append(f"prompt: {attempt.delivery}{reason}")
        if attempt.delivery in ("refused", "unknown"):
            lines += [f"screen then: {line}" for line in _last_lines(attempt.delivery_evidence)]
    if attempt is not None and attempt.last_heartbeat_at and job.state in OPEN:
        lines.append(f"heartbeat noted {ago(attempt.last_heartbeat_at, now.ms)} (once a minute; the runner lives)")
    ended = [each for each in view.questions(job.id) if each.answered_at is not None]
    lines += [f"asked “{clean(each.question)}”, answered: {answered_text(each)}" for each in ended]
    lines += [f"finding {f.code}: {f.text}" for f in view.findings(job.id)]
    if session is not None:
        lines += _screen(session, now)
    return lines


def session(view: View, session: Session, now: Observed) -> Explanation:
    """Why a session is in its state."""
    busy = view.open_job(session.name)
    evidence = _process_evidence(session) + _screen(session, now)
    evidence += [f"finding {f.code}: {f.text}" for f in view.findings(session.name)]
    if session.status == "stopped":
        because, awaited = "it was stopped on purpose; its conversation is kept", "nothing"
        next_step = back(session)
    elif session.status == "ended":
        code = f", exit code {session.exit_code}" if session.exit_code is not None else ""
        because, awaited = f"{session.ended_reason or 'its process is gone'}{code}", "nothing"
        next_step = back(session)
    elif session.status == "starting":
        because, awaited = "its runner has not reported over the bus yet", "its presence"
        next_step = f"mam doctor; the runner's log is in {json.loads(session.binding)['DELEGATE_JOB_LOGS_DIR']}"
    else:
        seen = now.signal or session.screen or "not seen yet"
        because = f"its runner is {session.presence or 'unseen'}, its screen {seen}"
        awaited = f"the end of {busy.id}" if busy else "a job"
        next_step = f"mam why {busy.id}" if busy else f"mam job delegate --to {session.name} --brief FILE"
        if seen in ("asking", "dialog", "error"):
            awaited, next_step = "a person", f"look at its pane: {pane(session)}"
        if seen == UNREADABLE:
            awaited, next_step = "an adapter that can read it", f"mam agent check {session.agent}"
    if not now.monitor and session.status in LIVE:
        because, next_step = f"{because}, as far as was known when the last monitor ended", "mam up"
    return Explanation(f"agent {session.name}", session.status, because, evidence, awaited, next_step)


def _process_evidence(session: Session) -> list[str]:
    lines = []
    for label, identity in (("runner", runtime.runner_id(session)), ("agent", runtime.agent_id(session))):
        if identity is not None:
            how = "is gone" if not process_identity.alive(identity) else "lives"
            if how == "lives" and process_identity.is_stopped(identity.pid):
                how = f"was stopped: kill -CONT {identity.pid}"
            lines.append(f"{label}: pid {identity.pid} {how}")
    return lines


def _screen(session: Session, now: Observed) -> list[str]:
    """The pane as it is now; where it cannot be looked at, what was last said of it, with its age."""
    if now.screen is not None:
        return [f"screen now ({now.signal}): {line}" for line in _last_lines(tail(now.screen))]
    age = ago(session.screen_at or session.updated_at, now.ms)
    return [f"screen ({session.screen}, {age}): {line}" for line in _last_lines(session.screen_text)]


def _last_lines(text: str | None) -> list[str]:
    """The last lines that say something: what only frames a screen is left out."""
    lines = (line.strip(FRAME) if FRAMED.search(line) else line for line in (text or "").splitlines())
    return [clean(line)[:120] for line in lines if line.strip()][-SHOWN_LINES:]
