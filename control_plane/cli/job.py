"""mam job delegate · list · show · wait · answer · cancel · retry · archive"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import Usage
from mam.broker.host import terminal
from mam.broker.host.text import clean
from mam.control_plane.cli import AGENT_SIDE
from mam.control_plane.cli.base import Parser, add_older, add_root, check_seconds, choose, emit, ended_before, say, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.config import settings as config
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import tables
from mam.control_plane.registry.records import OPEN

WHOLE_REPORT = 100_000  # lines

if TYPE_CHECKING:
    from mam.control_plane.jobs.delegate import Limits
    from mam.control_plane.jobs.wait import EndedJob


def run(words: list[str]) -> int:
    table = {
        "delegate": _delegate,
        "list": _list,
        "show": _show,
        "wait": _wait,
        "answer": _answer,
        "cancel": _cancel,
        "retry": _retry,
        "archive": _archive,
    }
    others = f"agents' own, as their prompts give them: {', '.join(AGENT_SIDE)}"
    return choose(words, table, "jobs: one unit of delegated work each", others)


def _places(parser: Parser) -> None:
    add_root(parser)
    parser.add_argument(
        "--registry-dir", metavar="DIR", help="the jobs folder (else MAM_JOBS_DIR, else the control root's)"
    )


def _one(parser: Parser) -> None:
    _places(parser)
    parser.add_argument("job")


def _open(args: argparse.Namespace) -> Mam:
    return Mam.open(root=args.root, jobs=args.registry_dir)


def _delegate(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.jobs import delegate as delegation

    def build(parser: Parser) -> None:
        _places(parser)
        parser.add_argument("--to", required=True, metavar="AGENT")
        parser.add_argument("text", nargs="?", help="what is to be done, in a sentence")
        parser.add_argument("--brief", metavar="FILE", help="a file that says it instead, or - for standard input")
        parser.add_argument("--title", default="")
        parser.add_argument("--id", metavar="ID", help="a job id of your own")
        parser.add_argument(
            "--started-within", type=float, metavar="S", help="close the job if its agent does not begin"
        )
        parser.add_argument("--deliver-within", type=float, metavar="S")
        parser.add_argument("--limit", type=float, metavar="S", help="the most that one attempt may take")
        parser.add_argument("--heartbeat-misses", type=int, metavar="N")
        parser.add_argument("--retries", type=int, default=0, metavar="N", help="try again by itself, N times at most")
        parser.add_argument("--wait", action="store_true", help="wait for the end and print it")
        parser.add_argument("--timeout", type=float, metavar="S", help="how long --wait waits (default: the limit)")

    args = verb(words, 2, "mam job delegate --to writer 'Fix the typo' --wait", "hand work to an agent", build)
    check_one_task(args.text, args.brief)
    mam = _open(args)
    task = delegation.check_brief(*read_task(args.text, args.brief, mam.settings.cwd))
    job = delegation.delegate(mam, args.to, task, title=args.title, job_id=args.id, limits=_limits(mam, args))
    monitor_process.ensure_after(mam, f"{job.id} is kept and will be sent", say)
    if args.wait:
        return _await(mam, args, job.id, args.timeout if args.timeout is not None else job.limit_s + 60)
    emit(args, tables.job_data(job), f"{job.id}")
    return 0


def check_one_task(text: str | None, brief: str | None) -> None:
    """Raise Usage where what is to be done is given neither as a text nor as a file, or as both."""
    if (text is None) == (brief is None):
        what = "what is to be done is missing" if text is None else "a text and --brief both say what is to be done"
        raise Usage(what=what, hint="mam job delegate --to writer 'Fix the typo', or --brief FILE, or --brief -")


def read_task(text: str | None, brief: str | None, cwd: Path) -> tuple[bytes, str]:
    """The bytes of the text, or else of the file, and what to call their source. Raises BriefRefused for a file."""
    return read_brief(brief or "", cwd) if text is None else (os.fsencode(text), "the command line")


def read_brief(source: str, cwd: Path) -> tuple[bytes, str]:
    from mam.control_plane.jobs.delegate import BRIEF_LIMIT_BYTES, BriefRefused

    try:
        if source == "-":
            return sys.stdin.buffer.read(BRIEF_LIMIT_BYTES + 1), "standard input"
        with config.absolute(source, cwd).open("rb") as file:
            return file.read(BRIEF_LIMIT_BYTES + 1), source
    except OSError as error:
        raise BriefRefused(source=source, why=error.strerror or str(error)) from error


def _limits(mam: Mam, args: argparse.Namespace) -> "Limits":
    from mam.control_plane.jobs import delegate as delegation

    limits = delegation.default_limits(mam)
    wanted = {
        "started_within_s": args.started_within,
        "deliver_within_s": args.deliver_within,
        "limit_s": args.limit,
        "heartbeat_misses": args.heartbeat_misses,
    }
    for name, value in wanted.items():
        if value is not None:
            check_seconds(f"--{name.removesuffix('_s').replace('_', '-')}", value, getattr(limits, name))
    if not 0 <= args.retries <= 100:
        raise Usage(what=f"--retries {args.retries} is not in 0 to 100", hint="--retries 2")
    limits = limits._replace(retries=args.retries)
    return limits._replace(**{name: value for name, value in wanted.items() if value is not None})


def _list(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        _places(parser)
        parser.add_argument("--agent", metavar="NAME")
        parser.add_argument("--open", action="store_true", help="only jobs that have not ended")
        parser.add_argument("--limit", type=int, default=50)

    args = verb(words, 2, "mam job list --open", "jobs, newest first", build)
    with _open(args).registry.view() as view:
        found = view.jobs(session=args.agent, states=OPEN if args.open else (), limit=args.limit)
    text = shown_table(tables.JOB_HEADER, tables.job_rows(found, now_ms())) if found else "no jobs"
    emit(args, [tables.job_data(job) for job in found], text)
    return 0


def _show(words: list[str]) -> int:
    from dataclasses import asdict

    from mam.control_plane.explain import endings
    from mam.control_plane.jobs import jobs

    def build(parser: Parser) -> None:
        _one(parser)
        parser.add_argument("--report", action="store_true", help="only its report's text, whole")

    args = verb(words, 2, "mam job show job-0123456789ab --report", "one job in full", build)
    with _open(args).registry.view() as view:
        job = jobs.need(view, args.job)
        attempt = view.attempt(job.id, job.attempt)
        asked, questions = endings.question_lines(view, job), view.questions(job.id)
    data = {**tables.job_data(job), "current_attempt": asdict(attempt) if attempt else None}
    lines = [f"{key}: {clean(str(value))}" for key, value in data.items()] + asked
    if args.report:
        data["report_text"] = endings.report_text(job)
        lines = endings.report_lines(job, lines=WHOLE_REPORT) or [f"{job.id} has no report: it is {job.state}"]
    emit(args, {**data, "questions": [endings.question_data(each) for each in questions]}, "\n".join(lines))
    return 0


def _wait(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        _one(parser)
        parser.add_argument("--timeout", type=float, default=None, metavar="S", help="(default: until it ends)")

    args = verb(words, 2, "mam job wait job-0123456789ab", "wait for a job's end and print it", build)
    mam = _open(args)
    return _await(mam, args, args.job, 1e9 if args.timeout is None else args.timeout)


def _await(mam: Mam, args: argparse.Namespace, job_id: str, wait_s: float) -> int:
    """Wait for a job's end and print it, with its report or its next step."""
    from mam.control_plane.explain import endings
    from mam.control_plane.jobs import wait

    ended = wait.await_end(mam, job_id, wait_s=wait_s, say=say, columns=terminal.columns(sys.stderr))
    following = endings.next_step(mam, ended.job)
    shown = {"duration_s": ended.duration_s, "every_event_verified": ended.every_event_verified, "next": following}
    lines = _ended_lines(ended)
    lines += [f"next: {following}"] if following else []
    if report := endings.report_lines(ended.job) if ended.job.state == "reported" else []:
        lines += ["", *(f"  {line}" for line in report)]
    emit(args, {**tables.job_data(ended.job), **shown, "exit_code": ended.exit_code}, "\n".join(lines))
    return ended.exit_code


def _ended_lines(ended: "EndedJob") -> list[str]:
    job = ended.job
    lines = [f"{job.id}: {job.state}" + (" (late)" if job.late else "")]
    lines.append(f"result: {job.result or '-'}   verdict: {job.verdict or '-'}")
    if job.detail:
        lines.append(f"because: {clean(job.detail)}")
    if job.state == "reported":
        lines.append(f"report: {job.report_path}")
    lines.append(f"took: {tables.duration(job.created_at, job.ended_at or job.updated_at)}")
    verified = "every event verified" if ended.every_event_verified else f"NOT all verified: mam verify {job.id}"
    lines.append(f"signatures: {verified}")
    return lines


def _answer(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.jobs import questions

    def build(parser: Parser) -> None:
        _one(parser)
        parser.add_argument("text", help="the answer, or - to read it from standard input")
        parser.add_argument("--question", metavar="ID", help="this one (default: the oldest that is open)")

    args = verb(words, 2, "mam job answer job-0123456789ab sqlite", "answer what an agent asked", build)
    mam = _open(args)
    question = questions.ask(mam, args.job, args.question)
    text = sys.stdin.read() if args.text == "-" else args.text
    answered = questions.answer(mam, question.id, text, by="person")
    monitor_process.ensure_after(mam, "the answer is kept", say)
    emit(args, {"question": answered.question, "answer": answered.answer}, f"{answered.question}\n→ {answered.answer}")
    return 0


def _cancel(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.jobs import jobs

    def build(parser: Parser) -> None:
        _one(parser)
        parser.add_argument("--reason", default="")

    args = verb(
        words,
        2,
        "mam job cancel job-0123456789ab",
        "end a job; its agent is not interrupted",
        build,
    )
    mam = _open(args)
    job = jobs.cancel(mam, args.job, args.reason[:500])
    monitor_process.ensure_after(mam, "the job is cancelled all the same", say)
    note = f"{job.id}: {job.state}; {job.session} is not interrupted and may still work on it"
    emit(args, tables.job_data(job), note)
    return 0


def _retry(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.jobs import delegate as delegation
    from mam.control_plane.jobs import jobs

    def build(parser: Parser) -> None:
        _one(parser)
        parser.add_argument("--to", metavar="AGENT", help="another agent than before")

    args = verb(words, 2, "mam job retry job-0123456789ab", "make a new attempt of an ended job", build)
    mam = _open(args)
    with mam.registry.view() as view:
        jobs.check_own(view, args.job)
    job = delegation.retry(mam, args.job, args.to)
    monitor_process.ensure_after(mam, "the job is kept and will be sent", say)
    emit(args, tables.job_data(job), f"{job.id}: attempt {job.attempt}, {job.state}")
    return 0


def _archive(words: list[str]) -> int:
    from mam.control_plane.jobs import jobs

    def build(parser: Parser) -> None:
        _places(parser)
        parser.add_argument("job", nargs="?")
        add_older(parser, "jobs")

    describe = "put ended jobs away: events to files, keys destroyed; `job list` shows them no longer, `job show` does"
    args = verb(words, 2, "mam job archive --older 30d", describe, build)
    mam = _open(args)
    before = ended_before(mam, args.older)
    with mam.registry.view() as view:
        old = [job.id for job in view.jobs() if job.ended_at is not None and job.ended_at < before]
    chosen = [args.job] if args.job else old
    for number, job_id in enumerate(chosen, 1):
        jobs.archive(mam, job_id)
        if number % 100 == 0:
            say(f"{number} of {len(chosen)}")
    emit(args, {"archived": chosen}, f"archived {len(chosen)} jobs")
    return 0
