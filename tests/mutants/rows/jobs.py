"""The life of a job, and how its agent is."""

from tests.mutants.mutant import Mutant

_STATE, _STATE_TESTS = "control_plane/jobs/state.py", ("tests/control_plane/jobs/test_state.py",)
_LIVENESS, _LIVENESS_TESTS = "control_plane/jobs/liveness.py", ("tests/control_plane/jobs/test_liveness.py",)


def _state(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"job-{name}", rule, _STATE, old, new, _STATE_TESTS)


def _live(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"liveness-{name}", rule, _LIVENESS, old, new, _LIVENESS_TESTS)


ROWS = (
    _state(
        "new-kind",
        "an event of a newer version has no effect",
        'return Step("accepted", job, attempt)  # a kind',
        'return Step("late", job, attempt)  # a kind',
    ),
    _state(
        "presumed-late",
        "events after a presumed end are late and change nothing",
        "if job.state in FINAL or job.state in PRESUMED:",
        "if job.state in FINAL:",
    ),
    _state(
        "report-final",
        "the first report of an attempt wins; nothing leaves a final state",
        'if job.state in FINAL:\n        return Step("late", job, attempt)\n    ended',
        'if job.state == "cancelled":\n        return Step("late", job, attempt)\n    ended',
    ),
    _state(
        "report-starts",
        "a report implies that work had begun",
        "ended_at=attempt.ended_at or now, started_at=attempt.started_at or now)\n    other",
        "ended_at=attempt.ended_at or now)\n    other",
    ),
    _state(
        "first-start",
        "the first sign of life stays the beginning",
        "replace(attempt, started_at=attempt.started_at or now, heartbeat_s=data.heartbeat_s)",
        "replace(attempt, started_at=now, heartbeat_s=data.heartbeat_s)",
    ),
    _state(
        "heartbeat-interval",
        "M98: an agent's own heartbeat interval is taken over",
        "started_at=attempt.started_at or now, heartbeat_s=data.heartbeat_s)",
        "started_at=attempt.started_at or now)",
    ),
    _state(
        "asked-starts",
        "a question means that work began",
        'attempt, started_at=attempt.started_at or now, last_note=f"{ASKED_NOTE}{data.question}"[:500]',
        'attempt, last_note=f"{ASKED_NOTE}{data.question}"[:500]',
    ),
    _state(
        "progress-noted",
        "progress is noted with its time",
        "started_at=attempt.started_at or now, last_progress_at=now, last_note=data.note[:500]",
        "started_at=attempt.started_at or now, last_note=data.note[:500]",
    ),
    _state(
        "late-mark",
        "a report after a presumed end is marked late",
        "late=int(job.state in PRESUMED),",
        "late=0,",
    ),
    _state(
        "altered-result",
        "an altered report is no success",
        'result=report.result if intact else "failed",',
        "result=report.result,",
    ),
    _state(
        "altered-verdict",
        "an altered report is no verdict",
        "verdict=report.verdict if intact and not other else None,",
        "verdict=report.verdict if not other else None,",
    ),
    _state(
        "other-commit",
        "M54: a verdict on another commit is none",
        "other = job.head_sha is not None and report.head_sha != job.head_sha",
        "other = job.head_sha is not None and report.head_sha not in (None, job.head_sha)",
    ),
    _state(
        "seen-commit",
        "M54: the commit that a reviewer saw is recorded",
        "seen_sha=report.head_sha,",
        "seen_sha=job.head_sha,",
    ),
    _state(
        "altered-outcome",
        "an altered report is answered as one",
        'Step("accepted" if intact else "report_altered", done, ended)',
        'Step("accepted", done, ended)',
    ),
    _state(
        "presume-open",
        "only an open job is ended by our own judgement",
        "if job.state not in OPEN:\n        return job, attempt",
        "if job.state in FINAL:\n        return job, attempt",
    ),
    _state(
        "cancel-final",
        "cancelling changes no final state",
        "if job.state in FINAL:\n        return job, attempt",
        'if job.state == "cancelled":\n        return job, attempt',
    ),
    _state("again-late", "the next attempt is not late", "seen_sha=None,\n        late=0,", "seen_sha=None,"),
    _state("again-verdict", "the next attempt has no verdict", "result=None,\n        verdict=None,", "result=None,"),
    _state("again-counts", "the next attempt has the next number", "attempt=job.attempt + 1,", "attempt=job.attempt,"),
    _state(
        "limit-open",
        "limits are for open jobs only",
        "if job.state not in OPEN:\n        return None",
        "if job.state in FINAL:\n        return None",
    ),
    _state(
        "limit-attempt",
        "an attempt has a limit whatever it says",
        "> job.limit_s * 1000:",
        "> job.limit_s * 1000 and attempt.started_at is None:",
    ),
    _state(
        "limit-started",
        "M97: no `started` within its limit after the prompt blocks the job",
        "if lasted(attempt.delivered_at, now, gaps) > job.started_within_s * 1000:",
        "if lasted(attempt.delivered_at, now, gaps) > job.limit_s * 1000:",
    ),
    _state(
        "limit-from-prompt",
        "M97: that limit counts from the prompt, not from the queue",
        "if lasted(attempt.delivered_at, now, gaps) > job.started",
        "if lasted(attempt.created_at, now, gaps) > job.started",
    ),
    _state(
        "limit-gaps",
        "time in which nothing could be seen is no part of a limit",
        "lasted(attempt.created_at, now, gaps) > job.limit_s",
        "lasted(attempt.created_at, now, ()) > job.limit_s",
    ),
    _state(
        "limit-began",
        "a job that waited for a monitor is not late before one could send it",
        "attempt.received_at or max(attempt.created_at, began)",
        "attempt.received_at or attempt.created_at",
    ),
    _state(
        "limit-runner",
        "a runner has its whole limit from when it got the prompt",
        "since = attempt.received_at or max(",
        "since = max(",
    ),
    Mutant(
        "delivery-lost",
        "work that had begun is lost with an agent that was started anew",
        _STATE,
        'if seen.reason == "restarted" and begun:',
        'if seen.reason == "restarted" and attempt.started_at is not None:',
        ("tests/control_plane/sessions/test_state.py",),
    ),
    Mutant(
        "delivery-refused",
        "a refused prompt ends nothing that has begun",
        _STATE,
        "moved.state in OPEN and attempt.started_at is None:",
        "moved.state in OPEN:",
        ("tests/control_plane/sessions/test_state.py",),
    ),
    _live("dead", "only proof is death", "if seen.alive is False:", "if not seen.alive:"),
    _live("question", "a question of the agent's own blocks at once", "if seen.question:", "if False:"),
    _live(
        "old-question",
        "a question of the last turn says nothing about this one",
        "if asking is not None and asking.since >= began:",
        "if asking is not None:",
    ),
    _live(
        "heartbeat-no-progress",
        "M98: a heartbeat is no progress",
        "since = max(began, progress_at)",
        "since = max(began, progress_at, attempt.last_heartbeat_at or 0)",
    ),
    _live("stalled", "M99: a turn without any sign stalls", "> patience.stalled_ms:", "> 1000 * patience.stalled_ms:"),
    _live(
        "stalled-begun",
        "what has not begun does not stand still",
        "if attempt.started_at is not None and lasted(since",
        "if lasted(since",
    ),
    _live(
        "hook-first",
        "an agent's hook is believed before its screen, and not after the screen moved on",
        'session.hook == "permission" and hooked >= looked:',
        'session.hook == "permission":',
    ),
    _live("screen-asks", "M99: a question on the screen blocks", "if session.screen in ASKS:", "if False:"),
    _live(
        "question-due",
        "a question is due only when it stands",
        "due = lasted(looked, seen.now, seen.gaps) >= patience.stuck_ms",
        "due = True",
    ),
    _live(
        "idle-ready",
        "a screen that was ready before the prompt says nothing about this turn",
        "if ready_at <= attempt.delivered_at:",
        "if False:",
    ),
    _live(
        "idle-since",
        "a turn that said something after its screen was ready waits from then on",
        "max(ready_at, attempt.started_at or 0, attempt.last_progress_at or 0)",
        "max(ready_at, attempt.started_at or 0)",
    ),
    _live(
        "silent-misses",
        "M98: missed heartbeats are counted by the job's own limit",
        "<= interval_s * job.heartbeat_misses * 1000:",
        "<= interval_s * 6 * 1000:",
    ),
    _live(
        "silent-interval",
        "M98: an agent's own timer sets the interval",
        "interval_s = attempt.heartbeat_s or patience.heartbeat_s",
        "interval_s = patience.heartbeat_s",
    ),
    _live(
        "silent-heard",
        "M98: a heartbeat that was heard ends a silence",
        "last = max(seen.heard_at, attempt",
        "last = max(attempt",
    ),
    _live(
        "grown",
        "a conversation that grows is progress",
        '(seen.written_at, "its conversation grew"),',
        "",
    ),
    _live("committed", "a new commit is progress", '(seen.committed_at, "its worktree got a commit"),', ""),
)
