"""mam agent create · list · show · attach · stop · resume · send; check and sample are in agent_adapters.py"""

import argparse
import json
import sys

from mam.broker.errors import Usage
from mam.broker.host.text import clean, clean_lines
from mam.control_plane.cli.base import Parser, add_root, choose, emit, say, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import tables
from mam.control_plane.sessions.lookup import need_session

SCREEN_LINES = 500


def run(words: list[str]) -> int:
    table = {"create": _create, "list": _list, "show": _show, "attach": _attach, "stop": _stop}
    table |= {"resume": _resume, "send": _send, "check": _check, "sample": _sample}
    return choose(words, table, "agents: one agent CLI in one pane each")


def _create(words: list[str]) -> int:
    from mam.agents import catalog
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.sessions import sessions
    from mam.control_plane.sessions.readiness import need_ready
    from mam.control_plane.worktrees import prepare as worktrees

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("name", nargs="?", help="(with --worktree: ROLE-AGENT-WORKTREE without one)")
        parser.add_argument(
            "--agent", required=True, metavar="KIND", help="claude, codex, grok, opencode, command, scripted, …"
        )
        parser.add_argument("--role", default="creator", help="one or more, separated by commas")
        place = parser.add_mutually_exclusive_group()
        place.add_argument("--cwd", "--workspace", metavar="DIR", help="where it works (default: here)")
        place.add_argument("--worktree", metavar="NAME", help="it works in this worktree (mam worktree prepare NAME)")
        parser.add_argument("--mux", default=None, help="tmux, headless, or auto")
        parser.add_argument(
            "--program", default="", metavar="PATH", help="the agent's program, where it is not on PATH"
        )
        parser.add_argument("--no-wait", action="store_true", help="do not wait until its screen takes a prompt")

    own, rest = _split(words)
    args = verb(own, 2, "mam agent create writer --agent grok -- -m grok-4", "open a pane with an agent", build)
    mam = _open(args, args.cwd)
    known = monitor_process.ensure(mam, say=say)
    cwd = config.absolute(args.cwd, mam.settings.cwd) if args.cwd else None
    mux = args.mux or mam.settings.text("MAM_MUX", "auto")
    program = str(config.absolute(args.program, mam.settings.cwd)) if "/" in args.program else args.program
    name = args.name or _name_in(args)
    if args.worktree:
        cwd = worktrees.place_of(mam, args.worktree)
    wish = sessions.AgentRequest(name, args.agent, args.role, cwd, mux, program, rest)
    session = sessions.create(mam, wish, say)
    if not args.no_wait and known is not None:
        session = need_ready(mam, session.name, ready_within_s=catalog.find(args.agent).ready_within_s, say=say)
    emit(
        args,
        tables.session_data(session),
        f"{session.name}: {session.status}, screen {session.screen or 'not seen yet'}",
    )
    return 0


def _name_in(args: argparse.Namespace) -> str:
    """Several creators at once, each named for what it is and where it works."""
    if not args.worktree:
        raise Usage(what="the name is missing", hint="mam agent create NAME --agent KIND")
    return f"{args.role.split(',')[0]}-{args.agent}-{args.worktree}"[:48]


def _check(words: list[str]) -> int:
    from mam.control_plane.cli import agent_adapters

    return agent_adapters.check(words)


def _sample(words: list[str]) -> int:
    from mam.control_plane.cli import agent_adapters

    return agent_adapters.sample(words)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Everything behind ``--`` belongs to the agent's own command line."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _open(args: argparse.Namespace, cwd: str | None) -> Mam:
    """
    The control root, also where only the pane's directory leads to it.

    A pane elsewhere without any binding would register in a registry that was not meant: that is an error (exit 2).
    """
    try:
        return Mam.open(root=args.root)
    except layouts.NoControlRoot as error:
        if cwd:
            print(f"mam: the control-plane binding cannot be computed: {error}", file=sys.stderr)
            what = f"--cwd {cwd} was given, but no control root"
            raise Usage(what=what, hint="set WORKSPACE_ROOT or give --root") from error
        raise


def _list(words: list[str]) -> int:
    args = verb(words, 2, "mam agent list", "all agents", add_root)
    mam = Mam.open(root=args.root)
    with mam.registry.view() as view:
        sessions = view.sessions()
        busy = {job.session: job for job in view.open_jobs()}
    rows = [tables.agent_row(session, busy.get(session.name), str(mam.layout.root)) for session in sessions]
    data = [tables.session_data(session) for session in sessions]
    emit(args, data, shown_table(tables.SESSION_HEADER, rows) if rows else "no agents yet: mam agent create")
    return 0


def _name(parser: Parser) -> None:
    add_root(parser)
    parser.add_argument("name")


def _show(words: list[str]) -> int:

    args = verb(words, 2, "mam agent show writer", "one agent in full", _name)
    with Mam.open(root=args.root).registry.view() as view:
        session = need_session(view, args.name)
    data = {**tables.session_data(session), "binding": json.loads(session.binding), "args": json.loads(session.args)}
    text = "\n".join(f"{key}: {clean(str(value))}" for key, value in data.items())
    screen = "\n".join(clean_lines(session.screen_text or "", lines=SCREEN_LINES))
    emit(args, data, f"{text}\n\n{screen}".rstrip())
    return 0


def _attach(words: list[str]) -> int:
    from mam.control_plane.sessions import runtime
    from mam.wrappers import process
    from mam.wrappers.mux.protocol import MuxGone

    args = verb(words, 2, "mam agent attach writer", "show an agent's pane (tmux: Ctrl-b d leaves it)", _name)
    mam = Mam.open(root=args.root)
    mam.check_place()
    with mam.registry.view() as view:
        session = need_session(view, args.name)
    mux = runtime.multiplexer(mam, session)
    try:
        pane = runtime.own_pane(mam, session, mux.panes())
    except MuxGone:
        pane = None
    command = mux.attach_command(pane.id) if pane is not None else None
    if command is None:
        what = f"the pane of {session.name} ({session.mux}, {session.status}) cannot be attached to"
        raise Usage(what=what, hint=f"`mam agent show {session.name}` prints its screen")
    if args.json:
        emit(args, {"command": list(command)}, "")
        return 0
    process.replace_self(command, process.unnested(mam.settings.environ))
    return 0


def _stop(words: list[str]) -> int:
    from mam.control_plane.sessions import lifecycle

    def build(parser: Parser) -> None:
        _name(parser)
        parser.add_argument("--cwd", "--workspace", metavar="DIR", help="must be the agent's own directory")
        parser.add_argument("--force", action="store_true", help="also while a job is open")
        parser.add_argument("--purge", action="store_true", help="remove its conversation and its row as well")

    args = verb(words, 2, "mam agent stop writer", "end an agent; its conversation is kept", build)
    mam = _open(args, args.cwd)
    cwd = config.absolute(args.cwd, mam.settings.cwd) if args.cwd else None
    session = lifecycle.stop(mam, args.name, cwd=cwd, force=args.force, say=say)
    removed = [str(path) for path in lifecycle.purge(mam, args.name)] if args.purge else []
    text = f"{session.name}: {'purged' if args.purge else session.status}"
    if args.purge and not removed:
        text += f" ({session.agent} had no files of this conversation alone)"
    emit(args, {**tables.session_data(session), "purged": args.purge, "removed_files": removed}, text)
    return 0


def _resume(words: list[str]) -> int:
    from mam.agents import catalog
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.sessions import lifecycle
    from mam.control_plane.sessions.readiness import need_ready

    def build(parser: Parser) -> None:
        _name(parser)
        parser.add_argument("--cwd", "--workspace", metavar="DIR", help="must be the agent's own directory")
        parser.add_argument("--rebind", action="store_true", help="take this environment's binding for the agent")
        parser.add_argument("--no-wait", action="store_true")

    args = verb(words, 2, "mam agent resume writer", "bring an agent back with its conversation", build)
    mam = _open(args, args.cwd)
    known = monitor_process.ensure(mam, say=say)
    cwd = config.absolute(args.cwd, mam.settings.cwd) if args.cwd else None
    session = lifecycle.resume(mam, args.name, cwd=cwd, rebind=args.rebind, say=say)
    if not args.no_wait and known is not None:
        session = need_ready(mam, session.name, ready_within_s=catalog.find(session.agent).ready_within_s, say=say)
    emit(
        args,
        tables.session_data(session),
        f"{session.name}: {session.status}, screen {session.screen or 'not seen yet'}",
    )
    return 0


def _send(words: list[str]) -> int:
    from mam.control_plane.sessions import free_text

    def build(parser: Parser) -> None:
        _name(parser)
        parser.add_argument("text", help="what to say, or - to read it from standard input")

    args = verb(
        words, 2, "mam agent send writer 'which tests did you run?'", "type text into an agent's composer", build
    )
    mam = Mam.open(root=args.root)
    text = sys.stdin.read() if args.text == "-" else args.text
    try:
        outcome = free_text.send(mam, args.name, text, say=say)
    except free_text.TextRefused as error:
        if args.json:
            emit(args, {"state": "refused", "reason": error.reason, "evidence": error.evidence}, "")
        raise
    emit(args, outcome._asdict(), f"{outcome.state} {outcome.reason}".rstrip())
    return 0
