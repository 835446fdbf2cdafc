"""`.mam.env`: read, and obeyed as far as its user trusts it. Standard library only."""

import os
from collections.abc import Mapping
from pathlib import Path

from mam.broker.errors import Usage
from mam.control_plane.config import trust
from mam.control_plane.config.settings import BINDING, PATHS, Settings, absolute

# What a `.mam.env` that its user does not trust may say: numbers, switches and a password,
# and places inside of the control root.
HARMLESS = {
    "MAM_BROKER_PASSWORD",
    "MAM_BROKER_PORT",
    "MAM_MUX",
    "MAM_SESSION_BUSY_RETRY_S",
    "MAM_LOOP_WAIT_S",
    "MAM_LEASE_TTL_S",
    "MAM_READY_WITHIN_S",
    "MAM_DELIVER_WITHIN_S",
    "MAM_STARTED_WITHIN_S",
    "MAM_ATTEMPT_LIMIT_S",
    "MAM_HEARTBEAT_S",
    "MAM_HEARTBEAT_MISSES",
    "MAM_STUCK_AFTER_S",
    "MAM_STALLED_AFTER_S",
    "MAM_KEEP_DAYS",
    "MAM_NO_SUBSCRIBER_DAEMON",
    "MAM_DEBUG",
}
_INSIDE = {*BINDING, "MAM_WORKTREES_DIR", "MAM_REPORTS_ROOT", "MAM_LOOP_WORKTREE", "MAM_ENV_FILE"}


def add(settings: Settings, path: Path, root: Path) -> Settings:
    """
    Add what the file at *path* says; the environment goes before it.

    Raises Usage for an unreadable file, and Untrusted for one that names more than numbers, switches and places inside
    of *root* while its user does not trust it.
    """
    try:
        content = path.read_bytes()
        said = parse(content, path)
    except FileNotFoundError:
        return settings
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(what=f"{path} cannot be read: {error}", hint="repair it, or unset MAM_ENV_FILE") from error
    wanted = {name: value for name, value in said.items() if name not in settings.values}
    trust.obey(path, content, powers(wanted, root), root=root, environ=settings.environ)
    return settings._replace(values={**said, **settings.values})


def powers(said: Mapping[str, str], root: Path) -> list[str]:
    """Return those of the settings that can name a program, a server or a place outside of *root*."""
    own = [name for name in said if name.startswith("MAM_") or name in BINDING]
    able = [n for n in own if said[n] and n not in HARMLESS and not (n in _INSIDE and _inside(said[n], root))]
    return [f"{name}={said[name]}" for name in able]


def _inside(value: str, root: Path) -> bool:
    """Whether a place lies in *root*, whatever links lead there, and not in git's own directory."""
    top, place = Path(os.path.realpath(root)), Path(os.path.realpath(absolute(value, root)))
    return place.is_relative_to(top) and ".git" not in {part.lower() for part in place.relative_to(top).parts}


def parse(content: bytes, path: Path) -> dict[str, str]:
    """Return what the file says, with whole paths. Raises Usage for a line that sets nothing, UnicodeDecodeError."""
    found = {}
    for number, line in enumerate(content.decode("utf-8").splitlines(), 1):
        line = line.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.isidentifier():
            raise Usage(what=f"{path}:{number} is not NAME=value", hint="see .mam.env.example")
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value
    for name in PATHS & found.keys():
        if found[name]:
            found[name] = str(absolute(found[name], path.parent))  # the file means the same in every directory
    return found
