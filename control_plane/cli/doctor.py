"""mam doctor [--fix] [--probe AGENT]"""

import argparse

from mam.control_plane.cli.base import Parser, add_root, emit, say, verb
from mam.control_plane.control_root.context import Mam


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
    from mam.control_plane.maintenance import probe

    job = probe.probe(mam, args.probe, wait_s=args.timeout, say=say)
    emit(args, {"ok": True, "job": job.id}, f"ok   {args.probe} took a turn and reported ({job.id})")
    return 0
