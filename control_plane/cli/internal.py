"""Verbs that MAM calls itself: the runner in a pane, a headless pane's host, the scripted agent, agents' hooks."""

from collections.abc import Callable
from pathlib import Path

from mam.broker import spool
from mam.broker.envelope import keys, signing, topics
from mam.broker.envelope.payloads import HOOK_SIGNALS, Producer
from mam.broker.errors import MamError, Usage
from mam.control_plane.cli.base import Parser, verb
from mam.control_plane.config import settings as config


def run(words: list[str]) -> int:
    table = {"runner": _runner, "pane-host": _pane_host, "play": _play, "agent-signal": _agent_signal}
    return table[words[0]](words)


def _argument(name: str) -> Callable[[Parser], None]:
    def build(parser: Parser) -> None:
        parser.add_argument(name)

    return build


def _runner(words: list[str]) -> int:
    from mam.wrappers.runner import runner

    args = verb(words, 1, "", "serve the pane that this runs in", _argument("spec"))
    settings = config.load()
    pane = settings.text("MAM_PANE") or settings.text("TMUX_PANE")
    if not pane:
        raise Usage(what="this is not a pane", hint="runners are started by `mam agent create`")
    return runner.main(Path(args.spec), pane, settings.environ)


def _pane_host(words: list[str]) -> int:
    from mam.wrappers.mux import headless_host

    args = verb(words, 1, "", "hold the terminal of a headless pane", _argument("folder"))
    return headless_host.main(Path(args.folder), config.load().environ)


def _play(words: list[str]) -> int:
    from mam.wrappers import scripted_agent

    def build(parser: Parser) -> None:
        parser.add_argument("--name", required=True)
        parser.add_argument("--memory", required=True)
        parser.add_argument("--script")

    args = verb(words, 1, "", "be a scripted agent", build)
    return scripted_agent.main(args.name, Path(args.memory), Path(args.script) if args.script else None)


def _agent_signal(words: list[str]) -> int:
    """What an agent CLI's own hook says of its agent; in the pane, by files alone. A hook never disturbs its agent."""
    args = verb(words, 1, "", "say what an agent's hook saw", _argument("name"))
    settings = config.load()
    session, key, folder = (settings.text(name) for name in ("MAM_SESSION", "MAM_SESSION_KEY_FILE", "MAM_SPOOL"))
    if args.name not in HOOK_SIGNALS or not (session and key and folder):
        return 0  # run outside of a pane of ours
    topic = topics.events(session)
    body = Producer("hook").session_message(session, "signal", {"name": args.name})
    try:
        wire = signing.seal(body, token=keys.load(Path(key)), use=signing.USE_RUNTIME, scope=session, topic=topic)
        spool.write(Path(folder), str(body["id"]), topic, wire)
    except (MamError, OSError):
        return 0
    spool.wake(Path(folder).parent / "wake")
    return 0
