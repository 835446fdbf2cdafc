"""mam agent check · sample: trying an agent adapter without its agent, and recording what its agent shows"""

import tempfile
from pathlib import Path

from mam.agents import catalog, contract, samples
from mam.agents.protocol import Screen
from mam.broker.errors import Usage
from mam.control_plane.cli.base import Parser, add_root, emit, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.config import settings as config
from mam.control_plane.control_root.context import Mam
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions.lookup import need_session

HEADER = ("CHECK", "RESULT", "WHY")


def check(words: list[str]) -> int:
    """Exit code 0 where every check passed or had nothing to look at, else 1."""

    def build(parser: Parser) -> None:
        parser.add_argument("kind", metavar="KIND", help="claude, codex, grok, …, or the kind of a package")
        parser.add_argument("--samples", metavar="DIR", help="recorded screens (KIND-STATE-….txt) to read as well")

    args = verb(words, 2, "mam agent check grok", "try an agent adapter in every way that MAM uses one", build)
    adapter = catalog.find(args.kind)
    settings = config.load()
    found = samples.load_all(config.absolute(args.samples, settings.cwd), args.kind) if args.samples else []
    with tempfile.TemporaryDirectory(prefix="mam-check-") as folder:
        results = contract.run(adapter, Path(folder), found)
    failed = [result for result in results if result.outcome == "failed"]
    text = shown_table(HEADER, [(result.check, result.outcome, result.why) for result in results])
    said = f"{args.kind}: {len(failed)} of {len(results)} checks failed" if failed else f"{args.kind}: fit"
    data = {"kind": args.kind, "fit": not failed, "samples": len(found), "checks": [each._asdict() for each in results]}
    emit(args, data, f"{text}\n\n{said}")
    return 1 if failed else 0


def sample(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("kind", metavar="KIND", help="whose screen it is")
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--agent", metavar="NAME", help="record the pane of this agent, as it is now")
        source.add_argument("--file", metavar="FILE", help="take this text for the screen")
        parser.add_argument("--title", default="", help="the pane's title, with --file")
        parser.add_argument("--output", required=True, metavar="DIR", help="where samples are collected")
        parser.add_argument("--words", default="sample", help="what it shows, for its name: after-turn-80x24")
        parser.add_argument(
            "--state", choices=samples.STATES, help="what must be read there (default: what the adapter reads now)"
        )

    example = "mam agent sample grok --agent writer --words after-turn --output tests/screens"
    args = verb(words, 2, example, "record a screen of an agent, as a sample that its adapter is tested with", build)
    adapter = catalog.find(args.kind)
    screen = _pane(args.root, args.agent, args.kind) if args.agent else _text(args.file, args.title)
    read = samples.state_word(adapter, screen)
    folder = config.absolute(args.output, config.load().cwd)
    path = samples.write(folder, args.kind, args.state or read, args.words, screen)
    text = f"{path}\n{args.kind} reads it as {read}"
    if args.state and args.state != read:
        text += f", and must read {args.state}: `mam agent check {args.kind} --samples {folder}` fails until it does"
    emit(args, {"path": str(path), "state": args.state or read, "read": read}, text)
    return 0


def _pane(root: str | None, name: str, kind: str) -> Screen:
    """What the agent's pane shows now. Raises UnknownSession, Usage, PaneGone, LookFailed."""
    mam = Mam.open(root=root)
    with mam.registry.view() as view:
        session = need_session(view, name)
    if session.agent != kind:
        raise Usage(what=f"{name} is an agent of kind {session.agent}", hint=f"mam agent sample {session.agent} …")
    if not session.pane:
        raise Usage(what=f"{name} has no pane", hint=f"`mam agent resume {name}` opens one")
    return runtime.multiplexer(mam, session).screen(session.pane)


def _text(file: str, title: str) -> Screen:
    path = config.absolute(file, config.load().cwd)
    return Screen(path.read_text("utf-8", "replace"), title)
