"""mam bench cli|events|deliver|registry|look|loop|all"""

from collections.abc import Callable

from mam.control_plane.benchmarks import loop as loop_benchmark
from mam.control_plane.benchmarks import monitor as monitor_benchmark
from mam.control_plane.benchmarks import suite
from mam.control_plane.cli.base import Parser, emit, say, verb


def run(words: list[str]) -> int:
    benches: dict[str, Callable[[], list[suite.Figure]]] = {
        "cli": suite.cli,
        "events": monitor_benchmark.events,
        "deliver": suite.deliver,
        "registry": suite.registry,
        "look": monitor_benchmark.look,
        "loop": loop_benchmark.loop,
    }

    def build(parser: Parser) -> None:
        parser.add_argument("what", nargs="?", default="all", choices=[*benches, "all"])

    args = verb(words, 1, "mam bench cli", "measure this installation, as ratios, against its budgets", build)
    chosen = list(benches) if args.what == "all" else [args.what]
    figures: list[suite.Figure] = []
    for name in chosen:
        say(f"measuring {name}")
        figures += benches[name]()
    lines = ["| what | measured | budget | met |", "|---|---|---|---|"]
    lines += [f"| {f.what} | {f.value} | {f.budget} | {'yes' if f.met else 'NO'} |" for f in figures]
    emit(args, [figure._asdict() for figure in figures], "\n".join(lines))
    return 0 if all(figure.met for figure in figures) else 1
