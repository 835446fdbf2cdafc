"""
What an agent says in the middle of a job: started, heartbeat, progress, ask. Standard library only; no network, no
database.

Each writes one signed file into the session's spool and wakes the runner. When
the verb returns, what it said is on disk and will be recorded.
"""

import argparse
import re
import secrets
import shlex
import sys
import time
from pathlib import Path

from mam.broker.errors import MamError, Usage
from mam.broker.host import atomic_files, process_identity
from mam.broker.host.waiting import wait_until
from mam.control_plane.cli import agent_record
from mam.control_plane.cli.agent_record import Record
from mam.control_plane.cli.base import Parser, emit, verb
from mam.control_plane.config import settings as config

TIMER_LIMIT_S = 24 * 3600.0


class NoAnswer(MamError):
    """No person has answered in time, and no default was given."""

    waited_s: float
    poll: str

    code = "no_answer"
    exit_code = 4
    message = "no answer came within {waited_s:g} s"
    remedy_text = (
        "`{poll}` looks again; or decide yourself and say so in the report. A late answer is typed into the pane"
    )


class JobOver(MamError):
    """The job has ended, so its question will not be answered."""

    job: str
    state: str

    code = "job_over"
    exit_code = 4
    message = "no answer will come: {job} is {state}"
    remedy_text = "end what you do for it; a report that it is still owed is recorded all the same"


def run(words: list[str]) -> int:
    verbs = {"started": _started, "heartbeat": _heartbeat, "progress": _progress, "ask": _ask}
    return verbs[words[1]](words)


def _started(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        agent_record.common(parser)
        parser.add_argument(
            "--heartbeat", type=float, metavar="S", help="send heartbeats every S seconds by a timer of its own"
        )

    example = "mam job started --registry-dir /repo/.mam/jobs --job job-0123456789ab --attempt 1"
    args = verb(words, 2, example, "say that work on a job has begun", build)
    record = agent_record.find(args)
    data: dict[str, object] = {"cwd": str(config.load().cwd)[:4000]}
    if args.heartbeat:
        if not 1 <= args.heartbeat <= 3600:
            raise Usage(what="--heartbeat takes 1 to 3600 seconds", hint="--heartbeat 10")
        data["heartbeat_s"] = round(args.heartbeat)
    event = record.tell("started", data)
    if args.heartbeat:
        _start_timer(record, args.heartbeat)
    return agent_record.said(args, "started", event)


def _start_timer(record: Record, every_s: float) -> None:
    """Heartbeats from a process of its own, for runners that cannot send them; ends with the report or its runner."""
    from mam.control_plane.control_root.installation import mam_command
    from mam.wrappers import process

    argv = [mam_command(), "job", "heartbeat", "--every", str(every_s), "--registry-dir", str(record.registry_dir)]
    argv += ["--job", record.job, "--attempt", str(record.attempt)]
    process.spawn(argv, record.folder / "heartbeat.log", record.folder)


def _heartbeat(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        agent_record.common(parser)
        parser.add_argument("--every", type=float, metavar="S", help="go on every S seconds until the job is reported")

    args = verb(
        words, 2, "mam job heartbeat --registry-dir DIR --job ID --attempt 1", "say that the process lives", build
    )
    record = agent_record.find(args)
    event = record.tell("heartbeat", {}, beat=True)
    ends_at = time.monotonic() + TIMER_LIMIT_S
    while args.every and time.monotonic() < ends_at and _goes_on(record):
        time.sleep(args.every)
        record.tell("heartbeat", {}, beat=True)
    return agent_record.said(args, "heartbeat", event)


def _goes_on(record: Record) -> bool:
    if record.reported.exists() or not record.spool.is_dir():
        return False
    runner = atomic_files.read(record.spool.parent / "runner.json")
    pid = runner.get("pid")
    if not isinstance(pid, int):
        return True  # no runner of ours here: the report or the limit ends the timer
    return process_identity.alive(process_identity.ProcessId(pid, str(runner.get("start")), str(runner.get("boot"))))


def _progress(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        agent_record.common(parser)
        parser.add_argument("--note", required=True, metavar="TEXT", help="what you are doing")
        parser.add_argument("--percent", type=int, metavar="N", choices=range(101))

    example = "mam job progress --registry-dir DIR --job ID --attempt 1 --note 'running the tests'"
    args = verb(words, 2, example, "say what is being done", build)
    data: dict[str, object] = {"note": args.note[:4000]}
    if args.percent is not None:
        data["percent"] = args.percent
    return agent_record.said(args, "progress", agent_record.find(args).tell("progress", data))


def _ask(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        agent_record.common(parser)
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("question", nargs="?")
        what.add_argument(
            "--poll", metavar="ID", help="look for the answer to an earlier question; wait --timeout for it"
        )
        parser.add_argument("--choices", default="", metavar="A,B", help="the answers that are possible")
        parser.add_argument("--timeout", type=int, metavar="S", help="wait at most S seconds")
        parser.add_argument("--default", metavar="TEXT", help="the answer when none came in time")
        parser.add_argument(
            "--no-wait", action="store_true", help="go on; the answer is typed into the pane, or polled"
        )

    example = "mam job ask --registry-dir DIR --job ID --attempt 1 'Which database?' --choices sqlite,postgres"
    args = verb(words, 2, example, "ask the person or agent that leads the work, and print the answer", build)
    record = agent_record.find(args)
    if args.timeout is not None and not 1 <= args.timeout <= 86_400:
        raise Usage(what="--timeout takes 1 to 86400 seconds", hint="--timeout 600")
    if args.poll is not None:
        return _poll(args, record)
    choices = [each.strip() for each in args.choices.split(",") if each.strip()]
    _check_question(args, choices)
    question_id = secrets.token_hex(6)
    answer = _place(record, question_id)
    answer.parent.mkdir(mode=0o700, exist_ok=True)
    waiter = {} if args.no_wait else process_identity.me()._asdict()
    atomic_files.write_note(answer.with_suffix(".wait"), waiter)
    data: dict[str, object] = {"question_id": question_id, "question": args.question[:4000], "choices": choices}
    data |= {"timeout_s": args.timeout, "fallback": args.default}
    event = record.tell("asked", data)
    if args.no_wait:
        poll = _poll_command(args, question_id)
        data = {"said": "asked", "event": event, "question": question_id, "poll": poll}
        emit(args, data, f"asked: kept as {event}\nlook for the answer: {poll}")
        return 0
    return _await_answer(args, answer, float(args.timeout or TIMER_LIMIT_S))


def _check_question(args: argparse.Namespace, choices: list[str]) -> None:
    """Raise Usage for a question that could not be answered."""
    if args.default is not None and (args.timeout is None or (choices and args.default not in choices)):
        raise Usage(what="--default needs --timeout, and is one of --choices", hint="--timeout 600 --default sqlite")
    if not args.question.strip() or len(choices) > 20 or any(len(choice) > 200 for choice in choices):
        what = "a question has some text, and at most 20 choices of at most 200 characters"
        raise Usage(what=what, hint="put what is longer into a file, and name it in the question")


def _place(record: Record, question_id: str) -> Path:
    return record.folder / "answers" / f"{question_id}.json"


def _poll_command(args: argparse.Namespace, question_id: str) -> str:
    program = sys.argv[0] if Path(sys.argv[0]).name == "mam" else "mam"  # an agent's own PATH may not have it
    folder = ["--registry-dir", args.registry_dir] if args.registry_dir else []
    words = [program, "job", "ask", *folder, "--job", args.job, "--attempt", str(args.attempt)]
    return shlex.join([*words, "--poll", question_id])


def _poll(args: argparse.Namespace, record: Record) -> int:
    """
    The answer to an earlier question, waited for at most --timeout seconds (none without).

    An answer that was fetched is not typed into the pane as well. Raises Usage for a question that was not asked here,
    NoAnswer, JobOver.
    """
    if not re.fullmatch(r"[0-9a-f]{12}", args.poll) or not _place(record, args.poll).with_suffix(".wait").is_file():
        what = f"{args.job} has no question {args.poll!r}"
        raise Usage(what=what, hint="`mam job ask … --no-wait` prints the id of the question that it asks")
    answer = _place(record, args.poll)
    if args.timeout is not None:
        atomic_files.write_note(answer.with_suffix(".wait"), process_identity.me()._asdict())
    return _await_answer(args, answer, float(args.timeout or 0))


def _await_answer(args: argparse.Namespace, path: Path, wait_s: float) -> int:
    """
    The answer, as soon as it lies there.

    Raises JobOver where none can come any more, NoAnswer after *wait_s* seconds where nothing was agreed for that.
    """

    def said() -> dict[str, object] | None:
        content = atomic_files.read(path)
        return content if content.get("answer") or content.get("over") else None

    heard = wait_until(said, wait_s, every_s=0.2)
    if heard is None:
        atomic_files.write_note(path.with_suffix(".wait"), {})  # what comes from now on is typed into the pane
        heard = said()
    if heard is not None and heard.get("answer"):
        atomic_files.write_note(path.with_suffix(".taken"), {})
        emit(args, heard, str(heard["answer"]))
        return 0
    if heard is not None:
        raise JobOver(job=args.job, state=str(heard["over"]))
    if args.default is None:
        raise NoAnswer(waited_s=wait_s, poll=_poll_command(args, path.stem))
    emit(args, {"answer": args.default, "by": "timeout"}, args.default)
    return 0
