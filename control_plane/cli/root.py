"""mam init · mam up · mam down"""

import contextlib
import sys

from mam.broker.errors import Usage
from mam.broker.host import terminal
from mam.broker.host.text import fold
from mam.control_plane.cli.base import Parser, add_root, emit, say, verb
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import installation
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.database import RegistryUnusable


def run(words: list[str]) -> int:
    return {"init": _init, "up": _up, "down": _down}[words[0]](words)


def _init(words: list[str]) -> int:
    from mam.agents import catalog
    from mam.control_plane.control_root import create
    from mam.control_plane.explain import first_steps
    from mam.control_plane.maintenance import relocate
    from mam.control_plane.worktrees import guard
    from mam.wrappers.git import command as git

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("--no-git", action="store_true", help="allow a directory without git")
        parser.add_argument("--moved", action="store_true", help="the directory was moved: keep all, correct the paths")
        parser.add_argument("--copied", action="store_true", help="this is a copy: new fingerprint, no agents")
        parser.add_argument("--runtime", action="store_true", help="have the mam that you run serve this control root")
        hooks = parser.add_mutually_exclusive_group()
        hooks.add_argument("--guard", action="store_true", help="hooks that keep commits off its branch")
        hooks.add_argument("--unguard", action="store_true", help="remove those hooks again")

    args = verb(words, 1, "cd your-repository && mam init", "make this repository a control root", build)
    settings = config.load()
    wanted = args.root or settings.text("WORKSPACE_ROOT")
    folder = config.absolute(wanted, settings.cwd) if wanted else settings.cwd
    if not wanted and not args.no_git:
        folder = git.main_checkout(folder)
    mam = Mam(settings, layouts.layout(settings, str(folder)), by="init")
    made = create.make(mam.layout, mam.settings.environ, in_git=not args.no_git)
    if args.moved or args.copied:
        (relocate.moved if args.moved else relocate.copied)(mam)
        mam = Mam(settings, mam.layout, by="init")  # what it remembers of the old place is wrong now
    mam.check_place()
    if args.runtime or args.moved or args.copied:
        mam.take_runtime()
    data = {"root": str(folder), "made": made, "fingerprint": mam.fingerprint}
    lines = [f"{'made' if made else 'found'} the control root {folder} (topics mam/{mam.fingerprint}/#)"]
    if args.runtime:
        data["runtime"] = mam.command
        lines += _service_follows(mam)
    if args.guard or args.unguard:
        guarded = guard.guard(mam) if args.guard else guard.unguard(mam)
        data["guarded"] = guarded
        lines.append(f"guarded: {guarded or 'no'}")
    found, start = first_steps.agent_clis(mam)
    data["agent_clis"] = found
    lines.append(f"agent CLIs on PATH: {', '.join(found) or 'none of ' + ', '.join(catalog.OWN_PROGRAM)}")
    lines.append(f"next: {start}")
    emit(args, data, "\n".join(lines))
    return 0


def _service_follows(mam: Mam) -> list[str]:
    """Write an installed service anew for the recorded mam. Returns what a person should know of the change."""
    from mam.control_plane.control_root import service

    lines = [f"served by {mam.command}; `mam down` and `mam up` replace a monitor that runs"]
    unit = service.describe(mam)
    if unit.path.exists():
        service.install(unit, start=False)
        lines.append(f"{unit.path} follows; `mam monitor install` starts it")
    return lines


def _up(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process

    args = verb(words, 1, "mam up", "start broker and monitor, or find them running", add_root)
    mam = Mam.open(root=args.root)
    if monitor_process.upgrade(mam):
        say(f"the registry was brought to this version; a backup is in {mam.layout.mam / 'backups'}")
    _say_runtime(mam)
    known = monitor_process.ensure(mam, say=say)
    if known is None:
        raise Usage(
            what="MAM_NO_SUBSCRIBER_DAEMON forbids to start a monitor here", hint="unset it, or run `mam up` elsewhere"
        )
    data = {"monitor_pid": known.process.pid, "broker": known.broker, "problem": known.problem}
    data["runtime"] = mam.command
    text = f"monitor: pid {known.process.pid}\nbroker: {known.broker or 'not connected'}"
    emit(args, data, text + (f"\nproblem: {known.problem}" if known.problem else ""))
    return 1 if known.stopped else 6 if known.problem else 0


def _say_runtime(mam: Mam) -> None:
    """Record who serves the control root where nothing says it yet; tell where that is another mam than this one."""
    mam.check_place()
    if mam.runtime is None:
        say(f"this control root is served by {mam.take_runtime()} from now on (`mam init --runtime` changes that)")
    elif not installation.is_running(mam.command):
        say(f"this control root is served by {mam.command}, and not by the mam that you run (`mam init --runtime`)")


def _down(words: list[str]) -> int:
    from mam.broker.nats import process as nats_server
    from mam.control_plane.control_root import monitor_process
    from mam.control_plane.sessions import runtime

    args = verb(words, 1, "mam down", "end monitor and broker; agents and their work stay", add_root)
    mam = Mam.open(root=args.root)
    alive: list[str] = []
    with contextlib.suppress(RegistryUnusable):  # what must be made anew tells nothing, and needs the monitor's end
        mam.check_place()  # raises where this is no control root, and where broker and monitor are another one's
        with mam.registry.view() as view:
            alive = [session.name for session in view.sessions() if runtime.alive(session)]
    monitor = monitor_process.end(mam.layout)
    broker = nats_server.stop(mam.layout.broker)
    ended = {"monitor": monitor, "broker": broker}
    lines = [f"{name}: {'ended' if was else 'did not run'}" for name, was in ended.items()]
    if alive:
        told = (
            f"still running: {', '.join(alive)}; what they say is kept until `mam up`; `mam agent stop NAME` ends one"
        )
        lines.append(fold(told, terminal.columns(sys.stdout), indent="  "))
    emit(args, {**ended, "agents": alive}, "\n".join(lines))
    return 0
