"""What happens with a commit that every reviewer passed: nothing, its branch, a merge, or the text of a request."""

import shlex
from pathlib import Path
from typing import NamedTuple

from mam.broker.host import fault_points
from mam.control_plane.control_root.context import Mam
from mam.control_plane.loops.state import LoopState, Review
from mam.control_plane.registry.records import Loop
from mam.control_plane.worktrees import prepare as worktrees
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, snapshot
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.command import GitFailed
from mam.wrappers.git.snapshot import CapturedCommit

MODES = ("none", "branch", "merge", "pr-body")


class Promotion(NamedTuple):
    """*moved*: the worktree is no longer what was reviewed. *refused*: why a person must act. *done*: what was done."""

    moved: bool = False
    refused: str = ""
    done: str = ""


def promote(mam: Mam, loop: Loop, state: LoopState) -> Promotion:
    """
    Look once more that the worktree holds exactly what was reviewed, then do what the loop was asked for.

    Only ever the reviewed commit itself is promoted, by its sha and with the old
    value compared, so whatever moves in between makes this fail, not lie. Done
    again after a crash it finds what was done. Nothing is pushed.
    """
    at = state.round
    snap = CapturedCommit(at.head, at.tip, at.captured)
    tree = Path(loop.worktree)
    if snap.captured and dotgit.commit_of(tree) == snap.head:
        snap = snap._replace(tip=snap.head)  # by the promotion that a crash interrupted
    if dotgit.branch_of(tree) != loop.branch or not snapshot.still(tree, snap):
        return Promotion(moved=True)
    fault_points.point("loop.promote")
    if loop.promote == "branch":
        return _branch(loop, tree, snap)
    if loop.promote == "merge":
        return _merge(mam, loop, tree, snap)
    if loop.promote == "pr-body":
        return _request(loop, state, snap)
    return Promotion(done=next_command(mam, loop, snap))


def next_command(mam: Mam, loop: Loop, snap: CapturedCommit) -> str:
    """What a person would run next, word for word: by the commit's name, so that nothing newer comes along."""
    if snap.captured:
        return f"{_take_over(loop, snap)}   # puts the reviewed work on {loop.branch or 'HEAD'}"
    main = mam.layout.root
    on, tip = dotgit.branch_of(main), dotgit.commit_of(main)
    if on is not None and tip is not None and not git.is_ancestor(main, tip, snap.head):
        return f"{_rebase(loop, on)}   # {on} has commits that the reviewed one has not; then another loop"
    place, words = _forward(main, on, tip, snap)
    return f"MAM_ALLOW_MAIN=1 {shlex.join(['git', '-C', str(place), *words])}"


def _forward(main: Path, on: str | None, tip: str | None, snap: CapturedCommit) -> tuple[Path, list[str]]:
    """Where git forwards the main branch, and by what: a bare repository has it in a worktree, or nowhere."""
    place = git_worktrees.holder(main, on) if on is not None and dotgit.says_bare(main) else main
    if place is None:
        return main, ["update-ref", f"refs/heads/{on}", snap.head, *([tip] if tip else [])]
    return place, ["merge", "--ff-only", snap.head]


def _rebase(loop: Loop, on: str) -> str:
    return shlex.join(["git", "-C", loop.worktree, "rebase", on])


def _take_over(loop: Loop, snap: CapturedCommit) -> str:
    """The command that commits what was reviewed; it fails where a commit came in between."""
    git_there = f"git -C {shlex.quote(loop.worktree)}"
    return f"{git_there} update-ref HEAD {snap.head} {snap.tip} && {git_there} reset --quiet"


def _branch(loop: Loop, tree: Path, snap: CapturedCommit) -> Promotion:
    """Have the worktree's branch end at the reviewed commit; its files are that commit's already."""
    if snap.captured:
        try:
            git.act(tree, "update-ref", "-m", f"mam: loop {loop.id} passed", "HEAD", snap.head, snap.tip)
        except GitFailed as error:
            if dotgit.commit_of(tree) != snap.tip:
                return Promotion(moved=True)
            return Promotion(refused=error.why)  # for example a lock that was left behind
        fault_points.point("loop.promoted.ref")
        git.act(tree, "reset", "--quiet")  # the index alone: what it held is in the commit
    return Promotion(done=f"{loop.branch or 'HEAD of ' + loop.worktree} is at {snap.head}")


def _merge(mam: Mam, loop: Loop, tree: Path, snap: CapturedCommit) -> Promotion:
    """
    Forward the main checkout's branch to the reviewed commit.

    Only forward: a merge with commits that came meanwhile would be a tree that was never reviewed.
    """
    main = mam.layout.root
    on = dotgit.branch_of(main)
    with mam.registry.view() as view:
        expected = view.meta("main_branch") or on
    if on is None or on != expected:
        return Promotion(refused=f"{main} is on {on or 'no branch'}, not on {expected}")
    tip = dotgit.commit_of(main)
    if tip is None or not git.is_ancestor(main, tip, snap.head):
        hint = f"`{_rebase(loop, on)}`, then another loop"
        return Promotion(refused=f"{on} has commits that the reviewed one has not: {hint}")
    first = _branch(loop, tree, snap)
    if first.moved:
        return first
    with worktrees.repository_lock(mam):
        place, words = _forward(main, on, tip, snap)
        try:
            git.act(place, *words)
        except GitFailed as error:
            again = next_command(mam, loop, CapturedCommit(snap.head, snap.head, captured=False))
            return Promotion(refused=f"{place}: {error.why}; then `{again}`")
    return Promotion(done=f"{on} is at {snap.head}")


def _request(loop: Loop, state: LoopState, snap: CapturedCommit) -> Promotion:
    path = Path(loop.folder) / "pr-body.md"
    lines = [f"# {loop.title}", "", f"Reviewed at {snap.head} (base {state.round.base}) in loop {loop.id}:", ""]
    lines += [f"- round {each.number}: {_told(each.reviews)}" for each in state.rounds]
    path.write_text("\n".join([*lines, ""]), "utf-8")
    steps = [f"cd {shlex.quote(loop.worktree)}", *([_take_over(loop, snap)] if snap.captured else [])]
    branch = loop.branch or loop.id
    # The reviewed commit itself, under the branch's name: what came after it waits for its own review.
    steps.append(shlex.join(["git", "push", "origin", f"{snap.head}:refs/heads/{branch}"]))
    steps.append(shlex.join(["gh", "pr", "create", "--head", branch, "--title", loop.title, "--body-file", str(path)]))
    return Promotion(done=" && ".join(steps))


def _told(reviews: tuple[Review, ...]) -> str:
    return ", ".join(f"{each.reviewer} {each.verdict or 'no verdict'}" for each in reviews)
