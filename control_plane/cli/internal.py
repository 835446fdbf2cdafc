"""Verbs that MAM calls itself: the runner in a pane, the host of a headless pane, the scripted agent."""

from collections.abc import Callable
from pathlib import Path

from mam.broker.errors import Usage
from mam.control_plane import settings as config
from mam.control_plane.cli.base import Parser, verb


def run(words: list[str]) -> int:
    return {"runner": _runner, "pane-host": _pane_host, "play": _play}[words[0]](words)


def _argument(name: str) -> Callable[[Parser], None]:
    def build(parser: Parser) -> None:
        parser.add_argument(name)

    return build


def _runner(words: list[str]) -> int:
    from mam.wrappers import runner

    args = verb(words, 1, "", "serve the pane that this runs in", _argument("spec"))
    settings = config.load()
    pane = settings.text("MAM_PANE") or settings.text("TMUX_PANE")
    if not pane:
        raise Usage(what="this is no pane", hint="runners are started by `mam agent create`")
    return runner.main(Path(args.spec), pane, settings.environ)


def _pane_host(words: list[str]) -> int:
    from mam.wrappers import pane_host

    args = verb(words, 1, "", "hold the terminal of a headless pane", _argument("folder"))
    return pane_host.main(Path(args.folder), config.load().environ)


def _play(words: list[str]) -> int:
    from mam.wrappers import player

    def build(parser: Parser) -> None:
        parser.add_argument("--name", required=True)
        parser.add_argument("--memory", required=True)
        parser.add_argument("--script")

    args = verb(words, 1, "", "be a scripted agent", build)
    return player.main(args.name, Path(args.memory), Path(args.script) if args.script else None)
