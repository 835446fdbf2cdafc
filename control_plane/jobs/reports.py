"""The verdict line of a review's report, read strictly. Standard library only."""

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mam.control_plane.registry.records import Job

REPORT_LIMIT_BYTES = 5 * 1024 * 1024
LINES = {"pass": "[VERDICT: PASS]", "not_pass": "[VERDICT: NOT PASS]"}
_BY_LINE = {line: verdict for verdict, line in LINES.items()}


def said(report: str) -> list[str]:
    """
    The verdicts of *report* in order: lines that begin with the marker and hold nothing else.

    A marker within a sentence, quoted or indented, is talk about verdicts (a brief
    that was copied, say), and is none. Only line feeds end a line: what merely
    looks like a line of its own somewhere is none either.
    """
    lines = (line.rstrip(" \t\r") for line in report.split("\n"))
    return [_BY_LINE[line] for line in lines if line in _BY_LINE]


def of(report: str) -> str | None:
    """The one verdict of *report*; None where there is none, or more than one line."""
    found = said(report)
    return found[0] if len(found) == 1 else None


def content(path: Path) -> bytes | None:
    """The bytes of a regular file of at most 5 MiB; None where it is missing, larger or unreadable."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None  # a FIFO would hold up everything
            found = file.read(REPORT_LIMIT_BYTES + 1)
    except OSError:
        return None
    return None if len(found) > REPORT_LIMIT_BYTES else found


def file_sha256(path: Path) -> str | None:
    """The hash of what `content` returns, or None."""
    found = content(path)
    return None if found is None else hashlib.sha256(found).hexdigest()


def find_report(job: "Job") -> Path | None:
    """
    Where the report of a job lies, whoever wrote it from whichever directory; None before there is one.

    A retry that died before its commit had set it aside already.
    """
    return next((path for path in (Path(job.report_path), set_aside(job)) if path.is_file()), None)


def set_aside(job: "Job") -> Path:
    """Where the report of *job*'s attempt lies from the next attempt on."""
    return Path(job.report_path).with_name(f"report-final.attempt-{job.attempt}.md")
