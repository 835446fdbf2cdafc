"""Who works in which worktree: one writer each."""

from pathlib import Path

from mam.broker.errors import MamError
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, Session


class TreeTaken(MamError):
    owner: str
    worktree: str

    code = "worktree_taken"
    exit_code = 5
    message = "{owner} writes in the worktree {worktree} already"
    remedy_text = "prepare another worktree, or stop it: `mam agent stop {owner}`"


class TreeUnready(MamError):
    worktree: str
    state: str

    code = "worktree_not_ready"
    message = "the worktree {worktree} is {state}"
    remedy_text = "`mam worktree prepare {worktree}` completes it"


def lives_in(cwd: str, path: str) -> bool:
    return Path(cwd).resolve().is_relative_to(Path(path).resolve())


def residents(view: View, path: str) -> list[str]:
    """Sessions whose directory lies in *path*, whatever their state."""
    return [session.name for session in view.sessions() if lives_in(session.cwd, path)]


def check_seat(view: View, session: Session) -> None:
    """
    Raise TreeTaken where *session* would be a second writer in one worktree, TreeUnready where that is not ready.

    Called in the transaction that lets it begin: of two at once, one wins.
    """
    if not _writes(session):
        return
    for tree in view.worktrees():
        if tree.state == "removed" or not lives_in(session.cwd, tree.path):
            continue
        if tree.state != "ready":
            raise TreeUnready(worktree=tree.name, state=tree.state)
        for other in view.sessions():
            if (
                other.name != session.name
                and other.status in LIVE
                and _writes(other)
                and lives_in(other.cwd, tree.path)
            ):
                raise TreeTaken(owner=other.name, worktree=tree.name)


def _writes(session: Session) -> bool:
    return "creator" in session.role.split(",")
