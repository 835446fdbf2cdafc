"""mam monitor run · once · install · uninstall, mam broker status"""

from mam.control_plane.cli.base import Parser, add_root, choose, emit, say, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.control_root.context import Mam


def run(words: list[str]) -> int:
    if words[0] == "broker":
        return choose(words, {"status": _broker_status}, "the embedded broker")
    table = {"run": _run, "once": _once, "install": _install, "uninstall": _uninstall}
    return choose(words, table, "the one process that turns bus messages into state")


def _run(words: list[str]) -> int:
    from mam.control_plane.control_root import installation, monitor_process
    from mam.control_plane.monitor import monitor

    args = verb(words, 2, "mam monitor run", "serve in the foreground until TERM; `mam up` does it for you", add_root)
    mam = Mam.open(root=args.root, by="monitor")
    monitor_process.upgrade(mam)
    mam.check_place()
    installation.insist(mam.runtime, mam.layout.root, "run its monitor")
    return monitor.main(mam)


def _once(words: list[str]) -> int:
    from mam.control_plane.monitor import reconcile

    args = verb(words, 2, "mam monitor once --json", "compare registry and world once, and change nothing", add_root)
    mam = Mam.open(root=args.root)
    mam.check_place()
    with mam.registry.view() as view:
        # Only the monitor listens to the broker; what it saw there is looked up in the registry once more.
        cards = [finding.subject for finding in view.findings() if finding.code == "card_left"]
        world = reconcile.look(mam, view, cards)
        found = reconcile.compare(mam, view, world)
    for mux, server in world.dark:
        say(f"{mux} ({server}) did not answer: nothing is said of its panes")
    rows = [[drift.code, drift.subject, drift.text, drift.next] for drift in found]
    text = (
        shown_table(("CODE", "SUBJECT", "WHAT", "NEXT"), rows)
        if rows
        else "registry and world agree" + (", as far as could be looked at" if world.dark else "")
    )
    emit(args, [drift._asdict() for drift in found], text)
    return 1 if found else 75 if world.dark else 0  # "could not look" never means "they agree"


def _broker_status(words: list[str]) -> int:
    from mam.broker.nats import config as nats_config
    from mam.broker.nats import process as nats_server

    args = verb(words, 2, "mam broker status", "where the embedded broker listens", add_root)
    mam = Mam.open(root=args.root)
    running = nats_server.running(mam.layout.broker)
    url = mam.settings.text("MAM_BROKER_URL")
    data = {"url": url or (f"mqtt://{nats_config.HOST}:{running.port}" if running else None)}
    data["pid"] = str(running.pid) if running else None
    data["viewer_password_file"] = str(nats_config.password_file(mam.layout.secrets, "viewer"))
    data["topics"] = f"mam/{mam.fingerprint}/#"
    emit(args, data, "\n".join(f"{key}: {value}" for key, value in data.items()))
    return 0 if running or url else 1


def _install(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process, service

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("--print", action="store_true", help="print the file and the commands, change nothing")
        parser.add_argument("--no-start", action="store_true", help="write the file, start nothing")

    example = "mam monitor install --print"
    args = verb(words, 2, example, "let your session manager (systemd, launchd) keep the monitor running", build)
    mam = Mam.open(root=args.root)
    mam.check_place()
    what = service.describe(mam)
    commands = [" ".join(command) for command in what.start]
    if not args.print:
        # One that `mam up` started would keep the service's own from its place until systemd gives it up.
        ended = not args.no_start and monitor_process.end(mam.layout)
        try:
            service.install(what, start=not args.no_start)
        except service.ServiceFailed:
            if ended:
                monitor_process.ensure(mam, say=say)
            raise
    data = {"path": str(what.path), "text": what.text, "start": commands, "installed": not args.print}
    text = f"# {what.path}\n{what.text}" + "".join(f"# {command}\n" for command in commands)
    emit(args, data, text if args.print else f"installed {what.path}; undo: mam monitor uninstall")
    return 0


def _uninstall(words: list[str]) -> int:
    from mam.control_plane.control_root import service

    args = verb(words, 2, "mam monitor uninstall", "undo `mam monitor install`; twice is harmless", add_root)
    what = service.describe(Mam.open(root=args.root))
    removed = service.uninstall(what)
    emit(
        args, {"path": str(what.path), "removed": removed}, f"{what.path}: {'removed' if removed else 'was not there'}"
    )
    return 0
