"""What an agent is told, as pure text: every path absolute and quoted for the shell."""

import shlex
from pathlib import Path
from typing import NamedTuple


class Commands(NamedTuple):
    """The verbs of one attempt, spelled out so that they work from any directory and without any variable."""

    started: str
    progress: str
    ask: str
    report: str

    def endings(self, *, review: bool) -> list[str]:
        """How the job is ended: once, or for a review by one of two verdicts."""
        done = f"{self.report} --result done"
        return [f"{done} --verdict pass", f"{done} --verdict not_pass"] if review else [done]


def commands(mam: str, registry_dir: Path, job: str, attempt: int) -> Commands:
    def verb(name: str) -> str:
        words = [mam, "job", name, "--registry-dir", str(registry_dir), "--job", job, "--attempt", str(attempt)]
        return shlex.join(words)

    return Commands(verb("started"), verb("progress"), verb("ask"), verb("report"))


def prompt(verbs: Commands, job: str, attempt: int, brief: Path, report: Path, *, review: bool = False) -> str:
    """The text that is pasted into the agent's pane. Its prose holds no quote signs: it reads as shell words too."""
    endings = "\nor\n".join(f"  {command}" for command in verbs.endings(review=review))
    other = "or --result failed; a reviewer adds --verdict pass or --verdict not_pass"
    alternative = "by your verdict" if review else f"with ({other})"
    return f"""[MAM job {job}, attempt {attempt}]
Read the brief first:
  {shlex.quote(str(brief))}
When you begin, run:
  {verbs.started}
While you work, say now and then what you are doing:
  {verbs.progress} --note 'what you are doing'
What only the one who gave you this can decide, ask; the answer is printed, perhaps after a long time:
  {verbs.ask} 'your question'
Where your tool calls end early, add --no-wait: it prints the command that looks for the answer later.
Write your report to:
  {shlex.quote(str(report))}
When it is written, end the job {alternative}:
{endings}
The job counts as done only when that last command has run."""


def brief(
    verbs: Commands, title: str, session: str, path: Path, report: Path, task: str, *, first_line: str, review: bool
) -> str:
    """
    The brief file: what MAM needs to be known, then the task in its author's own words.

    *first_line* is empty but for a loop's jobs, whose place and commit must not be overlooked.
    """
    above = f"{first_line}\n\n" if first_line else ""
    endings = "\n    ".join(verbs.endings(review=review))
    return f"""{above}# {title}

Job: {path.parent.name}
For: {session}
This brief: {shlex.quote(str(path))}
Output Report Path: {shlex.quote(str(report))}

Commands of the first attempt (a later one is named in its prompt):

    {verbs.started}
    {verbs.progress} --note 'what you are doing'
    {verbs.ask} 'what only whoever gave you this can decide; the answer is printed'
    {endings}

`ask` may wait longer than one of your tool calls may take. Where it is cut off or goes to the background, ask with
--no-wait: it prints a command with --poll that looks for the answer; run that now and then until it prints one.

## Task

{task.rstrip()}
"""
