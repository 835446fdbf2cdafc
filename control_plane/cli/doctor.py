"""mam doctor [--fix] [--probe AGENT]"""

import argparse
import time

from mam.broker.errors import MamError
from mam.control_plane.cli.base import Parser, add_root, emit, say, verb
from mam.control_plane.control_root.context import Mam

PROBE_TASK = """This is a probe of your connection to MAM: change nothing.
Run the `started` command of your prompt, write one line that says "the probe arrived" to the report path,
then run the `report` command of your prompt with --result done."""


class ProbeFailed(MamError):
    code = "probe_failed"
    message = "{agent} did not take the turn: {state}"
    remedy_text = "`mam why {job}` says how far it came"


def run(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("--fix", action="store_true", help="repair what can safely be repaired")
        parser.add_argument("--probe", metavar="AGENT", help="give this agent a small job and wait for its report")
        parser.add_argument("--timeout", type=float, default=180, metavar="S", help="how long a probe may take")

    args = verb(words, 1, "mam doctor --fix", "what is broken, what is not yet, what is fine", build)
    mam = Mam.open(root=args.root)
    if args.probe:
        return _probe(mam, args)
    from mam.control_plane.maintenance import doctor

    findings = doctor.examine(mam)
    repaired: list[str] = []
    if args.fix:
        repaired = doctor.repair(mam, findings)
        findings = doctor.examine(mam)
    marks = {"fine": "ok ", "not yet": "-  ", "broken": "BAD"}
    lines = []
    for finding in findings:
        remedy = f"\n       → {finding.remedy}" if finding.remedy and finding.state != "fine" else ""
        lines.append(f"{marks[finding.state]}  {finding.what}: {finding.detail}{remedy}")
    lines += [f"repaired: {what}" for what in repaired]
    broken = any(finding.state == "broken" for finding in findings)
    shown = [finding._replace(repair=None)._asdict() for finding in findings]
    for row in shown:
        row.pop("repair")
    emit(args, {"ok": not broken, "repaired": repaired, "findings": shown}, "\n".join(lines))
    return 1 if broken else 0


def _probe(mam: Mam, args: argparse.Namespace) -> int:
    """Prove that an agent takes a turn, from inside its own sandbox: its verbs must reach the registry."""
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.jobs import delegate as delegation
    from mam.control_plane.jobs import jobs

    monitor_process.ensure(mam, say=say)
    job = delegation.delegate(mam, args.probe, PROBE_TASK, title="probe by mam doctor")
    say(f"{job.id}: waiting for {args.probe}")
    deadline = time.monotonic() + args.timeout
    watch = mam.registry.watch()
    try:
        while True:
            job = jobs.need(watch, job.id)
            if job.state == "reported":
                emit(args, {"ok": True, "job": job.id}, f"ok   {args.probe} took a turn and reported ({job.id})")
                return 0
            if jobs.exit_code(job) is not None or time.monotonic() > deadline:
                break
            time.sleep(0.1)
    finally:
        watch.connection.close()
    if jobs.exit_code(job) is None:
        jobs.cancel(mam, job.id, "the probe took too long")
    raise ProbeFailed(agent=args.probe, state=job.detail or job.state, job=job.id)
