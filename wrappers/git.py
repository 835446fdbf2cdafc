"""Questions about repositories, in one flat file. Git is reached here and nowhere else."""

from pathlib import Path
from typing import Any

from mam.broker.errors import MamError

Git: Any = None
try:
    from git.cmd import Git
    from git.exc import CommandError
except ImportError:
    pass  # GitPython refuses to be imported where there is no git program: `ask` says so

# What git exports to hooks and to `git -c`; inherited, it would make us answer for another repository.
LOCAL_VARIABLES = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_CEILING_DIRECTORIES",
]
# A repository's own configuration can run programs; nothing that MAM asks needs them.
_SAFE = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
_TIMEOUT_S = 30


class GitFailed(MamError):
    code = "git_failed"
    message = "git {words} in {folder}: {why}"


class NoRepository(MamError):
    code = "no_repository"
    exit_code = 2
    message = "{folder} is not inside a git repository with a work tree"
    remedy_text = "go to your repository, make one with `git init`, or give --no-git"


def ask(folder: Path, *words: str) -> str:
    """The output of one read-only git command in *folder*. Raises GitFailed."""
    if Git is None:
        raise GitFailed(words=" ".join(words), folder=str(folder), why="git is not installed")
    unset = [part for name in LOCAL_VARIABLES for part in ("-u", name)]
    command = ["env", *unset, "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C", "git", "-C", str(folder), *_SAFE, *words]
    try:
        # git.cmd.Git alone: a Repo object would keep child processes open.
        answer = Git().execute(command, kill_after_timeout=_TIMEOUT_S, strip_newline_in_stdout=True)
    except CommandError as error:
        why = str(error.stderr).strip().removeprefix("stderr: ").strip("' \n") or f"exit code {error.status}"
        raise GitFailed(words=" ".join(words), folder=str(folder), why=why) from error
    return str(answer)


def top(folder: Path) -> Path:
    """The top of the work tree that holds *folder*. Raises NoRepository."""
    try:
        return Path(ask(folder, "rev-parse", "--show-toplevel"))
    except GitFailed as error:
        raise NoRepository(folder=str(folder)) from error


def common_dir(folder: Path) -> Path:
    """The git directory that all worktrees of the repository share. Raises NoRepository."""
    try:
        return Path(ask(folder, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    except GitFailed as error:
        raise NoRepository(folder=str(folder)) from error


def git_dir(folder: Path) -> Path:
    return Path(ask(folder, "rev-parse", "--absolute-git-dir"))


def bare(folder: Path) -> bool:
    return ask(folder, "rev-parse", "--is-bare-repository") == "true"


def main_checkout(folder: Path) -> Path:
    """
    The main checkout of the repository that *folder* belongs to, also when asked from a linked worktree.

    Raises NoRepository; a bare repository with worktrees has no main checkout, and answers with its own folder.
    """
    common = common_dir(folder)
    try:
        listed = ask(folder, "worktree", "list", "--porcelain", "-z")
    except GitFailed as error:
        raise NoRepository(folder=str(folder)) from error
    first = listed.split("\0", 1)[0]
    # In a submodule and with a separate git directory, git lists the git directory as the main work tree.
    if first == f"worktree {common}" and git_dir(folder) == common and not bare(folder):
        return top(folder)
    return Path(first.removeprefix("worktree ")) if first.startswith("worktree ") else common.parent


def exclude(folder: Path, *patterns: str) -> list[str]:
    """Add *patterns* to the repository's own exclude file where they are missing; return those added."""
    path = common_dir(folder) / "info" / "exclude"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text("utf-8", "surrogateescape") if path.exists() else ""
    missing = [pattern for pattern in patterns if pattern not in text.splitlines()]
    if missing:
        gap = "" if not text or text.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(gap + "".join(f"{pattern}\n" for pattern in missing))
    return missing
