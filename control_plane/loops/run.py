"""
A loop carried out: orders in, events out, a checkpoint before and after each side effect.

Every order can be carried out twice without harm: jobs have names of their own,
commits are pinned, benches carry what they hold. So a killed loop is simply run
again by the one process that gets its lock.
"""

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import fault_points
from mam.broker.host.progress import Progress
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import attention, jobs
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.leases import leases
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.loops import promote, review_trees
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops import store as loop_store
from mam.control_plane.loops import timeline as loop_timeline
from mam.control_plane.loops.jobs import LoopJobs
from mam.control_plane.loops.lease import ReviewerLease
from mam.control_plane.loops.state import (
    Ask,
    Capture,
    Halted,
    Look,
    LoopEvent,
    Order,
    Promote,
    Reviewed,
    Work,
    WorkEnded,
)
from mam.control_plane.registry.records import OPEN, Loop, StepMark
from mam.control_plane.sessions.lookup import SessionBusy, SessionNotRunning, UnknownSession
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, snapshot
from mam.wrappers.git.snapshot import CapturedCommit

POLL_S = 0.05
MONITOR_LOOK_S = 5.0
# Why a job cannot be had now, though a person may change that.
_IMPOSSIBLE = (
    SessionNotRunning,
    UnknownSession,
    jobs.JobArchived,
    delegation.JobFilesGone,
    review_trees.ReviewTreeFailed,
)


class OtherBranch(MamError):
    code = "other_branch"
    message = "{tree} is on {on}, and the loop is about {branch}"
    remedy_text = "{hint}"


class IdentityChanged(MamError):
    code = "identity_changed"
    message = "what {loop} reviews in round {round} was changed behind its back: {what}"
    remedy_text = "its verdicts cannot be trusted: `mam loop cancel {loop}`, then another loop"


class LoopRun:
    """One process's hold on one loop; the caller holds the loop's lock (`loops.held`)."""

    def __init__(self, mam: Mam, loop: Loop, say: Progress, limits: delegation.Limits | None = None) -> None:
        self._mam, self._loop, self._say = mam, loop, say
        self._state = loop_store.state_of(loop)
        self._jobs = LoopJobs(mam, loop, limits)
        self._lease = ReviewerLease(mam, loop.id, loop.priority, say)
        self._sent: dict[Order, int] = {}  # to the attempt of its job that carries it out
        self._busy: dict[Order, tuple[float, float]] = {}  # since when, and when it is tried again
        self._wanted: set[tuple[str, str]] = set()  # of a person, by the agents that are waited for
        self._retry_s = mam.settings.seconds("MAM_SESSION_BUSY_RETRY_S", 30)
        self._patience_s = mam.settings.seconds("MAM_LOOP_WAIT_S", 3600)

    def run(self) -> Loop:
        """Go on until the loop has ended or waits for a person. Raises what a broken registry or disk raises."""
        stuck = self._state.phase == "stuck"
        self._lease.take_over(len(self._state.rounds) if self._state.phase == "reviewing" else None)
        self._check_identity()
        if self._state.phase not in ("new", "stuck"):
            loop_files.note(self._loop, f"taken up again in round {len(self._state.rounds)}")
        self._take(self._cancelled() or (loop_state.Resumed() if stuck else loop_state.Began()))
        while self._state.phase not in ("ended", "stuck"):
            self._tidy()
            orders = loop_state.pending(self._state)
            asked = [order for order in orders if isinstance(order, Work | Ask)]
            self._take(self._cancelled() or (self._wait(asked) if asked else self._at_once(orders[0])))
        self._leave()
        return self._loop

    def _check_identity(self) -> None:
        """Whoever takes a loop up finds the round's commits as they were written down. Raises IdentityChanged."""
        at = self._state.round if self._state.rounds else None
        if at is None or not at.head or self._cancelled():
            return
        what = loop_files.other_identity(self._loop, at)
        pinned = snapshot.pinned(self._mam.layout.root, f"{self._loop.id}/{at.number}")
        if pinned != (at.base, at.head):
            what = f"it is pinned as {' '.join(pinned) if pinned else 'nothing'}, not as {at.base} {at.head}"
        if what:
            raise IdentityChanged(loop=self._loop.id, round=at.number, what=what)

    def _take(self, event: LoopEvent) -> None:
        before = self._state
        after, _ = loop_state.step(before, event)
        if after == before:
            return
        if isinstance(event, loop_state.LoopCancelled):
            self._call_off()
        fault_points.point("loop.save")
        mine = self._lease.tokens if isinstance(event, Reviewed) else {}
        try:
            self._loop = loop_store.save(self._mam, self._loop, after, mine)
        except leases.Fenced as error:
            self._say(f"{error}: asking again")  # the verdict stays in its job, and counts when they are ours again
            self._lease.lost()
            return
        fault_points.point("loop.saved")
        self._state = after
        if after.phase != "reviewing":
            self._lease.given_back()
        happened = loop_timeline.happened(before, event, self._loop)
        for text in filter(None, (happened, loop_timeline.ending(self._state))):
            self._say(text)
            loop_files.note(self._loop, text)
        for old, new in zip(before.rounds, self._state.rounds, strict=False):
            if new.stale and not old.stale:
                loop_files.superseded(self._loop, new)

    # -- orders that are answered at once -------------------------------------------------

    def _at_once(self, order: Order) -> LoopEvent:
        match order:
            case Capture(number):
                return self._marked(f"r{number}/capture", lambda: self._capture(number))
            case Look():
                at = self._state.round
                snap = CapturedCommit(at.head, at.tip, at.captured)
                return loop_state.Looked(snapshot.still(Path(self._loop.worktree), snap))
            case Promote(number):
                return self._marked(f"r{number}/promote", self._promote)
        raise AssertionError(order)  # somebody else answers the others

    def _capture(self, number: int) -> LoopEvent:
        name, root, tree = f"{self._loop.id}/{number}", self._mam.layout.root, Path(self._loop.worktree)
        try:
            snap = snapshot.capture(tree, f"mam: loop {self._loop.id}, round {number}")
            if (on := dotgit.branch_of(tree)) != self._loop.branch:
                branch = self._loop.branch
                back = ["switch", branch] if branch else ["switch", "--detach"]
                hint = shlex.join(["git", "-C", str(tree), *back])
                raise OtherBranch(tree=tree, on=on or "no branch", branch=branch or "no branch", hint=hint)
            base = self._loop.base_sha
            snapshot.pin(root, name, base, snap.head)
            self._jobs.publish(number, base, snap.head)
            some = self._jobs.write_changes(number, base, snap.head)
        except (snapshot.NotCapturable, OtherBranch, git.GitFailed) as error:
            return loop_state.NotCaptured(f"{error} ({error.remedy})" if error.remedy else str(error))
        captured = loop_state.Captured(base, snap.head, snap.tip, snap.captured, not some)
        seen, _ = loop_state.step(self._state, captured)
        loop_files.identity(self._loop, seen.round)
        return captured

    def _promote(self) -> LoopEvent:
        result = promote.promote(self._mam, self._loop, self._state)
        if result.moved or result.refused:
            return loop_state.NotPromoted(result.moved, result.refused)
        return loop_state.Promoted(result.done)

    def _marked(self, key: str, do: Callable[[], LoopEvent]) -> LoopEvent:
        """Note a side effect before and after it."""
        self._mark(key, "begun")
        fault_points.point("loop.step")
        event = do()
        fault_points.point("loop.stepped")
        self._mark(key, "done")
        return event

    def _mark(self, key: str, state: str, detail: str | None = None) -> None:
        with self._mam.registry.transaction() as tx:
            tx.put(StepMark(self._loop.id, key, state, now_ms(), detail))

    # -- orders that somebody else answers ------------------------------------------------------

    def _wait(self, orders: Sequence[Work | Ask]) -> LoopEvent:
        """Have every order on its way, and return the first answer; a cancel comes first."""
        watch = self._mam.registry.watch()
        look_at, version = 0.0, -1
        try:
            while True:
                if time.monotonic() >= look_at:
                    monitor_process.ensure(
                        self._mam, say=self._say
                    )  # without a monitor no job and no dead holder would end
                    self._tell(orders)
                    look_at = time.monotonic() + MONITOR_LOOK_S
                if self._state.phase == "reviewing" and not self._lease.hold(orders[0].round, self._state.reviewers):
                    if self._lease.waited_s > self._patience_s:
                        return Halted(f"its reviewers were not free for {self._patience_s:g} s")
                    if (event := self._cancelled()) is not None:
                        return event
                    time.sleep(POLL_S)
                    continue
                for order in orders:
                    if order not in self._sent and (early := self._send(order)) is not None:
                        return early
                if (now := watch.data_version()) != version:
                    version = now
                    if (event := self._cancelled() or self._answer(orders)) is not None:
                        return event
                time.sleep(POLL_S)
        finally:
            watch.connection.close()

    def _tell(self, orders: Sequence[Work | Ask]) -> None:
        """Say once what an agent wants of a person: the loop stands still until somebody looks."""
        with self._mam.registry.view() as view:
            sent = [view.job(loop_jobs.name_of(self._loop.id, order)) for order in orders if order in self._sent]
            wants = [attention.wanted(view, job, now_ms()) for job in sent if job is not None and job.state in OPEN]
        wanted = {want for want in wants if want is not None}
        for what, command in sorted(wanted - self._wanted):
            self._say(f"{what}: {command}")
        self._wanted = wanted

    def _send(self, order: Work | Ask) -> LoopEvent | None:
        """Send what is due; an event where it cannot be sent at all."""
        since, again_at = self._busy.get(order, (time.monotonic(), 0.0))
        if time.monotonic() < again_at:
            return None
        try:
            attempt = self._jobs.plan(order)
            fault_points.point("loop.step")
            self._jobs.send(self._state, order, attempt)
            fault_points.point("loop.stepped")
            self._mark(loop_jobs.step_of(order), "done", str(attempt))
        except SessionBusy as error:
            if time.monotonic() - since > self._patience_s:
                return Halted(f"{error} for {self._patience_s:g} s")
            self._say(f"{error}: trying again in {self._retry_s:g} s")
            self._busy[order] = (since, time.monotonic() + self._retry_s)
            return None
        except _IMPOSSIBLE as error:
            return self._impossible(order, f"{error} ({error.remedy})")
        self._sent[order] = attempt
        return None

    def _impossible(self, order: Work | Ask, why: str) -> LoopEvent:
        if isinstance(order, Ask):
            return Reviewed(order.reviewer, order.attempt, None, why)
        return WorkEnded(False, False, why)

    def _answer(self, orders: Sequence[Work | Ask]) -> LoopEvent | None:
        for order in orders:
            attempt = self._sent.get(order)
            event: LoopEvent | None = None
            if attempt is None:
                continue  # its agent is busy with something else
            if isinstance(order, Work):
                event = self._jobs.worked(order, attempt)
            else:
                event = self._jobs.reviewed(self._state, order, attempt)
            if event is not None:
                return event
        return None

    def _cancelled(self) -> LoopEvent | None:
        with self._mam.registry.view() as view:
            loop = loop_store.need(view, self._loop.id)
        return loop_state.LoopCancelled() if loop.cancel_at is not None else None

    # -- leaving --------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Benches whose verdict is in, or whose round is over, are of no use to anybody."""
        for each in self._state.rounds:
            over = each is not self._state.round or self._state.phase != "reviewing"
            for review in each.reviews:
                if over or review.settled:
                    review_trees.close(self._mam, self._loop.id, each.number, review.reviewer)

    def _call_off(self) -> None:
        """Before the end is written down: a crash in between leaves an open loop, and no job that nobody waits for."""
        with self._mam.registry.view() as view:
            mine = [job.id for job in view.jobs(states=OPEN) if job.loop == self._loop.id]
        for job_id in mine:
            with contextlib.suppress(jobs.JobEnded):  # it was reported in this instant
                jobs.cancel(self._mam, job_id, f"the loop {self._loop.id} was cancelled")

    def _leave(self) -> None:
        self._lease.take_over(None)
        with self._mam.registry.view() as view:
            at_work = any(job.loop == self._loop.id for job in view.open_jobs())
        if not at_work:  # where a loop is stuck its reviewers may be, and their trees stay until they are done
            review_trees.close_all(self._mam, self._loop.id)
        if self._state.phase == "ended":
            with contextlib.suppress(MamError):  # a remote that is away keeps it until `loop archive`
                self._jobs.withdraw()
