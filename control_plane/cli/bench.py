"""mam bench cli|events|deliver|registry|look|loop|all"""

from collections.abc import Callable

from mam.control_plane.benchmarks import loop as bench_loop
from mam.control_plane.benchmarks import monitor as bench_monitor
from mam.control_plane.benchmarks import suite as bench
from mam.control_plane.cli.base import Parser, emit, say, verb


def run(words: list[str]) -> int:
    benches: dict[str, Callable[[], list[bench.Figure]]] = {
        "cli": bench.cli,
        "events": bench_monitor.events,
        "deliver": bench.deliver,
        "registry": bench.registry,
        "look": bench_monitor.look,
        "loop": bench_loop.loop,
    }

    def build(parser: Parser) -> None:
        parser.add_argument("what", nargs="?", default="all", choices=[*benches, "all"])

    args = verb(words, 1, "mam bench cli", "measure this installation, as ratios, against its budgets", build)
    chosen = list(benches) if args.what == "all" else [args.what]
    figures: list[bench.Figure] = []
    for name in chosen:
        say(f"measuring {name}")
        figures += benches[name]()
    lines = ["| what | measured | budget | met |", "|---|---|---|---|"]
    lines += [f"| {f.what} | {f.value} | {f.budget} | {'yes' if f.met else 'NO'} |" for f in figures]
    emit(args, [figure._asdict() for figure in figures], "\n".join(lines))
    return 0 if all(figure.met for figure in figures) else 1
