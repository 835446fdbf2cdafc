"""mam monitor run · mam broker status"""

from mam.control_plane.cli.base import add_root, choose, emit, verb
from mam.control_plane.wiring import Mam


def run(words: list[str]) -> int:
    if words[0] == "broker":
        return choose(words, {"status": _broker_status}, "the embedded broker")
    return choose(words, {"run": _run}, "the one process that turns bus messages into state")


def _run(words: list[str]) -> int:
    from mam.control_plane import monitor

    args = verb(words, 2, "mam monitor run", "serve in the foreground until TERM; `mam up` does it for you", add_root)
    mam = Mam.open(root=args.root, by="monitor")
    mam.check_place()
    return monitor.main(mam)


def _broker_status(words: list[str]) -> int:
    from mam.broker import server

    args = verb(words, 2, "mam broker status", "where the embedded broker listens", add_root)
    mam = Mam.open(root=args.root)
    running = server.running(mam.layout.broker)
    url = mam.settings.text("MAM_BROKER_URL")
    data = {"url": url or (f"mqtt://{server.HOST}:{running.port}" if running else None)}
    data["pid"] = str(running.pid) if running else None
    data["viewer_password_file"] = str(server.password_file(mam.layout.secrets, "viewer"))
    data["topics"] = f"mam/{mam.fingerprint}/#"
    emit(args, data, "\n".join(f"{key}: {value}" for key, value in data.items()))
    return 0 if running or url else 1
