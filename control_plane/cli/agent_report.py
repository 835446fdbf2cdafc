"""`mam job report`: an attempt's end, said by its agent. Standard library only; no network, no database."""

import argparse
import hashlib
import itertools
import json
import re
from pathlib import Path

from mam.broker.errors import FileRefused, MamError, Usage
from mam.broker.host import atomic_files, fault_points, locks
from mam.broker.host.atomic_files import Durability
from mam.control_plane.cli import agent_record
from mam.control_plane.cli.agent_record import Record
from mam.control_plane.cli.base import Parser, verb
from mam.control_plane.config import settings as config
from mam.control_plane.jobs import reports
from mam.control_plane.jobs.reports import REPORT_LIMIT_BYTES
from mam.wrappers.git import dotgit

_SHAS = ("base_sha", "head_sha")
_WORDS = ("result", "verdict", "report_sha256")


class ReportedOtherwise(MamError):
    """The attempt was reported before with other words. The first report counts, and nothing was changed."""

    attempt: int
    job: str
    result: str
    kept: str

    code = "reported_otherwise"
    message = "attempt {attempt} of {job} has been reported, as {result}, with another text or verdict: that one counts"
    remedy_text = "leave it, or have the job tried anew: `mam job retry {job}`{kept}"


def run(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        agent_record.common(parser)
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
    record = agent_record.find(args)
    path = config.absolute(args.file, config.load().cwd) if args.file else record.report
    content = _read(path)
    if record.review is not None:
        _check_verdict(args, path, content)
        args.base_sha, args.head_sha = record.review["base_sha"], args.head_sha or _seen(record.review)
    data: dict[str, object] = {
        "result": args.result,
        "verdict": args.verdict,
        "report_sha256": hashlib.sha256(content).hexdigest(),
        "report_bytes": len(content),
        "summary": args.summary[:4000],
    }
    data |= {name: sha for name in _SHAS if (sha := getattr(args, name))}
    return agent_record.said(args, f"report {args.result}", _tell(record, data, content))


def _tell(record: Record, data: dict[str, object], content: bytes) -> str:
    """
    Keep the report and say so. Said again it is the same report; with other words it is refused, and nothing changes:
    the first one may have been acted upon.

    It is noted before it is said: who dies in between may have said it, so the next call says it again.
    Raises ReportedOtherwise, FileRefused, NoSpool.
    """
    try:
        with locks.hold(record.folder / ".report.lock"):
            before = atomic_files.read(record.reported)
            if before and any(before.get(word) != data[word] for word in _WORDS):
                kept = _put_back(record)
                if not before.pop("told", False):
                    _say(record, before)
                raise ReportedOtherwise(
                    job=record.job, attempt=record.attempt, result=str(before.get("result")), kept=kept
                )
            if not record.over:
                _keep(record, content)  # the place belongs to the attempt of now
            _write(record.reported.with_suffix(".md"), content)
            _write(record.reported, json.dumps(data).encode())
            return _say(record, data)
    except OSError as error:
        why = error.strerror or str(error)
        raise FileRefused(path=error.filename or str(record.folder), why=why, hint="see `mam doctor`") from error


def _say(record: Record, data: dict[str, object]) -> str:
    event = record.tell("report", data)
    _write(record.reported, json.dumps({**data, "told": True}).encode())
    return event


def _put_back(record: Record) -> str:
    """The report that was signed at its place again, where another was written over it; that is kept beside it."""
    signed = record.reported.with_suffix(".md").read_bytes()
    if record.over or (record.report.is_file() and record.report.read_bytes() == signed):
        return ""
    aside = _free(record.report.with_name(f"report-other.attempt-{record.attempt}.md"))
    if record.report.is_file():
        fault_points.point("report.other")
        record.report.replace(aside)
    _write(record.report, signed)
    return f"; what stood in its place is kept at {aside}" if aside.is_file() else ""


def _free(path: Path) -> Path:
    numbered = (path.with_suffix(f".{n}.md") for n in itertools.count(2))
    return path if not path.exists() else next(each for each in numbered if not each.exists())


def _check_sha(name: str, sha: str | None) -> None:
    """Refuse a shortened name here, where the agent sees it, and not later at the registry. Raises Usage."""
    if sha and not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", sha):
        flag = "--" + name.replace("_", "-")
        raise Usage(what=f"{flag} {sha!r} is not a whole commit name", hint=f"{flag} $(git rev-parse HEAD)")


def _read(path: Path) -> bytes:
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
    found = reports.said(content.decode("utf-8", "replace"))
    wanted = reports.LINES[args.verdict]
    if found != [args.verdict]:
        why = f"it says {' and '.join(reports.LINES[each] for each in found) or 'no verdict'}, not {wanted} once"
        hint = f"give it exactly one line that reads {wanted}, and run this again"
        raise FileRefused(path=str(path), why=why, hint=hint)


def _seen(review: dict[str, str]) -> str:
    """The commit that is looked at in the review's tree; an impossible one where it holds none. Raises Usage."""
    if not review["tree"]:
        what = "a review elsewhere names its commit itself"
        raise Usage(what=what, hint=f"add --head-sha {review['head_sha']}, if that is what you reviewed")
    seen = dotgit.commit_of(Path(review["tree"])) or "0" * 40
    return review["head_sha"] if seen == review["tip"] else seen


def _keep(record: Record, content: bytes) -> None:
    """Put exactly the signed bytes at the report's place (where they mostly are already)."""
    if not record.report.is_file() or record.report.read_bytes() != content:
        record.report.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(record.report, content)


def _write(target: Path, content: bytes) -> None:
    # The event that names these bytes by their hash is synced: they must not be lost where it is not.
    atomic_files.write(target, content, Durability.FILE, point="report.rename")
