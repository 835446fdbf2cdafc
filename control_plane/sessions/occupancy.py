"""The agents of each worktree. A worktree has at most one that writes."""

from pathlib import Path

from mam.broker.errors import MamError
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, Session


class TreeTaken(MamError):
    """Another agent writes in the worktree already."""

    owner: str
    worktree: str

    code = "worktree_taken"
    exit_code = 5
    message = "{owner} writes in the worktree {worktree} already"
    remedy_text = "prepare another worktree, or stop it: `mam agent stop {owner}`"


class TreeUnready(MamError):
    """The worktree is not completely prepared, or its files are gone."""

    worktree: str
    state: str

    code = "worktree_not_ready"
    message = "the worktree {worktree} is {state}"
    remedy_text = "`mam worktree prepare {worktree}` completes it"


def lives_in(cwd: str, path: str) -> bool:
    """Whether the directory *cwd* is *path*, or lies below it."""
    return Path(cwd).resolve().is_relative_to(Path(path).resolve())


def residents(view: View, path: str) -> list[str]:
    """Return the names of all agents whose directory lies in *path*, in whatever state."""
    return [session.name for session in view.sessions() if lives_in(session.cwd, path)]


def check_seat(view: View, session: Session) -> None:
    """
    Raise TreeTaken where *session* would be a second writer in a worktree, and TreeUnready where that is not ready.

    It must be called in the transaction that lets the agent begin. Of two agents at once, one then wins.
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


def other_writers(view: View, session: Session, root: str) -> list[str]:
    """Return the live writers that share the main checkout *root* with *session*; none where it works elsewhere."""
    if not _writes(session) or not lives_in(session.cwd, root):
        return []
    others = (each for each in view.sessions() if each.name != session.name and each.status in LIVE)
    return [each.name for each in others if _writes(each) and lives_in(each.cwd, root)]


def _writes(session: Session) -> bool:
    return "creator" in session.role.split(",")
