"""
What a job's prompt and its brief say, and what an agent makes of them.

A brief is read as a list of directives, each on a line of its own:

    RUN: COMMAND              run it, in order; all of them, or the step has failed
    REPORT: TEXT              what the report says
    VERDICT: pass | not_pass | tests
    RESULT: done | failed
    DELAY: SECONDS            wait before every answer
    STOP AFTER: STEP          end the turn there: started, brief, run, tests, write
    HTTP: STATUS              refuse to answer

`AS NAME`, `ROUND N`, or both in this order before one of them keep it for the
agent of that name (the brief says `For: NAME`) and for that round of a loop (the
job's id says it), since a loop gives one task to all: `AS writer ROUND 1 RUN: …`.
A review's brief quotes that task; what else is quoted, findings say, gives no
orders.

`VERDICT: tests`, and a review that is told no verdict, runs the line that the
brief spells out for trying it, and takes the verdict from its exit status: a
second command behind `&&` says that it was 0.
"""

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

HEADER = re.compile(r"\[MAM job ([a-z0-9][a-z0-9_-]{7,63}), attempt \d+\]")

_PASSED = "the tests ended with status 0"
_ORDER = re.compile(
    r"^[ \t]*(?:AS (\S+) )?(?:ROUND (\d+) )?"
    r"(RUN|REPORT|VERDICT|RESULT|STOP AFTER|DELAY|HTTP):[ \t]*(\S.*?)[ \t]*$",
    re.M,
)
_FOR = re.compile(r"^For: (\S+)[ \t]*$", re.M)
_ROUND = re.compile(r"-(?:w(\d+)$|r(\d+)-)")
_TRY = re.compile(r"^    (cd \S.* && env .*\bAGENT_PYTHON_BIN=.*?)[ \t]*$", re.M)
_TASK = re.compile(r"^## What was to be done\n\n((?:>.*\n)+)", re.M)
_LONGEST_DELAY_S = 120.0
_LONGEST_OUTPUT = 2000


class PromptedJob(NamedTuple):
    """What a job prompt asks for: commands as they stand there, and two paths. A review has two endings."""

    id: str
    started: str
    brief: str
    report: str
    ends: Sequence[str]

    @property
    def review(self) -> bool:
        return len(self.ends) > 1

    def ending(self, result: str, verdict: str) -> str:
        """The command that ends the job, as the prompt has it where it has it."""
        if self.review and result != "failed":
            return next(end for end in self.ends if end.endswith(f" --verdict {verdict or 'pass'}"))
        end = self.ends[0].partition(" --verdict ")[0]
        end = re.sub(r"--result\s+done\b", f"--result {result}", end) if result else end
        return f"{end} --verdict {verdict}" if verdict and not self.review else end


class Brief(NamedTuple):
    """The directives of a brief that are meant for the one who reads it."""

    runs: Sequence[str] = ()
    report: str = ""
    verdict: str = ""
    result: str = ""
    stop_after: str = ""
    delay_s: float = 0.0
    status: int = 0
    try_line: str = ""

    def tests(self, job: PromptedJob) -> str:
        """The command of the tests, where the verdict is to come from them."""
        follows = self.verdict == "tests" or (job.review and not self.verdict and self.result != "failed")
        return f"{self.try_line} && echo {_PASSED}" if follows and self.try_line else ""


def parse_job(message: str) -> PromptedJob | None:
    """The last job prompt in a message, or None where there is none or it lacks a part."""
    headers = list(HEADER.finditer(message))
    if not headers:
        return None
    started = ""
    ends: list[str] = []
    paths: list[str] = []
    for line in message[headers[-1].end() :].splitlines():
        words = _words(line)
        if _has(words, "job", "started"):
            started = line.strip()
        elif _has(words, "job", "report"):
            ends.append(line.strip())
        elif not _has(words, "job", "progress") and line.strip().lstrip("'\"").startswith("/"):
            paths.append(words[0] if len(words) == 1 else line.strip())
    if not (started and ends and len(paths) >= 2):
        return None
    return PromptedJob(headers[-1][1], started, paths[0], paths[-1], ends)


def parse_brief(text: str, job: str) -> Brief:
    """The directives in what `cat` showed of the brief of *job*. A repeated one counts by its last, RUN by all."""
    name, number = _FOR.search(text), _ROUND.search(job)
    mine = ("", name[1] if name else ""), ("", (number[1] or number[2]) if number else "")
    text = _TASK.sub(lambda quoted: re.sub(r"^> ?", "", quoted[1], flags=re.M), text)
    found = [(key, value) for who, at, key, value in _ORDER.findall(text) if who in mine[0] and at in mine[1]]
    last = dict(found)
    line = _TRY.search(text)
    return Brief(
        runs=[value for key, value in found if key == "RUN"],
        report=last.get("REPORT", ""),
        verdict=last.get("VERDICT", ""),
        result=last.get("RESULT", ""),
        stop_after=last.get("STOP AFTER", ""),
        delay_s=min(_number(last.get("DELAY", "")), _LONGEST_DELAY_S),
        status=int(_number(last.get("HTTP", ""))),
        try_line=line[1] if line else "",
    )


def verdict_of(tried: str) -> str:
    """The verdict that the tests themselves gave; a status that was not seen is no pass."""
    return "pass" if _PASSED in map(str.strip, tried.splitlines()) else "not_pass"


def report_of(job: PromptedJob, brief: Brief, verdict: str, tried: str | None) -> str:
    """The report, for a review with the line that gives its verdict; nothing that the tests print can be one."""
    parts = [f"# Report of {job.id}", brief.report or "Everything that the brief asked for was run."]
    if tried is not None:
        shown = tried.strip()[-_LONGEST_OUTPUT:].splitlines()
        parts.append("\n".join(["The tests said:", "", *(f"| {line}" for line in shown)]))
    if job.review and brief.result != "failed":
        parts.append(f"[VERDICT: {'NOT PASS' if verdict == 'not_pass' else 'PASS'}]")
    return "\n\n".join(parts)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a lone quote: prose, or a path that nobody quoted
        return []


def _has(words: Sequence[str], first: str, second: str) -> bool:
    return (first, second) in pairwise(words)


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0
