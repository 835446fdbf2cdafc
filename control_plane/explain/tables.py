"""Snapshot to rows and text, pure. Standard library only."""

import os
from collections.abc import Sequence
from typing import Any

from mam.broker.host.text import clean, cut, width
from mam.control_plane.registry.records import LIVE, Job, Loop, Session


def ago(then_ms: int, now_ms: int) -> str:
    seconds = max(0, now_ms - then_ms) / 1000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def duration(from_ms: int, to_ms: int) -> str:
    return span(max(0, to_ms - from_ms) / 1000)


def span(seconds: float) -> str:
    """A length of time as people say it: 4.2 s, 2 min 5 s, 3 h 20 min, 2 d 4 h."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"
    for size, unit, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if round(seconds / part) * part >= size:
            whole, rest = divmod(round(seconds / part), size // part)
            return f"{whole} {unit}" + (f" {rest} {small}" if rest else "")
    return "1 min"


# Columns that may be cut where a terminal is too narrow; of a path the end says most. Names and ids stay whole.
CUT = {"TITLE": False, "WHAT": False, "VERDICTS": False, "WHY": False, "DIRECTORY": True, "PATH": True}
LEAST = 12  # columns that are left of a cell that is cut


def table(header: Sequence[str], rows: Sequence[Sequence[object]], columns: int | None = None) -> str:
    """
    Columns aligned by what they take on the screen; cells are made safe to show.

    Where a line would be longer than *columns*, the longest of the columns in CUT are cut; None cuts nothing.
    """
    cells = [[clean(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(header))]
    if columns is not None:
        _narrow(header, widths, columns)
    lines = []
    for row in cells:
        fitting = [cut(cell, widths[i], keep_end=CUT.get(header[i], False)) for i, cell in enumerate(row)]
        padded = [cell + " " * (widths[i] - width(cell)) for i, cell in enumerate(fitting)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _narrow(header: Sequence[str], widths: list[int], columns: int) -> None:
    """Take from the longest column that may be cut, until a line has at most *columns* or nothing may be taken."""
    while (too_many := sum(widths) + 2 * (len(widths) - 1) - columns) > 0:
        longest = max((i for i in range(len(widths)) if header[i] in CUT), key=lambda i: widths[i], default=None)
        if longest is None or widths[longest] <= LEAST:
            return
        widths[longest] = max(LEAST, widths[longest] - too_many)


def near(path: str, root: str) -> str:
    """Return *path* as it is reached from the control root *root*, where that is shorter."""
    relative = os.path.relpath(path, root)
    return relative if len(relative) < len(path) else path


def job_data(job: Job) -> dict[str, Any]:
    """A job as `--json` shows it."""
    names = [name for name in Job.columns() if name not in ("late", "folder")]
    data = {name: getattr(job, name) for name in names}
    return {**data, "late": bool(job.late), "brief_path": job.brief_path, "report_path": job.report_path}


def session_data(session: Session) -> dict[str, Any]:
    hidden = ("screen_text", "binding", "args")
    return {name: getattr(session, name) for name in Session.columns() if name not in hidden}


def agent_row(session: Session, job: Job | None, root: str) -> list[object]:
    """An agent of the control root *root* as one line of a table; *job* is the open one that it has."""
    screen = (session.screen or "-") if session.status in LIVE else "-"
    named = (session.name, session.agent, session.role, session.status)
    return [*named, screen, job.id if job else "-", near(session.cwd, root)]


TREE_HEADER = ("WORKTREE", "STATE", "BRANCH", "PATH")
LOOP_HEADER = ("LOOP", "STATE", "ROUND", "HEAD", "AGE", "TITLE")


def loop_row(loop: Loop, now: int, *, runs: bool) -> list[object]:
    """A loop as one line; an open one that no process carries out is interrupted, unless it waits for a person."""
    state = loop.outcome or loop.state
    if loop.ended_at is None and loop.state != "stuck" and not runs:
        state = f"{state} (interrupted)"
    return [loop.id, state, loop.round, (loop.head_sha or "-")[:12], ago(loop.created_at, now), loop.title[:60]]


SESSION_HEADER = ("AGENT", "KIND", "ROLE", "STATUS", "SCREEN", "JOB", "DIRECTORY")
JOB_HEADER = ("JOB", "AGENT", "STATE", "RESULT", "VERDICT", "AGE", "TITLE")


def job_rows(jobs: Sequence[Job], now: int) -> list[list[object]]:
    return [
        [
            job.id,
            job.session,
            job.state + (" (late)" if job.late else ""),
            job.result or "-",
            job.verdict or "-",
            ago(job.created_at, now),
            job.title[:60],
        ]
        for job in jobs
    ]


def _asked(job: str, data: dict[str, Any]) -> str:
    """A question, what may be answered, and the command; one that was answered since is answered no second time."""
    choices = ", ".join(clean(str(choice)) for choice in data.get("choices") or ())
    offered = f" ({choices})" if choices else ""
    command = f"mam job answer {clean(job)} TEXT --question {clean(str(data.get('question_id')))}"
    return f"“{clean(str(data.get('question', '')))}”{offered} → {command}"


def event_line(event: dict[str, Any], body: dict[str, Any], now: int) -> str:
    """One stored event as `mam tail` shows it."""
    data = body.get("data", {})
    said = {
        "progress": lambda: clean(str(data.get("note", ""))),
        "report": lambda: (
            f"{data.get('result')} verdict={data.get('verdict') or '-'} {clean(str(data.get('summary', '')))}"
        ),
        "asked": lambda: _asked(str(body.get("job")), data),
        "delivery": lambda: f"{data.get('state')} {data.get('reason') or ''}",
        "signal": lambda: f"{data.get('name')} {data.get('state') or ''}",
        "started": lambda: clean(str(data.get("cwd", ""))),
    }.get(str(event["kind"]), lambda: "")()
    mark = "" if event["outcome"] == "accepted" else f" [{event['outcome']}]"
    about = body.get("job") or event["scope"]
    return f"{ago(event['arrived_at'], now):>9}  {event['scope']:<28} {event['kind']:<9} {about} {said}{mark}".rstrip()
