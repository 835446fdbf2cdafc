"""
The life of a job as a pure function: it decides, it does nothing.

`queued → dispatched → running → reported | cancelled`. `agent_blocked`,
`timed_out` and `lost` are presumed ends: our guess, which a report of the
current attempt corrects (and marks `late`). Nothing leaves `reported` or
`cancelled`. Any order and any repetition of an attempt's events ends in the
same state.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mam.broker.envelope.events import Asked, Cancelled, Data, DeliveryReport, Progressed, Report, Started
from mam.control_plane.jobs.unobserved import Gap, lasted
from mam.control_plane.registry.records import FINAL, OPEN, PRESUMED, Attempt, Job

ASKED_NOTE = "asks: "  # what an attempt noted last begins so where it was a question


class Step(NamedTuple):
    """What an event made of a job: *outcome* as settled, and the new rows (the old ones where nothing changed)."""

    outcome: str
    job: Job
    attempt: Attempt


def step(job: Job, attempt: Attempt, data: Data | None, *, now: int, report_intact: bool = True) -> Step:
    """Move a job on by one event of its current attempt."""
    if data is None:
        return Step("accepted", job, attempt)  # a kind of a newer version: kept, without effect
    if isinstance(data, Report):
        return _report(job, attempt, data, now=now, intact=report_intact)
    if isinstance(data, Cancelled) and job.state == "cancelled":
        return Step("accepted", job, attempt)  # our own word to the viewers
    if job.state in FINAL or job.state in PRESUMED:
        return Step("late", job, attempt)
    match data:
        case Started():
            seen = replace(attempt, started_at=attempt.started_at or now, heartbeat_s=data.heartbeat_s)
            return Step("accepted", _running(job, now), seen)
        case Asked():
            seen = replace(
                attempt, started_at=attempt.started_at or now, last_note=f"{ASKED_NOTE}{data.question}"[:500]
            )
            return Step("accepted", _running(job, now), seen)
        case Progressed():
            seen = replace(
                attempt, started_at=attempt.started_at or now, last_progress_at=now, last_note=data.note[:500]
            )
            return Step("accepted", _running(job, now), seen)
    return Step("accepted", job, attempt)


def _running(job: Job, now: int) -> Job:
    return job if job.state == "running" else replace(job, state="running", updated_at=now)


def _report(job: Job, attempt: Attempt, report: Report, *, now: int, intact: bool) -> Step:
    if job.state in FINAL:
        return Step("late", job, attempt)
    ended = replace(attempt, ended_at=attempt.ended_at or now, started_at=attempt.started_at or now)
    other = job.head_sha is not None and report.head_sha != job.head_sha
    done = replace(
        job,
        state="reported",
        late=int(job.state in PRESUMED),
        # What was altered after it was signed counts as no verdict and as no success; what was said of another
        # commit than the one that was asked about, as no verdict.
        result=report.result if intact else "failed",
        verdict=report.verdict if intact and not other else None,
        detail="report_altered" if not intact else "other_commit" if other else None,
        seen_sha=report.head_sha,
        summary=report.summary,
        report_sha256=report.report_sha256,
        report_bytes=report.report_bytes,
        ended_at=now,
        updated_at=now,
    )
    return Step("accepted" if intact else "report_altered", done, ended)


def presume(job: Job, attempt: Attempt, state: str, detail: str, *, now: int) -> tuple[Job, Attempt]:
    """End an open job by our own judgement; a job that is not open stays as it is."""
    if job.state not in OPEN:
        return job, attempt
    ended = replace(job, state=state, detail=detail, ended_at=now, updated_at=now)
    return ended, replace(attempt, ended_at=now)


def cancel(job: Job, attempt: Attempt, reason: str, *, now: int) -> tuple[Job, Attempt]:
    """End a job because a person or a loop said so; a final one stays as it is."""
    if job.state in FINAL:
        return job, attempt
    ended = replace(job, state="cancelled", detail=reason or None, ended_at=now, updated_at=now)
    return ended, replace(attempt, ended_at=attempt.ended_at or now)


def again(job: Job, session: str, *, now: int) -> Job:
    """The next attempt of an ended job, on *session*: nothing of how the last one ended stays."""
    return replace(
        job,
        session=session,
        state="queued",
        attempt=job.attempt + 1,
        updated_at=now,
        ended_at=None,
        result=None,
        verdict=None,
        detail=None,
        summary=None,
        report_sha256=None,
        report_bytes=None,
        seen_sha=None,
        late=0,
    )


class Overdue(NamedTuple):
    state: str
    detail: str


def overdue(job: Job, attempt: Attempt, *, now: int, began: int = 0, gaps: Sequence[Gap] = ()) -> Overdue | None:
    """
    Which limit an open job has passed: delivery, first sign of life (M97), or the whole attempt.

    Args:
        began: When the monitor began to send: a job that waited for it is not late.
        gaps: Times that do not count.
    """
    if job.state not in OPEN:
        return None
    if lasted(attempt.created_at, now, gaps) > job.limit_s * 1000:
        return Overdue("timed_out", f"no report within {job.limit_s:g} s")
    if attempt.started_at is not None:
        return None
    if attempt.delivered_at is not None:
        if lasted(attempt.delivered_at, now, gaps) > job.started_within_s * 1000:
            return Overdue("agent_blocked", f"no `started` within {job.started_within_s:g} s of the prompt")
        return None
    # The runner gives up by itself after deliver_within_s; this is for runners that cannot be reached.
    if left_ms(job, attempt, now=now, began=began, gaps=gaps) < 0:
        reached = "received but never submitted" if attempt.received_at else "never received by the runner"
        return Overdue("agent_blocked", f"not delivered within {job.deliver_within_s:g} s: {reached}")
    return None


def left_ms(job: Job, attempt: Attempt, *, now: int, began: int, gaps: Sequence[Gap]) -> float:
    """How long the monitor will still try to hand over a prompt; see `overdue`."""
    since = attempt.received_at or max(attempt.created_at, began)
    return job.deliver_within_s * 1500 + 5000 - lasted(since, now, gaps)


def delivery(job: Job, attempt: Attempt, seen: DeliveryReport, *, now: int) -> tuple[Job, Attempt]:
    """Note how far a prompt has come. A refused one ends the attempt: it is never pasted again by itself."""
    if seen.state == "received":
        after = replace(attempt, received_at=attempt.received_at or now)
        moved = replace(job, state="dispatched", updated_at=now) if job.state == "queued" else job
        return moved, after
    after = replace(
        attempt,
        received_at=attempt.received_at or now,
        delivery=seen.state,
        delivery_reason=seen.reason or None,
        delivery_evidence=seen.evidence or None,
        delivered_at=(attempt.delivered_at or now) if seen.state in ("submitted", "unknown") else None,
    )
    moved = replace(job, state="dispatched", updated_at=now) if job.state == "queued" else job
    begun = attempt.started_at is not None or attempt.delivery == "submitted"
    if seen.reason == "restarted" and begun:
        return presume(moved, attempt, "lost", "its agent was ended and started anew", now=now)
    if seen.state == "refused" and moved.state in OPEN and attempt.started_at is None:
        return presume(moved, after, "agent_blocked", f"prompt not delivered: {seen.reason}", now=now)
    return moved, after
