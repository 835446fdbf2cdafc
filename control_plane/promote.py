"""What happens with a commit that every reviewer passed: nothing, its branch, a merge, or the text of a request."""

import shlex
from pathlib import Path
from typing import NamedTuple

from mam.broker import faults
from mam.control_plane import worktrees
from mam.control_plane.loop_machine import Review, State
from mam.control_plane.rows import Loop
from mam.control_plane.wiring import Mam
from mam.wrappers import git, gitfiles, snapshot
from mam.wrappers.git import GitFailed
from mam.wrappers.snapshot import Snapshot

MODES = ("none", "branch", "merge", "pr-body")


class Result(NamedTuple):
    """*moved*: the worktree is no longer what was reviewed. *refused*: why a person must act. *done*: what was done."""

    moved: bool = False
    refused: str = ""
    done: str = ""


def promote(mam: Mam, loop: Loop, state: State) -> Result:
    """
    Look once more that the worktree holds exactly what was reviewed, then do what the loop was asked for.

    Only ever the reviewed commit itself is promoted, by its sha and with the old
    value compared, so whatever moves in between makes this fail, not lie. Done
    again after a crash it finds what was done. Nothing is pushed.
    """
    at = state.round
    snap = Snapshot(at.head, at.tip, at.captured)
    tree = Path(loop.worktree)
    if _advanced(tree, snap):
        snap = Snapshot(at.head, at.head, captured=False)  # by the promotion that a crash interrupted
    if not snapshot.still(tree, snap):
        return Result(moved=True)
    faults.point("loop.promote")
    if loop.promote == "branch":
        return _branch(loop, tree, snap)
    if loop.promote == "merge":
        return _merge(mam, loop, tree, snap)
    if loop.promote == "pr-body":
        return _request(loop, state, snap)
    return Result(done=next_command(loop, snap))


def _advanced(tree: Path, snap: Snapshot) -> bool:
    return snap.captured and gitfiles.commit_of(tree) == snap.head


def next_command(loop: Loop, snap: Snapshot) -> str:
    """What a person would run next, word for word."""
    if snap.captured:
        where = shlex.quote(loop.worktree)
        return f"git -C {where} reset --quiet {snap.head}   # puts the reviewed work on {loop.branch or 'HEAD'}"
    name = shlex.quote(loop.branch or snap.head)
    return f"MAM_ALLOW_MAIN=1 git merge --ff-only {name}   # in the main checkout, at {snap.head}"


def _branch(loop: Loop, tree: Path, snap: Snapshot) -> Result:
    """Have the worktree's branch end at the reviewed commit; its files are that commit's already."""
    if snap.captured:
        try:
            git.act(tree, "update-ref", "-m", f"mam: loop {loop.id} passed", "HEAD", snap.head, snap.tip)
        except GitFailed:
            return Result(moved=True)
        faults.point("loop.promoted.ref")
        git.act(tree, "reset", "--quiet")  # the index alone: what it held is in the commit
    return Result(done=f"{loop.branch or 'HEAD of ' + loop.worktree} is at {snap.head}")


def _merge(mam: Mam, loop: Loop, tree: Path, snap: Snapshot) -> Result:
    """
    Forward the main checkout's branch to the reviewed commit.

    Only forward: a merge with commits that came meanwhile would be a tree that nobody reviewed.
    """
    main = mam.layout.root
    on = gitfiles.branch_of(main)
    with mam.registry.view() as view:
        expected = view.meta("main_branch") or on
    if on is None or on != expected:
        return Result(refused=f"{main} is on {on or 'no branch'}, not on {expected}")
    tip = gitfiles.commit_of(main)
    if tip is None or not git.is_ancestor(main, tip, snap.head):
        hint = f"`git -C {loop.worktree} rebase {on}`, then another loop"
        return Result(refused=f"{on} has commits that the reviewed one has not: {hint}")
    first = _branch(loop, tree, snap)
    if first.moved:
        return first
    with worktrees.repository_lock(mam):
        try:
            git.act(main, "merge", "--ff-only", "--quiet", snap.head)
        except GitFailed as error:
            return Result(refused=f"{main}: {error.data.get('why')}")
    return Result(done=f"{on} is at {snap.head}")


def _request(loop: Loop, state: State, snap: Snapshot) -> Result:
    path = Path(loop.folder) / "pr-body.md"
    lines = [f"# {loop.title}", "", f"Reviewed at {snap.head} (base {state.round.base}) in loop {loop.id}:", ""]
    lines += [f"- round {each.number}: {_told(each.reviews)}" for each in state.rounds]
    path.write_text("\n".join([*lines, ""]), "utf-8")
    first = f"{next_command(loop, snap)}; then " if snap.captured else ""
    head = loop.branch or snap.head
    return Result(done=f"{first}git push origin {head} && gh pr create --head {head} --body-file {path}")


def _told(reviews: tuple[Review, ...]) -> str:
    return ", ".join(f"{each.reviewer} {each.verdict or 'no verdict'}" for each in reviews)
