"""
What the stand-in does next, from the conversation alone.

Pure: the same conversation and tools give the same move, so that a resumed
conversation goes on where it was and any number of agents can share one server.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

Kind = Literal["user", "assistant", "call", "result"]


class Item(NamedTuple):
    """One piece of a conversation, whatever protocol brought it. A call's text is its arguments."""

    kind: Kind
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


class Job(NamedTuple):
    """What a job prompt asks for: two commands as they stand there, and two paths."""

    id: str
    started: str
    brief: str
    report: str
    end: str


class Brief(NamedTuple):
    """The directives of a brief, each from a line of its own."""

    runs: Sequence[str] = ()
    report: str = ""
    verdict: str = ""
    result: str = ""
    stop_after: str = ""
    delay_s: float = 0.0
    status: int = 0


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

_JOB_ID = re.compile(r"\bjob-[0-9a-f]{12}\b")
_HEADER = re.compile(r"\[MAM job (job-[0-9a-f]{12}), attempt \d+\]")
_ORDER = re.compile(r"^[ \t]*(RUN|REPORT|VERDICT|RESULT|STOP AFTER|DELAY|HTTP):[ \t]*(\S.*?)[ \t]*$", re.M)
_DO = re.compile(r"^[ \t]*DO:[ \t]*(\S.*?)[ \t]*$", re.M)
_QUERY = re.compile(r"\A\s*<user_query>\n?(.*?)\n?</user_query>\s*\Z", re.S)
# Blocks that a CLI adds in the user's name; all known ones have a compound tag.
_ASIDE = re.compile(r"<([a-z]+[-_][a-z_-]+)>.*?</\1>", re.S)
_LONGEST_DELAY_S = 120.0


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


def parse_job(message: str) -> Job | None:
    """The last job prompt in a message, or None where there is none or it lacks a part."""
    headers = list(_HEADER.finditer(message))
    if not headers:
        return None
    started = end = ""
    paths: list[str] = []
    for line in message[headers[-1].end() :].splitlines():
        words = _words(line)
        if _has(words, "job", "started"):
            started = line.strip()
        elif _has(words, "job", "report"):
            end = line.strip()
        elif not _has(words, "job", "progress") and line.strip().lstrip("'\"").startswith("/"):
            paths.append(words[0] if len(words) == 1 else line.strip())
    if not (started and end and len(paths) >= 2):
        return None
    return Job(headers[-1][1], started, paths[0], paths[-1], end)


def parse_brief(text: str) -> Brief:
    """The directives in what `cat` showed of the brief. A repeated one counts by its last, RUN by all."""
    found = _ORDER.findall(text)
    last = dict(found)
    return Brief(
        runs=[value for key, value in found if key == "RUN"],
        report=last.get("REPORT", ""),
        verdict=last.get("VERDICT", ""),
        result=last.get("RESULT", ""),
        stop_after=last.get("STOP AFTER", ""),
        delay_s=min(_number(last.get("DELAY", "")), _LONGEST_DELAY_S),
        status=int(_number(last.get("HTTP", ""))),
    )


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


def _work(job: Job, results: Sequence[str], shell: Tool) -> Move:
    """The move of a job turn: which one follows from how many tool results came back so far."""
    if len(results) < 2:
        return Move(shell_call(shell, (job.started, f"cat {shlex.quote(job.brief)}")[len(results)]))
    brief = parse_brief(results[1])
    steps = [("run", " && ".join(brief.runs))] if brief.runs else []
    steps += [("write", _write(job, brief)), ("report", _end(job, brief))]
    at = len(results) - 2
    done = ["started", "brief", *(name for name, _ in steps[:at])]
    if brief.status and at == 0:
        return Move(Refuse(brief.status), brief.delay_s)
    # A brief without RUN lines has passed that step when it was read.
    if brief.stop_after in done or (brief.stop_after == "run" and not brief.runs):
        return Move(Say("That is all for now."), brief.delay_s)
    if at < len(steps):
        return Move(shell_call(shell, steps[at][1]), brief.delay_s)
    return Move(Say(f"The report of {job.id} is written and the job is ended."), brief.delay_s)


def _write(job: Job, brief: Brief) -> str:
    text = f"# Report of {job.id}\n\n{brief.report or 'Everything that the brief asked for was run.'}"
    folder = shlex.quote(str(PurePosixPath(job.report).parent))
    return f"mkdir -p {folder} && printf '%s\\n' {shlex.quote(text)} > {shlex.quote(job.report)}"


def _end(job: Job, brief: Brief) -> str:
    command = re.sub(r"--result\s+done\b", f"--result {brief.result}", job.end) if brief.result else job.end
    return f"{command} --verdict {brief.verdict}" if brief.verdict else command


def _jobs_in(items: Sequence[Item]) -> list[str]:
    """Every job id in order of its first appearance."""
    return list(dict.fromkeys(name for item in items for name in _JOB_ID.findall(item.text)))


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a lone quote: prose, or a path that nobody quoted
        return []


def _has(words: Sequence[str], first: str, second: str) -> bool:
    return (first, second) in pairwise(words)


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0


def _type(schema: object) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return str(kind[0] if isinstance(kind, list) and kind else kind or "string")


def _filler(schema: object) -> object:
    choices = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(choices, list) and choices:
        return choices[0]
    empty: Mapping[str, object] = {"array": [], "object": {}, "boolean": False, "integer": 1, "number": 1}
    return empty.get(_type(schema), "a step of the job")
