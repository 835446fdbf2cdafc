"""
A loop carried out: orders in, events out, a checkpoint before and after each side effect.

Every order can be carried out twice without harm: jobs have names of their own,
commits are pinned, benches carry what they hold. So a killed loop is simply run
again by the one process that gets its lock.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from mam.broker import faults
from mam.broker.bodies import now_ms
from mam.broker.errors import MamError
from mam.control_plane import benches, daemon, jobs, leases, loop_files, loop_machine, loops, promote
from mam.control_plane.loop_jobs import LoopJobs
from mam.control_plane.loop_lease import ReviewerLease
from mam.control_plane.loop_machine import (
    Ask,
    Capture,
    Event,
    Halted,
    Look,
    Order,
    Promote,
    Reviewed,
    State,
    Work,
    WorkEnded,
)
from mam.control_plane.rows import OPEN, Loop, StepMark
from mam.control_plane.wiring import Mam
from mam.wrappers import git, snapshot
from mam.wrappers.snapshot import Snapshot

Say = Callable[[str], None]
POLL_S = 0.05
MONITOR_LOOK_S = 5.0


class LoopRun:
    """One process's hold on one loop; the caller holds the loop's lock (`loops.held`)."""

    def __init__(self, mam: Mam, loop: Loop, say: Say, limits: jobs.Limits | None = None) -> None:
        self._mam, self._loop, self._say = mam, loop, say
        self._state = loops.state_of(loop)
        self._jobs = LoopJobs(mam, loop, limits)
        self._lease = ReviewerLease(mam, loop.id, loop.priority, say)
        self._sent: set[Order] = set()
        self._busy: dict[Order, tuple[float, float]] = {}  # since when, and when it is tried again
        self._retry_s = mam.settings.seconds("MAM_SESSION_BUSY_RETRY_S", 30)
        self._patience_s = mam.settings.seconds("MAM_LOOP_WAIT_S", 3600)

    def run(self) -> Loop:
        """Go on until the loop has ended or waits for a person. Raises what a broken registry or disk raises."""
        stuck = self._state.phase == "stuck"
        self._take(self._cancelled() or (loop_machine.Resumed() if stuck else loop_machine.Began()))
        while self._state.phase not in ("ended", "stuck"):
            self._tidy()
            orders = loop_machine.pending(self._state)
            self._take(self._cancelled() or self._at_once(orders[0]) or self._wait(orders))
        self._leave()
        return self._loop

    def _take(self, event: Event) -> None:
        before = self._state
        after, _ = loop_machine.step(before, event)
        if after == before:
            return
        faults.point("loop.save")
        mine = self._lease.tokens if isinstance(event, Reviewed) else {}
        try:
            self._loop = loops.save(self._mam, self._loop, after, mine)
        except leases.Fenced as error:
            self._say(f"{error}: asking again")  # the verdict stays in its job, and counts when they are ours again
            self._lease.lost()
            return
        faults.point("loop.saved")
        self._state = after
        if after.phase != "reviewing":
            self._lease.release()
        for text in filter(None, (_words(before, event), _ending(self._state))):
            self._say(text)
            loop_files.note(self._loop, text)
        for old, new in zip(before.rounds, self._state.rounds, strict=False):
            if new.stale and not old.stale:
                loop_files.superseded(self._loop, new)

    # -- orders that are answered at once -------------------------------------------------

    def _at_once(self, order: Order) -> Event | None:
        match order:
            case Capture(number):
                return self._marked(f"r{number}/capture", lambda: self._capture(number))
            case Look():
                at = self._state.round
                snap = Snapshot(at.head, at.tip, at.captured)
                return loop_machine.Looked(snapshot.still(Path(self._loop.worktree), snap))
            case Promote(number):
                return self._marked(f"r{number}/promote", self._promote)
        return None

    def _capture(self, number: int) -> Event:
        name, root, tree = f"{self._loop.id}/{number}", self._mam.layout.root, Path(self._loop.worktree)
        try:
            snap = snapshot.capture(tree, f"mam: loop {self._loop.id}, round {number}")
            base = self._loop.base_sha
            snapshot.pin(root, name, base, snap.head)
            self._jobs.publish(number, base, snap.head)
            some = self._jobs.write_changes(number, base, snap.head)
        except (snapshot.NotCapturable, git.GitFailed) as error:
            return loop_machine.NotCaptured(f"{error} ({error.remedy})" if error.remedy else str(error))
        captured = loop_machine.Captured(base, snap.head, snap.tip, snap.captured, not some)
        seen, _ = loop_machine.step(self._state, captured)
        loop_files.identity(self._loop, seen.round)
        return captured

    def _promote(self) -> Event:
        result = promote.promote(self._mam, self._loop, self._state)
        if result.moved or result.refused:
            return loop_machine.NotPromoted(result.moved, result.refused)
        return loop_machine.Promoted(result.done)

    def _marked(self, key: str, do: Callable[[], Event]) -> Event:
        """Note a side effect before and after it."""
        self._mark(key, "begun")
        faults.point("loop.step")
        event = do()
        faults.point("loop.stepped")
        self._mark(key, "done")
        return event

    def _mark(self, key: str, state: str) -> None:
        with self._mam.registry.transaction() as tx:
            tx.put(StepMark(self._loop.id, key, state, now_ms()))

    # -- orders that somebody else answers ------------------------------------------------------

    def _wait(self, orders: list[Order]) -> Event:
        """Have every order on its way, and return the first answer; a cancel comes first."""
        watch = self._mam.registry.watch()
        look_at, version = 0.0, -1
        try:
            while True:
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
                if time.monotonic() >= look_at:
                    daemon.ensure(self._mam, say=self._say)  # without a monitor no job would ever end
                    look_at = time.monotonic() + MONITOR_LOOK_S
                if (now := watch.data_version()) != version:
                    version = now
                    if (event := self._cancelled() or self._answer(orders)) is not None:
                        return event
                time.sleep(POLL_S)
        finally:
            watch.connection.close()

    def _send(self, order: Order) -> Event | None:
        """Send what is due; an event where it cannot be sent at all."""
        since, again_at = self._busy.get(order, (time.monotonic(), 0.0))
        if time.monotonic() < again_at:
            return None
        who = order.reviewer if isinstance(order, Ask) else "work"
        key = f"r{order.round}/{who}/{order[-1]}"
        try:
            self._mark(key, "begun")
            faults.point("loop.step")
            if isinstance(order, Work):
                self._jobs.work(self._state, order)
            elif isinstance(order, Ask):
                self._jobs.ask(self._state, order)
            faults.point("loop.stepped")
            self._mark(key, "done")
        except jobs.SessionBusy as error:
            if time.monotonic() - since > self._patience_s:
                return Halted(f"{error} for {self._patience_s:g} s")
            self._say(f"{error}: trying again in {self._retry_s:g} s")
            self._busy[order] = (since, time.monotonic() + self._retry_s)
            return None
        except (jobs.SessionNotRunning, jobs.UnknownSession, jobs.JobFilesGone, benches.BenchFailed) as error:
            return self._impossible(order, f"{error} ({error.remedy})")
        self._sent.add(order)
        return None

    def _impossible(self, order: Order, why: str) -> Event:
        if isinstance(order, Ask):
            return Reviewed(order.reviewer, order.attempt, None, why)
        return WorkEnded(False, False, why)

    def _answer(self, orders: list[Order]) -> Event | None:
        for order in orders:
            event: Event | None = None
            if isinstance(order, Work):
                event = self._jobs.worked(order)
            elif isinstance(order, Ask):
                event = self._jobs.reviewed(self._state, order)
            if event is not None:
                return event
        return None

    def _cancelled(self) -> Event | None:
        with self._mam.registry.view() as view:
            loop = loops.need(view, self._loop.id)
        return loop_machine.Cancelled() if loop.cancel_at is not None else None

    # -- leaving --------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Benches whose verdict is in, or whose round is over, are of no use to anybody."""
        for each in self._state.rounds:
            over = each is not self._state.round or self._state.phase != "reviewing"
            for review in each.reviews:
                if over or review.settled:
                    benches.close(self._mam, self._loop.id, each.number, review.reviewer)

    def _leave(self) -> None:
        self._lease.release()
        if self._state.outcome == "cancelled":
            with self._mam.registry.view() as view:
                mine = [job.id for job in view.jobs(states=OPEN) if job.loop == self._loop.id]
            for job_id in mine:
                with contextlib.suppress(jobs.JobEnded):  # it was reported in this instant
                    jobs.cancel(self._mam, job_id, f"the loop {self._loop.id} was cancelled")
        benches.close_all(self._mam, self._loop.id)
        if self._state.phase == "ended":
            with contextlib.suppress(
                MamError
            ):  # a remote that is away keeps what it has; the loop is over all the same
                self._jobs.withdraw(len(self._state.rounds))


def _words(before: State, event: Event) -> str:
    """What happened, for the timeline."""
    number = len(before.rounds) or 1
    match event:
        case loop_machine.Began():
            return f"round {number} begins"
        case loop_machine.Resumed():
            return f"resumed in round {number}"
        case WorkEnded(ok, failed, why):
            return f"round {number}: {before.creator} " + ("is done" if ok else "failed" if failed else why)
        case loop_machine.Captured(_, head, _, captured, _):
            kind = "a snapshot that holds uncommitted work" if captured else "the branch's commit"
            return f"round {number}: under review is {head}, {kind}"
        case Reviewed(reviewer, _, verdict, why):
            return f"round {number}: {reviewer}: {verdict or f'no verdict that counts: {why}'}"
        case loop_machine.Looked(False) | loop_machine.NotPromoted(True, _):
            return f"round {number}: the worktree moved meanwhile; its new head is reviewed"
        case loop_machine.Promoted(what):
            return f"promoted: {what}"
    return ""


def _ending(state: State) -> str:
    if state.phase == "stuck":
        return f"stuck: {state.detail}"
    return f"{state.outcome}{': ' if state.detail else ''}{state.detail}" if state.phase == "ended" else ""
