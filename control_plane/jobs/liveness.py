"""
How an agent with an open job is: one of six states, each with the rule that decided and its evidence. Pure.

Three signals that must not be taken for one another: the *process* is there; a
*heartbeat* came (the runner lives, no more); there is *progress* (something was
said, written or committed). None of these states ends a job: they raise a
question, once an episode. Only a job's limits, a proven death or a person does.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from mam.control_plane.jobs.attention import ASKS
from mam.control_plane.jobs.unobserved import Gap, lasted
from mam.control_plane.registry.records import Attempt, Job, Session

LivenessState = Literal["progressing", "idle_waiting", "blocked", "stalled", "silent", "dead"]

ASKED = "it asked, and waits for an answer"


class Patience(NamedTuple):
    """How long each doubt must stand before a person hears of it."""

    stuck_ms: int = 60_000  # a question on the screen, a turn that ended without a report
    stalled_ms: int = 900_000  # a turn without any sign of progress
    heartbeat_s: float = 10.0


class Seen(NamedTuple):
    """What was looked at, besides the rows. *alive* None: it could not be looked at, which is never "dead"."""

    now: int
    alive: bool | None
    heard_at: int = 0  # when the listener last heard the attempt, or began to listen
    written_at: int = 0  # when the conversation's files last grew
    committed_at: int = 0  # when the worktree's head last moved
    question: str = ""  # of the agent itself, asked with `mam job ask`
    asked_at: int = 0
    gaps: Sequence[Gap] = ()


class Liveness(NamedTuple):
    state: LivenessState
    since: int
    rule: str
    evidence: str
    due: bool  # it stands long enough for a person to hear of it

    @property
    def text(self) -> str:
        """What a person reads of it: the rule, and the agent's own words where it asked."""
        return f"{self.rule}: {self.evidence}" if self.rule == ASKED else self.rule


def judge(job: Job, attempt: Attempt, session: Session, seen: Seen, patience: Patience) -> Liveness:
    """The state of an open job's agent; the first rule that fits decides."""
    began = attempt.delivered_at or attempt.started_at or attempt.created_at
    if seen.alive is False:
        return Liveness("dead", seen.now, "its process is proven to be gone", "pid, start time and boot", True)
    if seen.question:
        return Liveness("blocked", seen.asked_at, ASKED, seen.question, True)
    asking = _asking(session, seen, patience)
    if asking is not None and asking.since >= began:
        return asking
    idle = _idle(job, attempt, session, seen, patience)
    if idle is not None:
        return idle
    silent = _silent(job, attempt, seen, patience)
    if silent is not None:
        return silent
    progress_at, by = _progress(attempt, seen)
    since = max(began, progress_at)
    if attempt.started_at is not None and lasted(since, seen.now, seen.gaps) > patience.stalled_ms:
        rule = "nothing was said, written or committed for long, though its runner is heard"
        return Liveness("stalled", since, rule, f"last sign: {by}", True)
    return Liveness("progressing", since, "it gave a sign of progress", by, False)


def _asking(session: Session, seen: Seen, patience: Patience) -> Liveness | None:
    """A question that stands: its own hook is the first witness, the screen the second."""
    hooked, looked = session.hook_at or 0, session.screen_at or 0
    if session.hook == "permission" and hooked >= looked:
        due = lasted(hooked, seen.now, seen.gaps) >= patience.stuck_ms
        return Liveness("blocked", hooked, "its own hook says that it waits for a permission", "hook", due)
    if session.screen in ASKS:
        due = lasted(looked, seen.now, seen.gaps) >= patience.stuck_ms
        agrees = "; its hook says so too" if session.hook == "permission" else ""
        return Liveness("blocked", looked, f"its screen {ASKS[session.screen]}{agrees}", "screen", due)
    return None


def _idle(job: Job, attempt: Attempt, session: Session, seen: Seen, patience: Patience) -> Liveness | None:
    """
    A turn that ended without a report. A screen that was ready all the time (one that cannot be read) says nothing.
    """
    if job.state != "running" or session.screen != "ready" or attempt.delivered_at is None:
        return None
    ready_at = session.screen_at or 0
    if ready_at <= attempt.delivered_at:
        return None
    since = max(ready_at, attempt.started_at or 0, attempt.last_progress_at or 0)
    due = lasted(since, seen.now, seen.gaps) > patience.stuck_ms
    return Liveness("idle_waiting", since, f"{session.name} shows a ready screen, and has not reported", "screen", due)


def _silent(job: Job, attempt: Attempt, seen: Seen, patience: Patience) -> Liveness | None:
    """Missed heartbeats: the runner cannot be heard. It says nothing about the work itself."""
    if job.state != "running":
        return None
    last = max(seen.heard_at, attempt.last_heartbeat_at or 0, attempt.started_at or 0, attempt.last_progress_at or 0)
    interval_s = attempt.heartbeat_s or patience.heartbeat_s
    if lasted(last, seen.now, seen.gaps) <= interval_s * job.heartbeat_misses * 1000:
        return None
    rule = f"no heartbeat for {job.heartbeat_misses} intervals, though its runner is alive"
    return Liveness("silent", last, rule, f"an interval is {interval_s:g} s", True)


def _progress(attempt: Attempt, seen: Seen) -> tuple[int, str]:
    signs = [
        (attempt.last_progress_at or 0, "it said what it does"),
        (attempt.started_at or 0, "it began"),
        (seen.written_at, "its conversation grew"),
        (seen.committed_at, "its worktree got a commit"),
    ]
    return max(signs)
