"""What an agent is told, as pure text: every path absolute and quoted for the shell."""

import shlex
from pathlib import Path
from typing import NamedTuple


class Commands(NamedTuple):
    """The verbs of one attempt, spelled out so that they work from any directory and without any variable."""

    started: str
    progress: str
    report: str


def commands(mam: str, registry_dir: Path, job: str, attempt: int) -> Commands:
    def verb(name: str) -> str:
        words = [mam, "job", name, "--registry-dir", str(registry_dir), "--job", job, "--attempt", str(attempt)]
        return shlex.join(words)

    return Commands(verb("started"), verb("progress"), verb("report"))


def prompt(mam: str, registry_dir: Path, job: str, attempt: int, brief: Path, report: Path) -> str:
    """The text that is pasted into the agent's pane. Its prose holds no quote signs: it reads as shell words too."""
    verbs = commands(mam, registry_dir, job, attempt)
    return f"""[MAM job {job}, attempt {attempt}]
Read the brief first:
  {shlex.quote(str(brief))}
When you begin, run:
  {verbs.started}
While you work, say now and then what you are doing:
  {verbs.progress} --note 'what you are doing'
Write your report to:
  {shlex.quote(str(report))}
When it is written, end the job with (or --result failed; a reviewer adds --verdict pass or --verdict not_pass):
  {verbs.report} --result done
The job counts as done only when that last command has run."""


def brief(mam: str, registry_dir: Path, job: str, title: str, session: str, path: Path, report: Path, task: str) -> str:
    """The brief file: what MAM needs to be known, then the task in its author's own words."""
    verbs = commands(mam, registry_dir, job, 1)
    return f"""# {title}

Job: {job}
For: {session}
This brief: {shlex.quote(str(path))}
Output Report Path: {shlex.quote(str(report))}

Commands of the first attempt (a later one is named in its prompt):

    {verbs.started}
    {verbs.progress} --note 'what you are doing'
    {verbs.report} --result done

## Task

{task.rstrip()}
"""
