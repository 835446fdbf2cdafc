"""mam stand-in"""

import shlex
import signal
import threading
from pathlib import Path

from mam.agents.stand_in.server import ModelStandIn
from mam.agents.stand_in.setups import ModelSetup, setups
from mam.broker.errors import Usage
from mam.control_plane.cli.base import Parser, emit, verb


def run(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        parser.add_argument("--port", type=int, default=0, metavar="N", help="where it listens (default: a free one)")
        parser.add_argument("--log", metavar="FILE", help="append a JSON line for each request")

    args = verb(words, 1, "mam stand-in --port 8080", "a model for agent CLIs on this machine, to try a turn", build)
    if not 0 <= args.port < 65536:
        raise Usage(what=f"--port {args.port} is not a port", hint="--port 8080, or leave it out")
    over = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: over.set())
    with ModelStandIn(args.port, Path(args.log) if args.log else None) as model:
        found = setups(model.url)
        data = {"url": model.url, "agents": {kind: setup._asdict() for kind, setup in found.items()}}
        emit(args, data, "\n\n".join([_HEAD.format(url=model.url), *(_lines(*each) for each in found.items())]))
        over.wait()
    return 0


_HEAD = """\
The model stand-in listens at {url} until Ctrl-C or TERM.
Give one of these to the shell in which you create an agent. What a job's agent does then is what its brief says in
lines of its own: RUN: COMMAND, REPORT: TEXT, VERDICT: pass."""


def _lines(kind: str, setup: ModelSetup) -> str:
    """What a person types for one agent kind."""
    lines = [f"# {kind}"]
    if setup.file:
        lines += [f"# ~/{setup.file} holds:", *(f"#   {line}" for line in setup.content.splitlines())]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in setup.env.items()]
    words = ["mam", "agent", "create", "writer", "--agent", kind, *(["--", *setup.args] if setup.args else [])]
    return "\n".join([*lines, shlex.join(words)])
