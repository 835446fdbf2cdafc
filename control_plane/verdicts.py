"""The verdict line of a review's report, read strictly. Standard library only."""

LINES = {"pass": "[VERDICT: PASS]", "not_pass": "[VERDICT: NOT PASS]"}
_BY_LINE = {line: verdict for verdict, line in LINES.items()}


def said(report: str) -> list[str]:
    """
    The verdicts of *report* in order: lines that hold the marker and nothing else.

    A marker within a sentence is talk about verdicts (a brief that was quoted, say), and is none.
    """
    return [_BY_LINE[line.strip()] for line in report.splitlines() if line.strip() in _BY_LINE]


def of(report: str) -> str | None:
    """The one verdict of *report*; None where there is none, or more than one line."""
    found = said(report)
    return found[0] if len(found) == 1 else None
