"""The verdict line of a review's report, read strictly. Standard library only."""

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
