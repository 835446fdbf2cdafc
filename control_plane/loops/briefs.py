"""What creators and reviewers of a loop are told, as pure text."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mam.control_plane.jobs.reports import LINES

_ENDING = f"""## Your report

Say what you tried and what you found, each finding with file and line and how to see it. It ends with exactly one
line of its own: `{LINES["pass"]}`, or `{LINES["not_pass"]}` when anything must change first.
"""


class WorkPlace(NamedTuple):
    """Where the work lies: the fixed fields that stand in the first line of every brief of a loop."""

    worktree: str
    branch: str | None
    base: str
    head: str | None = None

    def line(self) -> str:
        """One line, whatever the path is called."""
        head = f" / head {self.head}" if self.head else ""
        return f"Worktree {_on_one_line(self.worktree)} / branch {self.branch or '(detached)'} / base {self.base}{head}"


class ReviewTree(NamedTuple):
    """A reviewer's own place: the commit's tree, and where its tests may write. *python* is for what they start."""

    tree: Path
    out: Path
    tmp: Path
    python: str
    isolated: bool


class Remarks(NamedTuple):
    reviewer: str
    report: str


def _on_one_line(path: str) -> str:
    """*path* as a word of a shell, on one line also where it holds line breaks (as bash and zsh read them)."""
    if path.isprintable():
        return shlex.quote(path)
    escaped = "".join(char if char.isprintable() else _escape(char) for char in re.sub(r"([\\'])", r"\\\1", path))
    return f"$'{escaped}'"


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x80 else f"\\U{ord(char):08x}"


def work(task: str) -> str:
    return f"""{task.rstrip()}

## How it is handed in

Work only in the worktree that the first line names, on its branch. Commit your work there; what you leave
uncommitted is reviewed as well, but a commit says what you meant. Push nothing, and touch no other checkout.
Reviewers then get exactly one commit of it. Say in your report what you changed and how you tried it.
"""


def rework(task: str, number: int, findings: Sequence[Remarks]) -> str:
    """The findings of all who refused, and of those who passed with remarks, in one brief."""
    said = "\n\n".join(f"### {each.reviewer}\n\n{_quoted(each.report)}" for each in findings)
    return f"""Round {number - 1} was refused. Answer every finding: correct it, or say in your report why it is none.

## Findings

{said}

## The task, as before

{work(task)}"""


def _quoted(text: str) -> str:
    """Foreign words, each line marked, so that nothing in them reads as a heading or a verdict of ours."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


class Change(NamedTuple):
    """What there is to review: the diff's summary, the file with all of it, and the writer's own report, if any."""

    stat: str
    diff: Path
    told: Path | None = None


def review(task: str, place: WorkPlace, bench: ReviewTree, test_command: str | None, change: Change) -> str:
    tree = shlex.quote(str(bench.tree))
    span = f"{place.base}...{place.head}"
    where = (
        f"{tree} holds exactly that commit, detached, for you alone, for this round."
        if bench.isolated
        else f"{tree} is the writer's own tree: others read it too, and it must stay exactly as it is."
    )
    told = f"\nWhat its writer says of it: {shlex.quote(str(change.told))}\n" if change.told else ""
    return f"""Review one commit: {place.head}

{where} Read and try it only there. Do not edit, commit or switch anything in it: a tree that was changed voids
the verdict, and so does a commit that was moved. What the writer does meanwhile does not concern you.

    git --no-replace-objects -C {tree} diff {span}

The same is in {shlex.quote(str(change.diff))}:

{_indented(change.stat)}
{told}
## How to try it

Programs that you start may write below {shlex.quote(str(bench.out))}, and nothing into the tree:

    {_test_line(bench, test_command)}

`AGENT_PYTHON_BIN` is the interpreter for scripts that start others; the tree has none of its own.

## What was to be done

{_quoted(task)}

{_ENDING}"""


def remote_review(task: str, place: WorkPlace, remote: str, pins: str, stat: str) -> str:
    """The same for a reviewer whose checkout is somewhere else: the commit is fetched, and named in the report."""
    return f"""Review one commit: {place.head}

Fetch it into a checkout of your own, and review nothing else than it:

    git fetch {shlex.quote(remote)} {pins}/base {pins}/head
    git worktree add --detach review-{(place.head or "")[:12]} {place.head}
    git diff {place.base}...{place.head}

{_indented(stat)}

Add `--head-sha {place.head}` to the command that ends the job, when that is the commit that you reviewed.

## What was to be done

{_quoted(task)}

{_ENDING}"""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _test_line(bench: ReviewTree, test_command: str | None) -> str:
    variables = {
        "AGENT_PYTHON_BIN": bench.python,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{bench.tree}:{bench.tree / 'src'}",
        "PYTEST_ADDOPTS": f"-p no:cacheprovider --basetemp={shlex.quote(str(bench.tmp / 'pytest'))}",
        "TMPDIR": str(bench.tmp),
        "MAM_OUTPUT_DIR": str(bench.out),
    }
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    # Through a shell of its own: so the variables hold for the whole of a compound command, and can be used in it.
    command = f"sh -c {shlex.quote(test_command)}" if test_command else f"{shlex.quote(bench.python)} -m pytest"
    return f"cd {shlex.quote(str(bench.tree))} && env {words} {command}"
