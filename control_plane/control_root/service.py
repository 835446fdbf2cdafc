"""The monitor as a service of the user: a systemd user unit, or a launchd agent."""

import plistlib
import sys
from pathlib import Path
from typing import NamedTuple

from mam.broker.errors import MamError
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability
from mam.control_plane.control_root.context import Mam
from mam.wrappers import process


class ServiceFailed(MamError):
    """The session manager refused the service. What was installed before is still installed."""

    why: str

    code = "service_failed"
    message = "the monitor could not be installed as a service: {why}"
    remedy_text = "`mam monitor install --print` shows what to do by hand; without a session manager use `mam up`"


class Service(NamedTuple):
    """A file to install, and the commands that start and end its service."""

    path: Path
    text: str
    start: list[list[str]]
    stop: list[list[str]]


def describe(mam: Mam, *, platform: str = sys.platform) -> Service:
    """Return the service of one control root. Its name holds the fingerprint, so that no two roots share it."""
    home = Path(mam.settings.environ.get("HOME") or "/")
    name = f"mam-{mam.meta('slug')}-{mam.fingerprint[:6]}"
    return _launchd(mam, home, name) if platform == "darwin" else _systemd(mam, home, name)


def install(service: Service, *, start: bool) -> None:
    """Write the file and start the service. After ServiceFailed, what was installed before is as it was."""
    service.path.parent.mkdir(parents=True, exist_ok=True)
    before = service.path.read_bytes() if service.path.exists() else None
    _write(service.path, service.text.encode())
    try:
        for command in service.start if start else []:
            process.run(command)
    except MamError as error:
        if before is None:
            uninstall(service)  # it may be enabled, though its start failed
        else:
            _write(service.path, before)
        raise ServiceFailed(why=str(error)) from error


def _write(path: Path, content: bytes) -> None:
    # The session manager reads the file when the machine starts, after a crash as well.
    atomic_files.write(path, content, Durability.FILE, mode=0o644, point="service.rename")


def uninstall(service: Service) -> bool:
    """End and remove the service. Returns False where there was none."""
    if not service.path.exists():
        return False
    for command in service.stop:
        try:
            process.run(command, expect=())
        except MamError:
            pass  # without a session manager nothing runs that could be ended
    service.path.unlink()
    return True


def _systemd(mam: Mam, home: Path, name: str) -> Service:
    # systemd reads $ as a variable in commands only.
    command = " ".join(_systemd_word(word).replace("$", "$$") for word in _command(mam))
    environment = "".join(f"Environment={_systemd_word(f'{k}={v}')}\n" for k, v in _environment(mam).items())
    text = f"""[Unit]
Description=MAM monitor of {mam.layout.root.name}

[Service]
ExecStart={command}
WorkingDirectory={str(mam.layout.root).replace("%", "%%")}
{environment}Restart=on-failure
RestartSec=2

[Install]
WantedBy=default.target
"""
    unit = f"{name}.service"
    start = [["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", "--now", unit]]
    stop = [["systemctl", "--user", "disable", "--now", unit]]
    return Service(home / ".config" / "systemd" / "user" / unit, text, start, stop)


def _systemd_word(word: str) -> str:
    """Return *word* quoted for systemd: backslashes and quotes are escaped, and % is doubled."""
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{quoted}"'


def _launchd(mam: Mam, home: Path, name: str) -> Service:
    label = f"io.github.multi-agent-mux.{name}"
    content = {
        "Label": label,
        "ProgramArguments": _command(mam),
        "EnvironmentVariables": _environment(mam),
        "WorkingDirectory": str(mam.layout.root),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
    }
    text = plistlib.dumps(content, sort_keys=False).decode()
    path = home / "Library" / "LaunchAgents" / f"{label}.plist"
    return Service(path, text, [["launchctl", "load", "-w", str(path)]], [["launchctl", "unload", "-w", str(path)]])


def _command(mam: Mam) -> list[str]:
    return [mam.command, "monitor", "run", "--root", str(mam.layout.root)]


def _environment(mam: Mam) -> dict[str, str]:
    """The binding, and where the user's state lies if it was moved: what the user trusts is looked up there."""
    state = mam.settings.environ.get("XDG_STATE_HOME")
    return {**mam.layout.binding(), **({"XDG_STATE_HOME": state} if state else {})}
