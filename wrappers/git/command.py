"""
Git commands: questions about repositories, and changes to them, in flat functions.

Every command runs without the variables that a hook or an outer git left in the environment, and without the
repository's own programs (fsmonitor, hooks). No command asks a person.
"""

import re
import shutil
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from mam.broker.errors import MamError
from mam.wrappers import process

Git: Any = None
try:
    from git.cmd import Git
    from git.exc import CommandError
except ImportError:
    pass  # GitPython cannot be imported where git is not installed: `ask` raises GitFailed for that

# MAM names the folder itself: where a person's own search for a repository ends says nothing about it.
_UNSET = (*process.OF_GIT, "GIT_CEILING_DIRECTORIES")
# A repository's own configuration can run programs and garbage collections. MAM needs none of them.
_SAFE = [
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.ignoreStat=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=0",
]
# Where git-lfs is not installed, its filter would fail every checkout. The pointers are committed, and they are enough.
_NO_LFS = ["-c", "filter.lfs.smudge=", "-c", "filter.lfs.process=", "-c", "filter.lfs.clean="]
_NO_LFS += ["-c", "filter.lfs.required=false"]
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ASK_S = 30.0
ACT_S = 600.0

_lock: ContextVar[tuple[int, ...]] = ContextVar("_lock", default=())


class GitFailed(MamError):
    """A git command failed. *why* is what git printed."""

    words: str
    folder: str
    why: str

    code = "git_failed"
    message = "git {words} in {folder}: {why}"
    remedy_text = "put right what git names in {folder}, then give the same command again"


class GitSaidNo(GitFailed):
    """Git ended with exit code 1 and printed no error: its answer to a question is no. It could look."""


class NoRepository(MamError):
    """The directory belongs to no work tree of a git repository."""

    folder: str

    code = "no_repository"
    exit_code = 2
    message = "{folder} is not inside a git repository with a work tree"
    remedy_text = "go to your repository, make one with `git init`, or give --no-git to `mam init`"


@contextmanager
def keeping(lock: int) -> Generator[None]:
    """
    Pass the descriptor of a lock to every git process that is started inside.

    Git goes on where this process is killed. The lock is free only after both have ended.
    """
    token = _lock.set((*_lock.get(), lock))
    try:
        yield
    finally:
        _lock.reset(token)


def ask(folder: Path, *words: str, index: Path | None = None) -> str:
    """Return the output of one read-only git command in *folder*; *index* replaces its index file. Raises GitFailed."""
    extra = {"GIT_OPTIONAL_LOCKS": "0"}
    if index is not None:
        extra["GIT_INDEX_FILE"] = str(index)
    return _run(folder, words, extra, ASK_S)


def act(folder: Path, *words: str, variables: Mapping[str, str] | None = None, stdin: str = "") -> str:
    """Return the output of one git command that changes something. After GitFailed, a part of the change may stay."""
    return _run(folder, words, dict(variables or {}), ACT_S, stdin)


def _run(folder: Path, words: tuple[str, ...], extra: dict[str, str], timeout_s: float, stdin: str = "") -> str:
    if Git is None:
        raise GitFailed(words=" ".join(words), folder=str(folder), why="git is not installed")
    unset = [part for name in _UNSET for part in ("-u", name)]
    fixed = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", **extra}
    safe = _SAFE if shutil.which("git-lfs") else [*_SAFE, *_NO_LFS]
    command = ["env", *unset, *(f"{name}={value}" for name, value in fixed.items())]
    command += ["git", "-C", str(folder), *safe, *words]
    threads = set(threading.enumerate())
    try:
        # Only git.cmd.Git is used, since a Repo object would keep child processes open.
        with tempfile.TemporaryFile() as source:
            source.write(stdin.encode("utf-8", "surrogateescape"))  # paths may have any bytes
            source.seek(0)
            # GitPython can only add to the environment, so secrets become empty for git's own helpers.
            hidden = dict.fromkeys(process.SECRET, "")
            answer = Git().execute(
                command, istream=source, env=hidden, kill_after_timeout=timeout_s, pass_fds=_lock.get()
            )
    except CommandError as error:
        why = str(error.stderr).strip().removeprefix("stderr: ").strip("' \n")
        kind = GitSaidNo if error.status == 1 and not why else GitFailed
        why = why or f"exit code {error.status}"
        raise kind(words=" ".join(words)[:300], folder=str(folder), why=why) from error
    except BaseException:
        _let_go(threads)
        raise
    return str(answer)


def _let_go(before: set[threading.Thread]) -> None:
    """Cancel the timer that GitPython leaves behind after an interrupt. This process would wait for it at its end."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread not in before:
            thread.cancel()


def unknown(folder: Path, words: str, printed: str) -> GitFailed:
    """Return the error for output of the git command *words* that MAM does not know: it says nothing."""
    return GitFailed(words=words, folder=str(folder), why=f"it printed what mam does not know: {printed[:200]!r}")


def resolve(folder: Path, revision: str) -> str | None:
    """
    Return the full sha of the commit that *revision* names in *folder*; None where it names no commit.

    Raises GitFailed where git could not look: that is never an absence.
    """
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        sha = ask(folder, *words)
    except GitSaidNo:
        return None
    except GitFailed as error:
        if "expected commit type" in error.why:  # a tree or a file, so no commit
            return None
        raise
    if not _SHA.fullmatch(sha):
        raise unknown(folder, " ".join(words), sha)
    return sha


def branch_tip(folder: Path, branch: str) -> str | None:
    """
    Return the sha of a local branch; None where there is no such branch. A tag of the same name does not count.

    Raises GitFailed where git could not look.
    """
    return resolve(folder, f"refs/heads/{branch}")


def is_ancestor(folder: Path, older: str, newer: str) -> bool:
    """Whether the history of *newer* contains *older*; False as well where git cannot tell."""
    try:
        ask(folder, "merge-base", "--is-ancestor", older, newer)
    except GitFailed:
        return False
    return True


# -- questions -------------------------------------------------------------------------------


def top(folder: Path) -> Path:
    """Return the top of the work tree that holds *folder*. Raises NoRepository."""
    try:
        return Path(ask(folder, "rev-parse", "--show-toplevel"))
    except GitFailed as error:
        raise NoRepository(folder=str(folder)) from error


def common_dir(folder: Path) -> Path:
    """Return the git directory that all worktrees of the repository share. Raises NoRepository."""
    try:
        return Path(ask(folder, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    except GitFailed as error:
        raise NoRepository(folder=str(folder)) from error


def git_dir(folder: Path) -> Path:
    """Return the git directory of the work tree that holds *folder*. Raises GitFailed."""
    return Path(ask(folder, "rev-parse", "--absolute-git-dir"))


def bare(folder: Path) -> bool:
    """Whether *folder* lies in a bare repository. Raises GitFailed where it lies in none."""
    return ask(folder, "rev-parse", "--is-bare-repository") == "true"


def main_checkout(folder: Path) -> Path:
    """
    Return the main checkout of the repository that *folder* belongs to. *folder* may lie in a linked worktree.

    A bare repository has no main checkout, so its own folder is returned. Raises NoRepository.
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
    """Add the *patterns* that are missing to the repository's own exclude file. Returns those that were added."""
    path = common_dir(folder) / "info" / "exclude"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text("utf-8", "surrogateescape") if path.exists() else ""
    missing = [pattern for pattern in patterns if pattern not in text.splitlines()]
    if missing:
        gap = "" if not text or text.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(gap + "".join(f"{pattern}\n" for pattern in missing))
    return missing
