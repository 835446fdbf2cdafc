"""The orchestrator's commits: in a worktree, on its own branch, on the head that was looked at, or not at all."""

from pathlib import Path

from mam.broker.errors import MamError, Usage
from mam.broker.host import fault_points
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import Worktree
from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees.naming import NoCommit
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, snapshot, uncommitted
from mam.wrappers.git.command import GitFailed


class NotAsExpected(MamError):
    """The worktree's branch or head is not what the caller expects. Nothing was committed."""

    path: str
    why: str
    what: str

    code = "not_as_expected"
    message = "{path} is not as expected: {why}"
    remedy_text = "look what happened there (git -C {path} log), then name the {what} that you mean"


class OperationUnfinished(NotAsExpected):
    """A merge, a rebase or the like stands half done in the worktree."""

    remedy_text = "finish or abort it there, then give the same command again"


class NothingToCommit(MamError):
    """The worktree holds nothing that its head does not hold."""

    path: str

    code = "nothing_to_commit"
    message = "{path} has no changes that could be committed"
    remedy_text = "`git -C {path} status` shows it"


def commit(mam: Mam, name: str, message: str, *, expect_head: str | None = None) -> str:
    """
    Commit everything in a worktree of ours, only on its own branch and on the expected head; the new sha.

    Everything that git does not ignore: also what index flags, settings and a sparse checkout hide.

    The branch is moved by its full name with its old value compared: a switch of branches meanwhile makes this fail,
    and never lands the commit elsewhere. Hooks of the repository do not run.

    Raises UnknownWorktree, NotAsExpected, NothingToCommit, NotCapturable, NoCommit, GitFailed, Busy.
    """
    if not message.strip():
        raise Usage(what="the message is empty", hint="-m 'what was done'")
    with worktrees.alone(mam, name):
        with mam.registry.view() as view:
            row = worktrees.need(view, name)
        path = Path(row.path)
        head = _head(row, expect_head)
        found = uncommitted.look(path)
        snapshot.check(path, found, links=True)
        snapshot.stage(path)
        whole = git.act(path, "write-tree")
        if whole == git.ask(path, "rev-parse", f"{head}^{{tree}}"):
            raise NothingToCommit(path=row.path)
        sha = git.act(path, "commit-tree", *_signed(path), "-p", head, "-m", message, whole)
        fault_points.point("worktree.commit")
        _check_branch(row)
        words = ("update-ref", "-m", f"commit: {message.splitlines()[0]}", f"refs/heads/{row.branch}", sha, head)
        try:
            git.act(path, *words)
        except GitFailed as error:
            raise NotAsExpected(path=row.path, why=error.why, what="head") from error
        return sha


def _head(row: Worktree, expected: str | None) -> str:
    """The head to commit on. Raises NotAsExpected, NoCommit."""
    path = Path(row.path)
    _check_branch(row)
    head = git.resolve(path, "HEAD")
    if head is None:
        raise NotAsExpected(path=row.path, why="its branch has no commit", what="branch")
    if expected is not None:
        wanted = git.resolve(path, expected)
        if wanted is None:
            raise NoCommit(revision=expected, folder=row.path, hint="name the commit that you looked at")
        if wanted != head:
            raise NotAsExpected(path=row.path, why=f"its head is {head}, not {wanted}", what="head")
    going_on = uncommitted.unfinished(path)
    if going_on:
        raise OperationUnfinished(path=row.path, why=going_on[0].what, what="operation")
    return head


def _check_branch(row: Worktree) -> None:
    on = dotgit.branch_of(Path(row.path))
    if on != row.branch:
        raise NotAsExpected(path=row.path, why=f"it is on {on or 'no branch'}, not on {row.branch}", what="branch")


def _signed(path: Path) -> list[str]:
    """As `git commit` would: `commit-tree` alone does not look at the setting."""
    said = git.ask(path, "config", "--type=bool", "--default=false", "--get", "commit.gpgSign")
    return ["-S"] if said == "true" else []
