"""What is told at the end of a wait: the report's own text, what was asked, and the next step. Nothing here writes."""

from typing import Any

from mam.broker.host.text import clean_lines
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import why
from mam.control_plane.jobs import reports
from mam.control_plane.jobs.attention import answered_text, asked_text
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import promote
from mam.control_plane.loops.state import LoopState
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import OPEN, Job, Loop, Question
from mam.wrappers.git.snapshot import CapturedCommit

REPORT_LINES = 40
REMARK_LINES = 20


def report_lines(job: Job, *, lines: int = REPORT_LINES) -> list[str]:
    """The report of a job as at most *lines* lines that a terminal may show; none where there is no report."""
    return clean_lines(report_text(job) or "", lines=lines)


def report_text(job: Job) -> str | None:
    """The report of a job as it lies there; None where there is none, or none that may be read (over 5 MiB)."""
    path = reports.find_report(job)
    found = reports.content(path) if path is not None else None
    return None if found is None else found.decode("utf-8", "replace")


def next_step(mam: Mam, job: Job) -> str:
    """The step after an end without a report, as `mam why` has it; empty where the job was reported or is open."""
    return "" if job.state == "reported" or job.state in OPEN else why.explain(mam, job.id).next


def question_lines(view: View, job: Job) -> list[str]:
    """All questions of a job's attempts, each with its answer and who gave it."""
    lines = []
    for each in view.questions(job.id):
        ended = "no answer yet" if each.answered_at is None else answered_text(each)
        lines.append(f"asked {asked_text(each)}\n  → {ended}")
    return lines


def question_data(asked: Question) -> dict[str, Any]:
    """A question as `--json` shows it."""
    names = ("id", "attempt", "question", "asked_at", "timeout_s", "answered_at", "answer", "answered_by")
    return {**{name: getattr(asked, name) for name in names}, "default": asked.fallback}


def remark_lines(loop: Loop, state: LoopState) -> list[str]:
    """What the reviewers who refused a loop's last round reported, with where the whole of it lies."""
    lines = []
    for review in state.round.reviews if state.rounds else []:
        if review.verdict != "not_pass":
            continue
        said = loop_files.remarks(loop, state.round.number, review.reviewer, lines=REMARK_LINES)
        path = loop_files.verdict_file(loop, state.round.number, review.reviewer)
        lines += [f"{review.reviewer}: not_pass ({path})", *(f"  {line}" for line in said)]
    return lines


def landing(mam: Mam, loop: Loop, state: LoopState) -> str:
    """The command that brings a branch that passed into the main one; empty where nothing is left to do."""
    if loop.outcome != "passed" or loop.promote != "branch" or loop.detail or not loop.head_sha:
        return ""
    return promote.next_command(mam, loop, CapturedCommit(state.round.head, state.round.head, False))
