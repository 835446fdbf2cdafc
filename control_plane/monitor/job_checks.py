"""What the monitor looks at by itself: limits of jobs, processes of sessions. It compares first, then acts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import process_identity
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import attention, jobs, liveness
from mam.control_plane.jobs import state as job_state
from mam.control_plane.jobs.liveness import Liveness, Patience, Seen
from mam.control_plane.jobs.unobserved import Gap
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, Attempt, Finding, Job, Session
from mam.control_plane.registry.transactions import Registry
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions.activity import Activity
from mam.wrappers.mux.protocol import MuxFailed, MuxGone

NEVER_REPORTED_MS = 10_000
NO_PANE_MS = 120_000  # a slow multiplexer does not mean a dead pane


class PresumedEnd(NamedTuple):
    """An open job that has come to a presumed end, and why."""

    job: str
    attempt: int
    state: str
    detail: str


class Ended(NamedTuple):
    """A session whose processes are proven to be gone."""

    session: str
    incarnation: str
    reason: str


def ended_sessions(
    mam: Mam,
    sessions: Sequence[Session],
    dark: set[tuple[str, str]] | None = None,
    failed: dict[tuple[str, str], str] | None = None,
) -> list[Ended]:
    """
    Those of *sessions* that the registry calls live and whose runner is proven dead, or whose pane never was.

    Args:
        dark: Multiplexers that did not answer, and are not asked; those that do not answer now are added.
        failed: Gets those of them whose own code failed, and how.
    """
    found = []
    dark = set() if dark is None else dark
    failed = {} if failed is None else failed
    for session in sessions:
        if session.status not in LIVE:
            continue
        runner = runtime.runner_id(session)
        if runner is not None:
            if not process_identity.alive(runner):
                why = (
                    "the machine was restarted"
                    if runner.boot != process_identity.boot_id()
                    else "the runner ended without a word"
                )
                found.append(Ended(session.name, session.incarnation, why))
            continue
        silent_ms = now_ms() - session.updated_at
        turned_back = silent_ms < 0 and session.pane  # the clock was: for how long is unknown, so the look decides
        late = silent_ms > (NEVER_REPORTED_MS if session.pane else NO_PANE_MS)
        if (late or turned_back) and _pane_is_gone(mam, session, dark, failed):
            found.append(Ended(session.name, session.incarnation, "the pane closed before the runner reported"))
    return found


def _pane_is_gone(mam: Mam, session: Session, dark: set[tuple[str, str]], failed: dict[tuple[str, str], str]) -> bool:
    """True only after a successful look, or where the whole server is gone."""
    place = (session.mux, session.mux_server)
    if place in dark:
        return False
    try:
        panes = runtime.multiplexer(mam, session).panes()
    except MuxGone:
        return True
    except MamError as error:
        dark.add(place)
        if isinstance(error, MuxFailed):
            failed[place] = str(error)
        return False
    pane = runtime.own_pane(mam, session, panes)
    return pane is None or pane.dead


class Watched(NamedTuple):
    """What the monitor brings along for a look at the open jobs."""

    sweep: SpoolSweep
    heard: Callable[[str, int], int]  # when an attempt was last heard, or the listening began
    signs: Activity
    began: int  # when this monitor began: nothing is delivered while none runs
    now: int
    gaps: Sequence[Gap] = ()  # times in which no monitor looked: they do not count


def jobs_now(view: View, seen: Watched, patience: Patience) -> tuple[list[PresumedEnd], list[Finding]]:
    """Open jobs past a limit or without a living agent, and jobs that a person should look at."""
    verdicts, findings = [], []
    names = set()
    for job in view.open_jobs():
        attempt = view.attempt(job.id, job.attempt)
        session = view.session(job.session)
        names.add(job.session)
        if attempt is None:
            continue
        late = job_state.overdue(job, attempt, now=seen.now, began=seen.began, gaps=seen.gaps)
        if late is not None:
            verdicts.append(PresumedEnd(job.id, job.attempt, late.state, late.detail))
            continue
        gone = session is None or session.status not in LIVE
        reached = attempt.delivered_at is not None or attempt.started_at is not None
        if gone and reached and seen.sweep.empty(job.session, job.id):
            why = f"its agent is gone ({session.ended_reason or session.status})" if session else "its agent is unknown"
            verdicts.append(PresumedEnd(job.id, job.attempt, "lost", why))
        elif session is not None and not gone and reached:
            state = liveness_of(view, job, attempt, session, seen, patience)
            if state.due and state.state != "progressing":
                findings.append(Finding(state.state, job.id, seen.now, state.text))
    seen.signs.forget_but(names)
    return verdicts, findings


def liveness_of(
    view: View, job: Job, attempt: Attempt, session: Session, seen: Watched, patience: Patience
) -> Liveness:
    asked = attention.waiting(view, job)
    looked = Seen(
        now=seen.now,
        alive=runtime.alive(session),
        heard_at=seen.heard(job.id, job.attempt),
        written_at=seen.signs.written_at(session, seen.now),
        committed_at=seen.signs.committed_at(session, seen.now),
        question="; ".join(each.question for each in asked),
        asked_at=asked[0].asked_at if asked else 0,
        gaps=seen.gaps,
    )
    return liveness.judge(job, attempt, session, looked, patience)


def act(registry: Registry, ended: list[Ended], verdicts: list[PresumedEnd]) -> set[str]:
    """
    Write down what the looks found; each row is looked at once more inside the transaction.

    Returns the names of the jobs that changed.
    """
    changed: set[str] = set()
    if not ended and not verdicts:
        return changed
    now = now_ms()
    with registry.transaction() as tx:
        for item in ended:
            session = tx.session(item.session)
            if session is None or session.incarnation != item.incarnation or session.status not in LIVE:
                continue  # another life meanwhile
            ended_row = replace(session, status="ended", ended_reason=item.reason, presence="offline", updated_at=now)
            tx.put(replace(ended_row, screen="gone"))
        for verdict in verdicts:
            job = tx.job(verdict.job)
            if job is None or job.state not in OPEN or job.attempt != verdict.attempt:
                continue  # it ended, or was tried again meanwhile
            attempt = tx.attempt(job.id, job.attempt)
            if attempt is None:
                continue
            after, last = job_state.presume(job, attempt, verdict.state, verdict.detail, now=now)
            tx.put(after)
            tx.put(last)
            if attempt.delivered_at is None:
                jobs.call_off(tx, after, "given up")  # a stopped runner would type the prompt when it wakes up
            changed.add(job.id)
    return changed


def note_findings(registry: Registry, view: View, found: list[Finding]) -> list[Finding]:
    """
    Make the stored findings equal to *found*; each keeps the time it was first seen, and says what is true now.

    Returns the new ones.
    """
    before = {(item.code, item.subject): item for item in view.findings()}
    after = {(item.code, item.subject): item for item in found}
    fresh = [item for key, item in after.items() if key not in before]
    gone = [item for key, item in before.items() if key not in after]
    other = [
        replace(item, text=after[key].text)
        for key, item in before.items()
        if key in after and after[key].text != item.text
    ]
    if fresh or gone or other:
        with registry.transaction() as tx:
            for item in [*fresh, *other]:
                tx.put(item)
            for item in gone:
                tx.drop(item)
    return fresh
