"""mam bench cli|events|deliver|registry|look|loop|all"""

from collections.abc import Callable

from mam.control_plane.benchmarks import delivery, events, look, loop, suite, verbs, writers
from mam.control_plane.cli.base import Parser, emit, say, verb

BENCHMARKS: dict[str, Callable[[], list[suite.Figure]]] = {
    "cli": verbs.verbs,
    "events": events.events,
    "deliver": delivery.delivery,
    "registry": writers.writers,
    "look": look.look,
    "loop": loop.loop,
}


def run(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        parser.add_argument("what", nargs="?", default="all", choices=[*BENCHMARKS, "all"])

    args = verb(words, 1, "mam bench cli", "measure this installation, as ratios, against its budgets", build)
    chosen = list(BENCHMARKS) if args.what == "all" else [args.what]
    figures: list[suite.Figure] = []
    for name in chosen:
        say(f"measuring {name}")
        figures += BENCHMARKS[name]()
    lines = ["| what | measured | budget | met |", "|---|---|---|---|"]
    lines += [f"| {f.what} | {f.value} | {f.budget} | {'yes' if f.met else 'NO'} |" for f in figures]
    emit(args, [figure._asdict() for figure in figures], "\n".join(lines))
    return 0 if all(figure.met for figure in figures) else 1
