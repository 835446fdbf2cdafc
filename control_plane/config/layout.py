"""
All places of one control root, and how the control root itself is found. Standard library only.

The control root is found once, here. Afterwards no place may be derived from the working directory.
"""

import os
import zlib
from pathlib import Path
from typing import NamedTuple

from mam.broker.errors import MamError, Usage
from mam.control_plane.config.settings import Settings, absolute


class NoControlRoot(MamError):
    """The working directory lies in no repository with a control root, and none was named."""

    cwd: str

    code = "no_control_root"
    exit_code = 2
    message = "no control root was found from {cwd}"
    remedy_text = "run `mam init` in your repository, or pass --root, or set WORKSPACE_ROOT"


class Layout(NamedTuple):
    """All places of one control root, as absolute paths. A place need not exist."""

    root: Path
    sessions_yaml: Path
    jobs: Path
    logs: Path
    env_file: Path
    worktrees: Path  # beside the control root, so that nothing in one finds the other by looking upwards

    @property
    def reviews(self) -> Path:
        """
        The folder of the reviewers' trees, one folder a review.

        It belongs to this root alone, even where several roots share a folder for worktrees: what this root does not
        know is removed from it.
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
        """Return the variables that name these places: every pane and the monitor get all five of them."""
        return {
            "WORKSPACE_ROOT": str(self.root),
            "AGENT_SESSIONS_YAML": str(self.sessions_yaml),
            "MAM_JOBS_DIR": str(self.jobs),
            "DELEGATE_JOB_LOGS_DIR": str(self.logs),
            "MAM_ENV_FILE": str(self.env_file),
        }


def layout(settings: Settings, root_flag: str | None = None, jobs_flag: str | None = None) -> Layout:
    """
    Return the places that a command works on. A flag goes before the environment, and that before the default.

    Raises:
        NoControlRoot: There is no flag and no WORKSPACE_ROOT, and `mam init` was not run in the repository around the
            working directory.
        Usage: WORKSPACE_ROOT or --root does not name a directory.
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
    """Return the default folder for the worktrees of a control root."""
    return root.parent / f"{root.name}.worktrees"


def find_root(settings: Settings, root_flag: str | None = None) -> Path:
    """Return the control root that the flag, WORKSPACE_ROOT or the working directory names. Raises as `layout` does."""
    for source, value in (("--root", root_flag), ("WORKSPACE_ROOT", settings.text("WORKSPACE_ROOT"))):
        if value:
            root = absolute(value, settings.cwd)
            if not root.is_dir():
                raise Usage(what=f"{source} names {root}, which is not a directory", hint="correct or unset it")
            return root
    if not settings.cwd.is_dir():
        what = f"the working directory {settings.cwd} is gone"
        raise Usage(what=what, hint="cd to a directory that exists, or name the control root with --root")
    found = checkout_of(settings.cwd)
    if found is not None and _is_made(found):
        return found  # also where the database was lost: every verb then names `mam registry rebuild`
    raise NoControlRoot(cwd=str(settings.cwd))


def root_of(path: Path, settings: Settings, root_flag: str | None = None) -> Path:
    """
    Return the control root that reads the file at *path*: that of --root, else the one around it, else as `find_root`.

    Raises as `layout` does.
    """
    around = checkout_of(path.parent)
    return around if not root_flag and around and _is_made(around) else find_root(settings, root_flag)


def _is_made(root: Path) -> bool:
    return any((root / ".mam" / name).exists() for name in ("registry.db", "audit.jsonl"))


def checkout_of(folder: Path) -> Path | None:
    """
    Return the main checkout of the repository around *folder*; without a repository, the nearest folder with a `.mam`.

    Only files are read, since a git process would double the time of a short command.
    """
    for candidate in (folder, *folder.parents):
        if candidate.name == ".mam":
            continue  # its stub .git only keeps `git clean` away
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
        return None  # a submodule has no commondir, since it is a checkout of its own
    if common.name == ".git":
        return common.parent
    return common if (common / ".mam").is_dir() else None  # a bare repository with worktrees is its own control root
