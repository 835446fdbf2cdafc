"""The environment and `.mam.env` as one frozen Settings. Standard library only."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mam.broker.bus.url import Endpoint, parse_url
from mam.broker.errors import Usage

BINDING = ("WORKSPACE_ROOT", "AGENT_SESSIONS_YAML", "MAM_JOBS_DIR", "DELEGATE_JOB_LOGS_DIR")


PATHS = {
    *BINDING,
    "MAM_WORKTREES_DIR",
    "MAM_REPORTS_ROOT",
    "MAM_NATS_SERVER",
    "MAM_TMUX_CONF",
    "MAM_BROKER_PASSWORD_FILE",
    "MAM_BROKER_CA_FILE",
    "MAM_BROKER_USERS_DIR",
}


class Settings(NamedTuple):
    """What the environment and `.mam.env` say. *environ* is the environment alone; *values* has both."""

    environ: Mapping[str, str]
    values: Mapping[str, str]
    cwd: Path

    def text(self, name: str, default: str = "") -> str:
        """Return a text; *default* where it is unset or empty."""
        return self.values.get(name) or default

    def path(self, name: str) -> Path | None:
        """Return an absolute path; a relative one counts from the caller's directory. None where it is unset."""
        value = self.values.get(name)
        return absolute(value, self.cwd) if value else None

    def flag(self, name: str) -> bool:
        """Whether a switch is on: any value but 0, no and false."""
        return self.values.get(name, "") not in ("", "0", "no", "false")

    def seconds(self, name: str, default: float) -> float:
        """Return a number of seconds above zero. Raises Usage for any other value."""
        value = self.values.get(name)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 < number < 1e9:
            raise Usage(
                what=f"{name}={value!r} is not a number of seconds above 0", hint=f"unset it, or set {name}={default:g}"
            )
        return number

    def number(self, name: str, default: int) -> int:
        """Return a whole number of at least 1. Raises Usage."""
        return max(1, round(self.seconds(name, default)))

    def port(self, name: str) -> int | None:
        """Return a port number; None where it is unset. Raises Usage for any other value."""
        value = self.values.get(name)
        if not value:
            return None
        if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
            raise Usage(what=f"{name}={value!r} is not a port", hint="1 to 65535, or unset it")
        return int(value)

    @property
    def of_panes(self) -> Mapping[str, str]:
        """The environment of a multiplexer, with the tmux configuration that `.mam.env` may name."""
        config = self.values.get("MAM_TMUX_CONF")
        return {**self.environ, "MAM_TMUX_CONF": config} if config else self.environ

    @property
    def no_daemon(self) -> bool:
        return self.flag("MAM_NO_SUBSCRIBER_DAEMON")

    @property
    def started_within_s(self) -> float:
        return self.seconds("MAM_STARTED_WITHIN_S", 120)

    @property
    def deliver_within_s(self) -> float:
        return self.seconds("MAM_DELIVER_WITHIN_S", 60)

    @property
    def attempt_limit_s(self) -> float:
        return self.seconds("MAM_ATTEMPT_LIMIT_S", 4 * 3600)

    @property
    def heartbeat_s(self) -> float:
        return self.seconds("MAM_HEARTBEAT_S", 10)

    @property
    def heartbeat_misses(self) -> int:
        return self.number("MAM_HEARTBEAT_MISSES", 6)


_WATCHED = ("MAM_STUCK_AFTER_S", "MAM_STALLED_AFTER_S", "MAM_LEASE_TTL_S")


def check(settings: Settings) -> Settings:
    """Return *settings* after reading each one that can be wrong. Raises Usage now, and not in the middle of work."""
    for name in ("MAM_READY_WITHIN_S", "MAM_KEEP_DAYS", "MAM_SESSION_BUSY_RETRY_S", "MAM_LOOP_WAIT_S", *_WATCHED):
        settings.seconds(name, 1)
    settings.port("MAM_BROKER_PORT")
    _ = settings.started_within_s, settings.deliver_within_s, settings.attempt_limit_s
    _ = settings.heartbeat_s, settings.heartbeat_misses
    url = settings.text("MAM_BROKER_URL")
    if url:
        _check_broker(settings, parse_url(url))
    return settings


def _check_broker(settings: Settings, where: Endpoint) -> None:
    """Raise Usage for a broker beyond this machine without TLS or without a user: others could read and write."""
    if where.loopback or settings.flag("MAM_BROKER_INSECURE"):
        return
    known = where.user or settings.text("MAM_BROKER_USERS_DIR")
    if where.tls and known:
        return
    lacks = "TLS" if not where.tls else "a user"
    hint = "mqtts:// and MAM_BROKER_USERS_DIR or user@; MAM_BROKER_INSECURE=1 where the way is safe by other means"
    raise Usage(what=f"the broker {where.url} lies beyond this machine and is reached without {lacks}", hint=hint)


def absolute(value: str, cwd: Path) -> Path:
    """Return *value* as an absolute path without `..`. Links are kept, so that a name stays as its user chose it."""
    return Path(os.path.normpath(cwd / Path(value).expanduser() if value.startswith("~") else cwd / value))


def load(environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Settings:
    """Read the environment, once a process. `env_file.add` adds `.mam.env` when the control root is known."""
    source = dict(os.environ if environ is None else environ)
    source["PATH"] = source.get("PATH") or os.defpath  # agents in panes need at least a shell
    return Settings(source, source, cwd or _working_directory(source))


def _working_directory(environ: Mapping[str, str]) -> Path:
    try:
        folder = Path.cwd()
        str(folder).encode()
        return folder
    except UnicodeEncodeError as error:
        raise Usage(what="the working directory's name is not UTF-8 text", hint="rename it") from error
    except FileNotFoundError:
        return _gone(environ)


def _gone(environ: Mapping[str, str]) -> Path:
    """
    The path that a deleted working directory had: a verb that is told its places needs no directory to stand in.

    What is relative to it is not found, and said so with this path.
    """
    had = environ.get("PWD", "")
    return Path(had) if os.path.isabs(had) and not os.path.isdir(had) else Path("/deleted-working-directory")
