"""
What the stand-in does next, from the conversation alone.

Pure: the same conversation and tools give the same move, so that a resumed
conversation goes on where it was and any number of agents can share one server.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from mam.agents.stand_in.briefs import HEADER, Brief, PromptedJob, parse_brief, parse_job, report_of, verdict_of

ItemKind = Literal["user", "assistant", "call", "result"]


class Item(NamedTuple):
    """One piece of a conversation, whatever protocol brought it. A call's text is its arguments."""

    kind: ItemKind
    text: str


class Tool(NamedTuple):
    """A tool that the request offers, with the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, object]


class Say(NamedTuple):
    """Answer with text, which ends the turn."""

    text: str


class Call(NamedTuple):
    """Call one tool."""

    name: str
    args: Mapping[str, object]


class Refuse(NamedTuple):
    """Answer with an HTTP error."""

    status: int


Act = Say | Call | Refuse


class Move(NamedTuple):
    """An act and how long to wait before it."""

    act: Act
    delay_s: float = 0.0


SHELLS = (
    "Bash",
    "bash",
    "exec_command",
    "shell",
    "shell_command",
    "local_shell",
    "run_shell_command",
    "run_terminal_command",
    "run_command",
    "run_in_terminal",
)

_DO = re.compile(r"^[ \t]*DO:[ \t]*(\S.*?)[ \t]*$", re.M)
_QUERY = re.compile(r"\A\s*<user_query>\n?(.*?)\n?</user_query>\s*\Z", re.S)
# Blocks that a CLI adds in the user's name; all known ones have a compound tag.
_ASIDE = re.compile(r"<([a-z]+[-_][a-z_-]+)>.*?</\1>", re.S)


def decide(items: Sequence[Item], tools: Sequence[Tool]) -> Move:
    """The next move for the last message that a user really wrote."""
    shell = shell_tool(tools)
    if shell is None:
        return Move(Say("A short title"))
    spoken = [Item(item.kind, said(item.text)) if item.kind == "user" else item for item in items]
    turn = max((at for at, item in enumerate(spoken) if item.kind == "user" and item.text), default=None)
    if turn is None:
        return Move(Say("Nothing was asked."))
    results = [item.text for item in spoken[turn + 1 :] if item.kind == "result"]
    job = parse_job(spoken[turn].text)
    if job is not None:
        return _work(job, results, shell)
    wanted = _DO.search(spoken[turn].text)
    if wanted and not results:
        return Move(shell_call(shell, wanted[1]))
    return Move(Say(f"REMEMBERED: {', '.join(_jobs_in(spoken[:turn])) or 'nothing'}"))


def said(text: str) -> str:
    """A user message without what the CLI put into it; empty where nothing else was there."""
    query = _QUERY.match(text)
    return query[1].strip() if query else _ASIDE.sub("", text).strip()


def shell_tool(tools: Sequence[Tool]) -> Tool | None:
    """The tool that runs a shell command, by its name."""
    by_name = {tool.name: tool for tool in tools}
    return next((by_name[name] for name in SHELLS if name in by_name), None)


def shell_call(tool: Tool, command: str) -> Call:
    """A call of *tool* with *command* and something fitting for every other required argument."""
    props = tool.schema.get("properties")
    known: Mapping[str, object] = props if isinstance(props, Mapping) else {}
    key = next((name for name in ("command", "cmd", "script") if name in known), "command")
    args: dict[str, object] = {key: ["bash", "-lc", command] if _type(known.get(key)) == "array" else command}
    required = tool.schema.get("required")
    for name in required if isinstance(required, Sequence) else ():
        args.setdefault(name, _filler(known.get(name)))
    return Call(tool.name, args)


def _work(job: PromptedJob, results: Sequence[str], shell: Tool) -> Move:
    """The move of a job turn: which step is due follows from how many tool results came back so far."""
    if len(results) < 2:
        return Move(shell_call(shell, (job.started, f"cat {shlex.quote(job.brief)}")[len(results)]))
    brief = parse_brief(results[1], job.id)
    steps = [*(["run"] if brief.runs else []), *(["tests"] if brief.tests(job) else []), "write", "report"]
    done = dict(zip(["started", "brief", *steps], results, strict=False))
    due = steps[len(results) - 2 : len(results) - 1]
    if brief.status and len(results) == 2:
        return Move(Refuse(brief.status), brief.delay_s)
    # A brief without RUN lines has passed that step when it was read.
    if brief.stop_after in done or (brief.stop_after == "run" and not brief.runs):
        return Move(Say("That is all for now."), brief.delay_s)
    if not due:
        return Move(Say(f"The report of {job.id} is written and the job is ended."), brief.delay_s)
    return Move(shell_call(shell, _command(due[0], job, brief, done.get("tests"))), brief.delay_s)


def _command(step: str, job: PromptedJob, brief: Brief, tried: str | None) -> str:
    """The command of one step; *tried* is what the tests printed, where they were run."""
    verdict = brief.verdict.replace("tests", "not_pass") if tried is None else verdict_of(tried)
    if step == "run":
        return " && ".join(brief.runs)
    if step == "tests":
        return brief.tests(job)
    if step == "write":
        folder = shlex.quote(str(PurePosixPath(job.report).parent))
        text = report_of(job, brief, verdict, tried)
        return f"mkdir -p {folder} && printf '%s\\n' {shlex.quote(text)} > {shlex.quote(job.report)}"
    return job.ending(brief.result, verdict)


def _jobs_in(items: Sequence[Item]) -> list[str]:
    """Every job that was handed in, in order of its first appearance."""
    return list(dict.fromkeys(name for item in items for name in HEADER.findall(item.text)))


def _type(schema: object) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return str(kind[0] if isinstance(kind, list) and kind else kind or "string")


def _filler(schema: object) -> object:
    choices = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(choices, list) and choices:
        return choices[0]
    empty: Mapping[str, object] = {"array": [], "object": {}, "boolean": False, "integer": 1, "number": 1}
    return empty.get(_type(schema), "a step of the job")
