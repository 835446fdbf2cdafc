"""mam events export · replay, mam chaos"""

import sys
from pathlib import Path

from mam.broker.errors import Usage
from mam.control_plane.cli.base import Parser, add_root, choose, emit, say, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.config import settings as config
from mam.control_plane.control_root.context import Mam


def run(words: list[str]) -> int:
    if words[0] == "chaos":
        return _chaos(words)
    return choose(words, {"export": _export, "replay": _replay}, "recorded events: written to a file, and played again")


def _export(words: list[str]) -> int:
    from mam.control_plane.jobs.jobs import need
    from mam.control_plane.simulation import replay

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("jobs", nargs="*", help="job ids (default: all that are not archived)")
        parser.add_argument("--output", metavar="FILE", help="(default: standard output)")

    args = verb(words, 2, "mam events export --output events.jsonl", "write events with their exact bytes", build)
    mam = Mam.open(root=args.root)
    lines = 0
    with mam.registry.view() as view:
        chosen = [need(view, name).id for name in args.jobs] or [job.id for job in reversed(view.jobs())]
        target = config.absolute(args.output, mam.settings.cwd) if args.output else None
        out = target.open("w", encoding="utf-8") if target else sys.stdout
        try:
            for line in replay.export(view, chosen):
                out.write(f"{line}\n")
                lines += 1
        finally:
            if target:
                out.close()
    if target:
        emit(args, {"written": str(target), "lines": lines}, f"{target}: {lines} lines")
    return 0


def _replay(words: list[str]) -> int:
    from mam.control_plane.simulation import replay

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("file")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--times", type=int, default=10, metavar="N", help="play N orders, from the seed on")
        parser.add_argument("--duplicate", type=float, default=0.3, metavar="P")
        parser.add_argument("--delay", type=float, default=0.3, metavar="P", help="come after everything else")

    describe = "play recorded events in bad orders, into a registry of their own"
    args = verb(words, 2, "mam events replay events.jsonl --seed 7", describe, build)
    if not (0 <= args.duplicate <= 0.9 and 0 <= args.delay <= 1 and 1 <= args.times <= 10_000):
        raise Usage(what="a chance or --times is out of its range", hint="--duplicate 0.3 --delay 0.3 --times 10")
    mam = Mam.open(root=args.root)
    tales = replay.read(Path(config.absolute(args.file, mam.settings.cwd)))
    bad: list[list[object]] = []
    delivered = 0
    for seed in range(args.seed, args.seed + args.times):
        for played in replay.play(mam.layout, tales, seed=seed, duplicate=args.duplicate, delay=args.delay):
            delivered += played.delivered
            if not played.same:
                bad.append([seed, played.job, played.recorded, played.replayed])
    data = {"jobs": len(tales), "orders": args.times, "delivered": delivered, "different": bad}
    told = f"{len(tales)} jobs, {args.times} orders, {delivered} deliveries: "
    text = told + (shown_table(("SEED", "JOB", "RECORDED", "REPLAYED"), bad) if bad else "every job ended as recorded")
    emit(args, data, text)
    return 1 if bad else 0


def _chaos(words: list[str]) -> int:
    from mam.control_plane.simulation import chaos, replay

    def build(parser: Parser) -> None:
        parser.add_argument("--events", metavar="FILE", help="agents play the reported jobs of an export, once each")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--agents", type=int, default=3)
        parser.add_argument("--jobs", type=int, default=12, help="in all, without --events")
        parser.add_argument("--loss", type=float, default=0.2, metavar="P")
        parser.add_argument("--duplicate", type=float, default=0.2, metavar="P")
        parser.add_argument("--reorder", type=float, default=0.2, metavar="P")
        parser.add_argument("--timeout", type=float, default=300, metavar="S")

    describe = "run scripted agents over a bus that loses, doubles and reorders, in a temporary control root"
    args = verb(words, 1, "mam chaos --seed 7", describe, build)
    weather = f"seed={args.seed},loss={args.loss},duplicate={args.duplicate},reorder={args.reorder}"
    if not (1 <= args.agents <= 50 and 1 <= args.jobs <= 10_000):
        raise Usage(what="--agents takes 1 to 50, --jobs 1 to 10000", hint="--agents 3 --jobs 12")
    plays = chaos.stock(args.jobs)
    if args.events:
        plays = chaos.recorded(replay.read(Path(config.absolute(args.events, config.load().cwd))))
        if not plays:
            raise Usage(what=f"no job in {args.events} was reported", hint="`mam events export JOB …` of one that was")
    result = chaos.run(weather, plays, agents=args.agents, wait_s=args.timeout, say=say)
    told = f"{result.done} of {len(plays)} jobs ended as their script says, in {result.took_s:.1f} s"
    lines = [f"seed {args.seed}: {told}"]
    lines += [f"  {line}" for line in result.wrong]
    emit(args, result._asdict(), "\n".join(lines))
    return 1 if result.wrong else 0
