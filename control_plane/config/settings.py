"""
Environment and `.mam.env` to one frozen Settings; the only reader of the environment. Standard library only.

The control root is found once, here; afterwards nothing is derived from the
working directory.
"""

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mam.broker.bus.url import Endpoint, parse_url
from mam.broker.errors import MamError, Usage

BINDING = ("WORKSPACE_ROOT", "AGENT_SESSIONS_YAML", "MAM_JOBS_DIR", "DELEGATE_JOB_LOGS_DIR")


PATHS = {
    *BINDING,
    "MAM_WORKTREES_DIR",
    "MAM_REPORTS_ROOT",
    "MAM_NATS_SERVER",
    "MAM_BROKER_PASSWORD_FILE",
    "MAM_BROKER_CA_FILE",
    "MAM_BROKER_USERS_DIR",
}


class NoControlRoot(MamError):
    code = "no_control_root"
    exit_code = 2
    message = "no control root was found from {cwd}"
    remedy_text = "run `mam init` in your repository, or pass --root, or set WORKSPACE_ROOT"


class Layout(NamedTuple):
    """Every place of one control root. All paths are absolute."""

    root: Path
    sessions_yaml: Path
    jobs: Path
    logs: Path
    env_file: Path
    worktrees: Path  # beside the control root, so that nothing in one finds the other by looking upwards

    @property
    def reviews(self) -> Path:
        """
        Where reviewers get their trees, one folder a review.

        A place of this root's alone, also where several share a folder for worktrees: what nobody here knows is
        removed from it.
        """
        own = self.worktrees == beside(self.root)
        return self.worktrees / (".reviews" if own else f".reviews-{zlib.crc32(os.fsencode(self.root)):08x}")

    @property
    def loops(self) -> Path:
        return self.mam / "loops"

    @property
    def mam(self) -> Path:
        return self.root / ".mam"

    @property
    def database(self) -> Path:
        return self.mam / "registry.db"

    @property
    def registry_lock(self) -> Path:
        return self.mam / "registry.lock"

    @property
    def audit(self) -> Path:
        return self.mam / "audit.jsonl"

    @property
    def secrets(self) -> Path:
        return self.mam / "secrets"

    @property
    def run(self) -> Path:
        return self.mam / "run"

    @property
    def broker(self) -> Path:
        return self.mam / "broker"

    @property
    def monitor_lock(self) -> Path:
        return self.mam / "monitor.lock"

    @property
    def monitor_state(self) -> Path:
        return self.run / "monitor.json"

    @property
    def monitor_wake(self) -> Path:
        return self.run / "monitor.wake"

    def run_dir(self, session: str) -> Path:
        return self.run / session

    def job_key(self, job: str) -> Path:
        return self.secrets / f"job-{job}.key"

    def session_key(self, session: str) -> Path:
        return self.secrets / f"session-{session}.key"

    @property
    def control_key(self) -> Path:
        return self.secrets / "control.key"

    def binding(self) -> dict[str, str]:
        """The four overrides and MAM_ENV_FILE, spelled out, as every pane and the monitor get them."""
        return {
            "WORKSPACE_ROOT": str(self.root),
            "AGENT_SESSIONS_YAML": str(self.sessions_yaml),
            "MAM_JOBS_DIR": str(self.jobs),
            "DELEGATE_JOB_LOGS_DIR": str(self.logs),
            "MAM_ENV_FILE": str(self.env_file),
        }


class Settings(NamedTuple):
    """What the environment and `.mam.env` say. Units are in the names."""

    environ: Mapping[str, str]
    values: Mapping[str, str]
    cwd: Path

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name) or default

    def path(self, name: str) -> Path | None:
        """A path setting, absolute: relative ones count from the working directory of the caller."""
        value = self.values.get(name)
        return absolute(value, self.cwd) if value else None

    def flag(self, name: str) -> bool:
        return self.values.get(name, "") not in ("", "0", "no", "false")

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds above zero. Raises Usage."""
        value = self.values.get(name)
        if not value:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 < number < 1e9:
            raise Usage(what=f"{name}={value!r} is no number of seconds", hint=f"unset it, or set {name}={default:g}")
        return number

    def number(self, name: str, default: int) -> int:
        return max(1, round(self.seconds(name, default)))

    def port(self, name: str) -> int | None:
        """A port number, or None where it is not set. Raises Usage."""
        value = self.values.get(name)
        if not value:
            return None
        if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
            raise Usage(what=f"{name}={value!r} is no port", hint="1 to 65535, or unset it")
        return int(value)

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
    """Read every setting that can be wrong, so that it is refused now and not in the middle of something."""
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
    """Beyond this machine everybody on the way could read and write: only with TLS and with a user."""
    if where.loopback or settings.flag("MAM_BROKER_INSECURE"):
        return
    known = where.user or settings.text("MAM_BROKER_USERS_DIR")
    if where.tls and known:
        return
    lacks = "TLS" if not where.tls else "a user"
    hint = "mqtts:// and MAM_BROKER_USERS_DIR or user@; MAM_BROKER_INSECURE=1 where the way is safe by other means"
    raise Usage(what=f"the broker {where.url} lies beyond this machine and is reached without {lacks}", hint=hint)


def absolute(value: str, cwd: Path) -> Path:
    """*value* as an absolute path without `..`, links kept: a name that the user chose stays as chosen."""
    return Path(os.path.normpath(cwd / Path(value).expanduser() if value.startswith("~") else cwd / value))


def load(environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Settings:
    """Read the environment, once per process. `.mam.env` is added when the control root is known."""
    source = dict(os.environ if environ is None else environ)
    source["PATH"] = source.get("PATH") or os.defpath  # agents in panes need a shell at least
    return Settings(source, source, cwd or _working_directory())


def _working_directory() -> Path:
    try:
        folder = Path.cwd()
        str(folder).encode()
        return folder
    except UnicodeEncodeError as error:
        raise Usage(what="the working directory's name is no UTF-8 text", hint="rename it") from error
    except FileNotFoundError as error:
        raise Usage(what="the working directory is gone", hint="cd to a directory that exists") from error


def layout(settings: Settings, root_flag: str | None = None, jobs_flag: str | None = None) -> Layout:
    """
    The places that a command works on: flag, then environment, then the default below the control root.

    Raises:
        NoControlRoot: No flag, no WORKSPACE_ROOT, and the working directory lies in no prepared repository.
        Usage: WORKSPACE_ROOT or --root names no directory.
    """
    root = find_root(settings, root_flag)
    mam = root / ".mam"
    return Layout(
        root,
        settings.path("AGENT_SESSIONS_YAML") or mam / "agent-sessions.yaml",
        absolute(jobs_flag, settings.cwd) if jobs_flag else settings.path("MAM_JOBS_DIR") or mam / "jobs",
        settings.path("DELEGATE_JOB_LOGS_DIR") or mam / "logs",
        settings.path("MAM_ENV_FILE") or root / ".mam.env",
        settings.path("MAM_WORKTREES_DIR") or beside(root),
    )


def beside(root: Path) -> Path:
    """The folder of a control root's worktrees where nobody chose another."""
    return root.parent / f"{root.name}.worktrees"


def find_root(settings: Settings, root_flag: str | None = None) -> Path:
    for source, value in (("--root", root_flag), ("WORKSPACE_ROOT", settings.text("WORKSPACE_ROOT"))):
        if value:
            root = absolute(value, settings.cwd)
            if not root.is_dir():
                raise Usage(what=f"{source} names {root}, which is no directory", hint="correct or unset it")
            return root
    found = checkout_of(settings.cwd)
    if found is not None and any((found / ".mam" / name).exists() for name in ("registry.db", "audit.jsonl")):
        return found  # also where the database was lost: every verb says so then, and `registry rebuild` helps
    raise NoControlRoot(cwd=str(settings.cwd))


def checkout_of(folder: Path) -> Path | None:
    """
    The main checkout of the repository around *folder*, from the files alone: a git process would double
    the time of a short command. Without a repository: the nearest folder that holds a `.mam`.
    """
    for candidate in (folder, *folder.parents):
        if candidate.name == ".mam":
            continue  # it holds a stub .git that only keeps `git clean` away
        dot_git = candidate / ".git"
        if dot_git.is_dir():
            return candidate
        if dot_git.is_file():
            return _main_of_worktree(dot_git) or candidate
    return next((c for c in (folder, *folder.parents) if (c / ".mam" / "registry.db").exists()), None)


def _main_of_worktree(dot_git: Path) -> Path | None:
    try:
        git_dir = Path(dot_git.parent / dot_git.read_text("utf-8").removeprefix("gitdir:").strip())
        common = (git_dir / (git_dir / "commondir").read_text("utf-8").strip()).resolve()
    except (OSError, UnicodeDecodeError):
        return None  # a submodule has no commondir: it is a checkout of its own
    if common.name == ".git":
        return common.parent
    return common if (common / ".mam").is_dir() else None  # a bare repository with worktrees is its own control root


def with_env_file(settings: Settings, path: Path) -> Settings:
    """Add what `.mam.env` says; the environment wins. A missing file is no error, an unreadable one is Usage."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return settings
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(what=f"{path} cannot be read: {error}", hint="repair it, or unset MAM_ENV_FILE") from error
    said = _parse(text, path)
    for name in PATHS & said.keys():
        if said[name]:
            said[name] = str(absolute(said[name], path.parent))  # a file means the same from wherever it is read
    return settings._replace(values={**said, **settings.values})


def _parse(text: str, path: Path) -> dict[str, str]:
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
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
    return found
