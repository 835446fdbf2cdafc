"""
What a review loop does: it captures a commit, has it reviewed, checks that the worktree still holds it, promotes it.

Each action answers an order of the state machine with one event. Every one of them can be done twice without harm: jobs
have names of their own, commits are pinned, review trees carry what they hold. When and in which order they happen,
and what is written down about it, is the matter of `run.py`.
"""

import contextlib
import shlex
from pathlib import Path

from mam.broker.errors import MamError
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import attention, delegate, jobs
from mam.control_plane.jobs.delegate import Limits
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.loops import promote, review_trees
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops.jobs import LoopJobs
from mam.control_plane.loops.state import (
    Ask,
    Capture,
    Look,
    LoopEvent,
    LoopState,
    Order,
    Promote,
    Reviewed,
    Work,
    WorkEnded,
)
from mam.control_plane.registry.records import OPEN, Loop
from mam.control_plane.sessions.lookup import SessionNotRunning, UnknownSession
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, snapshot
from mam.wrappers.git.snapshot import CapturedCommit

# Why a job cannot be had now, though a person may change that.
IMPOSSIBLE = (
    SessionNotRunning,
    UnknownSession,
    jobs.JobArchived,
    delegate.JobFilesGone,
    review_trees.ReviewTreeFailed,
)


class OtherBranch(MamError):
    """The worktree is on another branch than the one that the loop is about."""

    tree: str
    on: str
    branch: str
    hint: str

    code = "other_branch"
    message = "{tree} is on {on}, and the loop is about {branch}"
    remedy_text = "{hint}"


class IdentityChanged(MamError):
    """The commits of a round are no longer those that were pinned, so its verdicts cannot be trusted."""

    loop: str
    round: int
    what: str

    code = "identity_changed"
    message = "what {loop} reviews in round {round} was changed behind its back: {what}"
    remedy_text = "its verdicts cannot be trusted: `mam loop cancel {loop}`, then another loop"


class ReviewActions:
    """
    The actions of one loop. They change worktree, jobs, pins and files; they never write the loop's own record.

    *loop* is the record as it was when the process took the loop up: its id, worktree, branch and folder never change.
    """

    def __init__(self, mam: Mam, loop: Loop, limits: Limits | None) -> None:
        self._mam, self._loop = mam, loop
        self._jobs = LoopJobs(mam, loop, limits)

    def check_identity(self, state: LoopState) -> None:
        """The round's commits must be those that were written down. Raises IdentityChanged."""
        at = state.round if state.rounds else None
        if at is None or not at.head:
            return
        what = loop_files.other_identity(self._loop, at)
        pinned = snapshot.pinned(self._mam.layout.root, f"{self._loop.id}/{at.number}")
        if pinned != (at.base, at.head):
            what = f"it is pinned as {' '.join(pinned) if pinned else 'nothing'}, not as {at.base} {at.head}"
        if what:
            raise IdentityChanged(loop=self._loop.id, round=at.number, what=what)

    # -- orders that are answered at once ---------------------------------------------------------

    def at_once(self, state: LoopState, order: Order) -> LoopEvent:
        """Carry out an order that no agent is needed for, and return its event."""
        match order:
            case Capture(number):
                return self._capture(state, number)
            case Look():
                return loop_state.Looked(snapshot.still(Path(self._loop.worktree), _commit_of(state)))
            case Promote():
                return self._promote(state)
        raise AssertionError(order)  # agents answer the others

    def _capture(self, state: LoopState, number: int) -> LoopEvent:
        name, root, tree = f"{self._loop.id}/{number}", self._mam.layout.root, Path(self._loop.worktree)
        base = self._loop.base_sha
        try:
            commit = snapshot.capture(tree, f"mam: loop {self._loop.id}, round {number}")
            self._check_branch(tree)
            snapshot.pin(root, name, base, commit.head)
            self._jobs.publish(number, base, commit.head)
            some = self._jobs.write_changes(number, base, commit.head)
        except (snapshot.NotCapturable, OtherBranch, git.GitFailed) as error:
            return loop_state.NotCaptured(f"{error} ({error.remedy})" if error.remedy else str(error))
        captured = loop_state.Captured(base, commit.head, commit.tip, commit.captured, not some)
        seen, _ = loop_state.step(state, captured)
        loop_files.identity(self._loop, seen.round)
        return captured

    def _check_branch(self, tree: Path) -> None:
        on, branch = dotgit.branch_of(tree), self._loop.branch
        if on != branch:
            back = ["switch", branch] if branch else ["switch", "--detach"]
            hint = shlex.join(["git", "-C", str(tree), *back])
            raise OtherBranch(tree=str(tree), on=on or "no branch", branch=branch or "no branch", hint=hint)

    def _promote(self, state: LoopState) -> LoopEvent:
        result = promote.promote(self._mam, self._loop, state)
        if result.moved or result.refused:
            return loop_state.NotPromoted(result.moved, result.refused)
        return loop_state.Promoted(result.done)

    # -- orders that agents answer ----------------------------------------------------------------

    def plan(self, order: Work | Ask) -> int:
        """Which attempt of its job carries *order* out; decided once, and kept for a successor."""
        return self._jobs.plan(order)

    def send(self, state: LoopState, order: Work | Ask, attempt: int) -> None:
        """Have that attempt on its way. Raises SessionBusy, and one of IMPOSSIBLE where it cannot be had now."""
        self._jobs.send(state, order, attempt)

    def answer(self, state: LoopState, order: Work | Ask, attempt: int) -> LoopEvent | None:
        """What came of that attempt; None while its job is open."""
        if isinstance(order, Work):
            return self._jobs.worked(order, attempt)
        return self._jobs.reviewed(state, order, attempt)

    @staticmethod
    def impossible(order: Work | Ask, why: str) -> LoopEvent:
        """The answer to an order that cannot be sent at all."""
        if isinstance(order, Ask):
            return Reviewed(order.reviewer, order.attempt, None, why)
        return WorkEnded(False, False, why)

    def wants(self, orders: list[Work | Ask], now: int) -> set[attention.Want]:
        """What the agents at work on *orders* want of a person."""
        with self._mam.registry.view() as view:
            sent = [view.job(loop_jobs.name_of(self._loop.id, order)) for order in orders]
            at_work = [job for job in sent if job is not None and job.state in OPEN]
            return {want for job in at_work for want in attention.wants(view, job, now)}

    # -- leaving ----------------------------------------------------------------------------------

    def tidy(self, state: LoopState) -> None:
        """Remove review trees whose verdict is in, or whose round is over."""
        for each in state.rounds:
            over = each is not state.round or state.phase != "reviewing"
            for review in each.reviews:
                if over or review.settled:
                    review_trees.close(self._mam, self._loop.id, each.number, review.reviewer)

    def call_off(self) -> None:
        """Cancel the loop's open jobs. Before its end is written down: a crash in between leaves no job unwatched."""
        with self._mam.registry.view() as view:
            mine = [job.id for job in view.jobs(states=OPEN) if job.loop == self._loop.id]
        for job_id in mine:
            with contextlib.suppress(jobs.JobEnded):  # it was reported in this instant
                jobs.cancel(self._mam, job_id, f"the loop {self._loop.id} was cancelled")

    def leave(self, state: LoopState) -> None:
        """Remove what only a loop at work needs."""
        with self._mam.registry.view() as view:
            at_work = any(job.loop == self._loop.id for job in view.open_jobs())
        if not at_work:  # the reviewers of a stuck loop may be at work; their trees stay until they are done
            review_trees.close_all(self._mam, self._loop.id)
        if state.phase == "ended":
            with contextlib.suppress(MamError):  # a remote that is away keeps its pins until `loop archive`
                self._jobs.withdraw()


def _commit_of(state: LoopState) -> CapturedCommit:
    at = state.round
    return CapturedCommit(at.head, at.tip, at.captured)
