"""
What an agent says: started, heartbeat, progress, ask, report. Standard library only; no network, no database.

Each writes one signed file into the session's spool and wakes the runner. When
the verb returns, what it said is on disk and will be recorded.
"""

import argparse
import hashlib
import json
import os
import re
import secrets
import shlex
import sys
import time
from pathlib import Path

from mam.broker import keys, notes, proof, signing, spool, topics
from mam.broker.bodies import Producer
from mam.broker.errors import FileRefused, MamError, Usage
from mam.control_plane import settings as config
from mam.control_plane import verdicts
from mam.control_plane.cli.base import Parser, emit, verb
from mam.wrappers import gitfiles

REPORT_LIMIT_BYTES = 5 * 1024 * 1024
TIMER_LIMIT_S = 24 * 3600.0
_SHAS = ("base_sha", "head_sha")


class NoRecord(MamError):
    code = "job_record_missing"
    exit_code = 2
    message = "there is no job {job} in {registry_dir}"
    remedy_text = "use the command as the prompt spells it out, with its absolute --registry-dir"


class NotNamed(MamError):
    code = "job_not_named"
    exit_code = 2
    message = "--job and --attempt are missing"
    remedy_text = "{hint}"


class NoSpool(MamError):
    code = "spool_unwritable"
    message = "{spool} cannot be written: {why}"
    remedy_text = "a sandboxed agent needs write access to it: `mam doctor --probe NAME` tells what is missing"


class NoAnswer(MamError):
    code = "no_answer"
    exit_code = 4
    message = "nobody answered within {waited_s:g} s"
    remedy_text = "decide yourself and say so in the report, or ask again; a late answer is typed into the pane"


class JobOver(MamError):
    code = "job_over"
    exit_code = 4
    message = "nobody will answer: {job} is {state}"
    remedy_text = "end what you do for it; a report that it is still owed is recorded all the same"


class Record:
    """job.json of one job, and the settings around it."""

    def __init__(self, registry_dir: Path, job: str, attempt: int) -> None:
        self.registry_dir, self.job, self.attempt = registry_dir, job, attempt
        self.folder = registry_dir / job
        content = notes.read(self.folder / "job.json")
        places = [content.get(name) for name in ("key_file", "spool", "wake", "monitor_wake", "report")]
        if not all(isinstance(place, str) and place for place in places):
            raise NoRecord(job=job, registry_dir=str(registry_dir))
        key_file, self.spool, *wakes, self.report = (Path(str(place)) for place in places)
        self.key = keys.load(key_file)
        self.wakes = tuple(wakes)
        now = content.get("attempt")
        self.over = isinstance(now, int) and now > attempt  # the job was tried again
        review = content.get("review")
        self.review = {str(name): str(value) for name, value in review.items()} if isinstance(review, dict) else None

    def tell(self, kind: str, data: dict[str, object], *, beat: bool = False) -> str:
        """Sign and keep one event; return its id. Raises NoSpool."""
        body = Producer("verb").job_event(self.job, self.attempt, kind, data)
        topic = topics.job(self.job)
        wire = signing.seal(body, token=self.key, use="event-mac", scope=self.job, topic=topic)
        try:
            spool.write(self.spool, str(body["id"]), topic, wire, beat=beat)
        except OSError as error:
            raise NoSpool(spool=str(self.spool), why=error.strerror or str(error)) from error
        # The runner carries it; where none reads, the monitor sweeps the spool itself.
        if not spool.wake(self.wakes[0]):
            spool.wake(self.wakes[1])
        return str(body["id"])


def run(words: list[str]) -> int:
    verbs = {"started": _started, "heartbeat": _heartbeat, "progress": _progress, "ask": _ask, "report": _report}
    return verbs[words[1]](words)


def _common(parser: Parser) -> None:
    parser.add_argument("--registry-dir", metavar="DIR", help="the jobs folder, absolute, as in the prompt")
    parser.add_argument("--job", metavar="ID")
    parser.add_argument("--attempt", type=int, metavar="N")


def _record(args: object) -> Record:
    values = vars(args)
    settings = config.load()
    if values["job"] is None or values["attempt"] is None:
        raise NotNamed(hint=_full_command(settings))
    job = topics.check_job_id(values["job"])
    if values["attempt"] < 1:
        raise Usage(what="--attempt counts from 1", hint="use the command as the prompt spells it out")
    return Record(_registry_dir(settings, values["registry_dir"]), job, values["attempt"])


def _registry_dir(settings: config.Settings, flag: str | None) -> Path:
    """Flag, then MAM_JOBS_DIR, then the control root's own."""
    if flag:
        return config.absolute(flag, settings.cwd)
    return config.layout(settings).jobs


def _full_command(settings: config.Settings) -> str:
    """The same command with everything it needs, for the job that is open in this pane."""
    spool_dir = settings.text("MAM_SPOOL")
    current = notes.read(Path(spool_dir).parent / "open.json")
    if not {"registry_dir", "job", "attempt"} <= current.keys():
        return "no job is open in this pane: take --registry-dir, --job and --attempt from the prompt"
    flags = ["--registry-dir", current["registry_dir"], "--job", current["job"], "--attempt", current["attempt"]]
    return shlex.join(["mam", *sys.argv[1:3], *map(str, flags)])


def _started(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        _common(parser)
        parser.add_argument(
            "--heartbeat", type=float, metavar="S", help="send heartbeats every S seconds by a timer of its own"
        )

    example = "mam job started --registry-dir /repo/.mam/jobs --job job-0123456789ab --attempt 1"
    args = verb(words, 2, example, "say that work on a job has begun", build)
    record = _record(args)
    data: dict[str, object] = {"cwd": str(Path.cwd())[:4000]}
    if args.heartbeat:
        if not 1 <= args.heartbeat <= 3600:
            raise Usage(what="--heartbeat takes 1 to 3600 seconds", hint="--heartbeat 10")
        data["heartbeat_s"] = round(args.heartbeat)
    event = record.tell("started", data)
    if args.heartbeat:
        _start_timer(record, args.heartbeat)
    return _said(args, "started", event)


def _start_timer(record: Record, every_s: float) -> None:
    """Heartbeats from a process of its own, for runners that cannot send them; ends with the report or its runner."""
    from mam.control_plane.wiring import mam_command
    from mam.wrappers import process

    argv = [mam_command(), "job", "heartbeat", "--every", str(every_s), "--registry-dir", str(record.registry_dir)]
    argv += ["--job", record.job, "--attempt", str(record.attempt)]
    process.spawn(argv, record.folder / "heartbeat.log", record.folder)


def _heartbeat(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        _common(parser)
        parser.add_argument("--every", type=float, metavar="S", help="go on every S seconds until the job is reported")

    args = verb(
        words, 2, "mam job heartbeat --registry-dir DIR --job ID --attempt 1", "say that the process lives", build
    )
    record = _record(args)
    event = record.tell("heartbeat", {}, beat=True)
    ends_at = time.monotonic() + TIMER_LIMIT_S
    while args.every and time.monotonic() < ends_at and _goes_on(record):
        time.sleep(args.every)
        record.tell("heartbeat", {}, beat=True)
    return _said(args, "heartbeat", event)


def _goes_on(record: Record) -> bool:
    if _reported_mark(record).exists() or not record.spool.is_dir():
        return False
    runner = notes.read(record.spool.parent / "runner.json")
    pid = runner.get("pid")
    if not isinstance(pid, int):
        return True  # no runner of ours here: the report or the limit ends the timer
    return proof.alive(proof.ProcessId(pid, str(runner.get("start")), str(runner.get("boot"))))


def _reported_mark(record: Record) -> Path:
    return record.folder / f".reported-{record.attempt}"


def _progress(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        _common(parser)
        parser.add_argument("--note", required=True, metavar="TEXT", help="what you are doing")
        parser.add_argument("--percent", type=int, metavar="N", choices=range(101))

    example = "mam job progress --registry-dir DIR --job ID --attempt 1 --note 'running the tests'"
    args = verb(words, 2, example, "say what is being done", build)
    data: dict[str, object] = {"note": args.note[:4000]}
    if args.percent is not None:
        data["percent"] = args.percent
    return _said(args, "progress", _record(args).tell("progress", data))


def _ask(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        _common(parser)
        parser.add_argument("question")
        parser.add_argument("--choices", default="", metavar="A,B", help="the answers that are possible")
        parser.add_argument("--timeout", type=int, metavar="S", help="wait at most S seconds")
        parser.add_argument("--default", metavar="TEXT", help="the answer when nobody gave one in time")
        parser.add_argument("--no-wait", action="store_true", help="go on; the answer is typed into the pane")

    example = "mam job ask --registry-dir DIR --job ID --attempt 1 'Which database?' --choices sqlite,postgres"
    args = verb(words, 2, example, "ask whoever leads the work, and print the answer", build)
    record = _record(args)
    choices = [each.strip() for each in args.choices.split(",") if each.strip()]
    if args.timeout is not None and not 1 <= args.timeout <= 86_400:
        raise Usage(what="--timeout takes 1 to 86400 seconds", hint="--timeout 600")
    if args.default is not None and (args.timeout is None or (choices and args.default not in choices)):
        raise Usage(what="--default needs --timeout, and is one of --choices", hint="--timeout 600 --default sqlite")
    if not args.question.strip() or len(choices) > 20 or any(len(choice) > 200 for choice in choices):
        what = "a question has some text, and at most 20 choices of at most 200 characters"
        raise Usage(what=what, hint="put what is longer into a file, and name it in the question")
    question_id = secrets.token_hex(6)
    place = record.folder / "answers"
    place.mkdir(mode=0o700, exist_ok=True)
    if not args.no_wait:
        (place / f"{question_id}.wait").write_text(json.dumps(proof.me()._asdict()), "utf-8")
    data: dict[str, object] = {"question_id": question_id, "question": args.question[:4000], "choices": choices}
    data |= {"timeout_s": args.timeout, "fallback": args.default}
    event = record.tell("asked", data)
    return _said(args, "asked", event) if args.no_wait else _await_answer(args, place / f"{question_id}.json")


def _await_answer(args: argparse.Namespace, path: Path) -> int:
    """
    The answer, as soon as it lies there.

    Raises JobOver where none can come any more, NoAnswer when the time is over and nothing was agreed for that.
    """
    deadline = time.monotonic() + (args.timeout or TIMER_LIMIT_S)
    waits = True
    while waits:
        if time.monotonic() >= deadline:
            path.with_suffix(".wait").unlink(missing_ok=True)  # what comes from now on is typed into the pane
            waits = False
        if (said := notes.read(path)).get("answer"):
            emit(args, said, str(said["answer"]))
            return 0
        if said.get("over"):
            raise JobOver(job=args.job, state=said["over"])
        time.sleep(0.2 if waits else 0)
    if args.default is None:
        raise NoAnswer(waited_s=float(args.timeout or TIMER_LIMIT_S))
    emit(args, {"answer": args.default, "by": "timeout"}, args.default)
    return 0


def _report(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        _common(parser)
        parser.add_argument("--result", required=True, choices=("done", "failed"))
        parser.add_argument("--verdict", choices=("pass", "not_pass"), help="for reviewers")
        parser.add_argument("--file", metavar="PATH", help="the report; default: the path that the prompt names")
        parser.add_argument("--summary", default="", metavar="TEXT")
        parser.add_argument("--base-sha", metavar="SHA")
        parser.add_argument("--head-sha", metavar="SHA", help="the commit that was reviewed")

    example = "mam job report --registry-dir DIR --job ID --attempt 1 --result done"
    args = verb(words, 2, example, "end a job: result, verdict, and the report's hash", build)
    for name in _SHAS:
        _check_sha(name, getattr(args, name))
    record = _record(args)
    path = config.absolute(args.file, Path.cwd()) if args.file else record.report
    content = _read_report(path)
    if record.review is not None:
        _check_verdict(args, path, content)
        args.base_sha, args.head_sha = record.review["base_sha"], args.head_sha or _seen(record.review)
    if not record.over:
        _keep_report(record, content)  # the place belongs to the attempt of now
    data: dict[str, object] = {
        "result": args.result,
        "verdict": args.verdict,
        "report_sha256": hashlib.sha256(content).hexdigest(),
        "report_bytes": len(content),
        "summary": args.summary[:4000],
    }
    data |= {name: sha for name in _SHAS if (sha := getattr(args, name))}
    event = record.tell("report", data)
    _reported_mark(record).touch()
    return _said(args, f"report {args.result}", event)


def _check_sha(name: str, sha: str | None) -> None:
    """Now: what is no whole name would be refused where nobody tells the agent. Raises Usage."""
    if sha and not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", sha):
        flag = "--" + name.replace("_", "-")
        raise Usage(what=f"{flag} {sha!r} is no whole commit name", hint=f"{flag} $(git rev-parse HEAD)")


def _read_report(path: Path) -> bytes:
    hint = "write the report to the path that the prompt names, then run this again"
    try:
        with path.open("rb") as file:
            content = file.read(REPORT_LIMIT_BYTES + 1)
    except OSError as error:
        raise FileRefused(path=str(path), why=error.strerror or str(error), hint=hint) from error
    if not content.strip():
        raise FileRefused(path=str(path), why="the report is empty", hint=hint)
    if len(content) > REPORT_LIMIT_BYTES:
        raise FileRefused(path=str(path), why="it is larger than 5 MiB", hint="shorten it, and name large files in it")
    return content


def _check_verdict(args: argparse.Namespace, path: Path, content: bytes) -> None:
    """A review ends with one verdict, said in the report's own words and with --verdict. Raises FileRefused, Usage."""
    if args.result == "failed":
        if args.verdict is None:
            return  # no review could be made
        hint = f"--result done --verdict {args.verdict}; --result failed is for a review that could not be made"
        raise Usage(what="a review that failed has no verdict", hint=hint)
    if args.verdict is None:
        raise Usage(what="a review needs --verdict", hint="add --verdict pass or --verdict not_pass")
    found = verdicts.said(content.decode("utf-8", "replace"))
    wanted = verdicts.LINES[args.verdict]
    if found != [args.verdict]:
        why = f"it says {' and '.join(verdicts.LINES[each] for each in found) or 'no verdict'}, not {wanted} once"
        hint = f"give it exactly one line that reads {wanted}, and run this again"
        raise FileRefused(path=str(path), why=why, hint=hint)


def _seen(review: dict[str, str]) -> str:
    """The commit that is looked at in the review's tree; an impossible one where it holds none. Raises Usage."""
    if not review["tree"]:
        what = "a review elsewhere names its commit itself"
        raise Usage(what=what, hint=f"add --head-sha {review['head_sha']}, if that is what you reviewed")
    seen = gitfiles.commit_of(Path(review["tree"])) or "0" * 40
    return review["head_sha"] if seen == review["tip"] else seen


def _keep_report(record: Record, content: bytes) -> None:
    """Put exactly the signed bytes at the report's place (where they mostly are already)."""
    try:
        if record.report.is_file() and record.report.read_bytes() == content:
            return
        record.report.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = record.report.with_name(f".report.{os.getpid()}")
        partial.write_bytes(content)
        partial.replace(record.report)
    except OSError as error:
        raise FileRefused(path=str(record.report), why=error.strerror, hint="see `mam doctor`") from error


def _said(args: object, what: str, event: str) -> int:
    emit(args, {"said": what, "event": event}, f"{what}: kept as {event}")  # type: ignore[arg-type]
    return 0
