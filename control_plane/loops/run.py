"""
A loop carried out by one process: orders in, events out, a checkpoint before and after each side effect.

This module knows when things happen: marks, waits, leases, the cancel, what is told. What a review does is in
`review.py`. A killed loop is run again by the one process that gets its lock (`locks.held`).
"""

import time
from collections.abc import Callable, Sequence

from mam.broker.envelope.payloads import now_ms
from mam.broker.host import fault_points
from mam.broker.host.progress import Progress, silent
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.monitor_process import NoMonitorHere
from mam.control_plane.jobs.attention import Want
from mam.control_plane.jobs.delegate import Limits
from mam.control_plane.leases import leases
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.loops import review
from mam.control_plane.loops import start as loop_start
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops import store as loop_store
from mam.control_plane.loops import timeline as loop_timeline
from mam.control_plane.loops.lease import ReviewerLease
from mam.control_plane.loops.review import ReviewActions
from mam.control_plane.loops.start import LoopRequest
from mam.control_plane.loops.state import Ask, Capture, Halted, LoopEvent, Order, Promote, Reviewed, Round, Work
from mam.control_plane.registry.records import Loop, StepMark
from mam.control_plane.sessions.lookup import SessionBusy

POLL_S = 0.05
REMARKS_SHOWN = 12
MONITOR_LOOK_S = 5.0


class LoopRun:
    """
    One process's hold on one loop; the caller holds the loop's lock (`locks.held`).

    Whatever ends this process at any moment: the next one goes on from the last checkpoint, and no side effect is
    repeated in a way that shows.
    """

    def __init__(self, mam: Mam, loop: Loop, say: Progress = silent, limits: Limits | None = None) -> None:
        self._mam, self._loop, self._say = mam, loop, say
        self._state = loop_store.state_of(loop)
        self._actions = ReviewActions(mam, loop, limits)
        self._lease = ReviewerLease(mam, loop.id, loop.priority, say)
        self._sent: dict[Order, int] = {}  # to the attempt of its job that carries it out
        self._busy: dict[Order, tuple[float, float]] = {}  # since when, and when it is tried again
        self._wants: set[Want] = set()  # of a person, by the agents that are waited for
        self._retry_s = mam.settings.seconds("MAM_SESSION_BUSY_RETRY_S", 30)
        self._patience_s = mam.settings.seconds("MAM_LOOP_WAIT_S", 3600)

    def run(self) -> Loop:
        """
        Go on until the loop has ended or waits for a person; return its record as it is then.

        Raises IdentityChanged, LoopRuns, NoMonitorHere (the loop is kept), and what a broken registry or disk raises.
        """
        stuck = self._state.phase == "stuck"
        self._lease.take_over(len(self._state.rounds) if self._state.phase == "reviewing" else None)
        if self._cancelled() is None:
            self._actions.check_identity(self._state)
        if self._state.phase not in ("new", "stuck"):
            loop_files.note(self._loop, f"taken up again in round {len(self._state.rounds)}")
        self._take(self._cancelled() or (loop_state.Resumed() if stuck else loop_state.Began()))
        while self._state.phase not in ("ended", "stuck"):
            self._actions.tidy(self._state)
            orders = loop_state.pending(self._state)
            asked = [order for order in orders if isinstance(order, Work | Ask)]
            self._take(self._cancelled() or (self._wait(asked) if asked else self._at_once(orders[0])))
        self._lease.take_over(None)
        self._actions.leave(self._state)
        return self._loop

    # -- events become state ------------------------------------------------------------------------

    def _take(self, event: LoopEvent) -> None:
        before = self._state
        after, _ = loop_state.step(before, event)
        if after == before:
            return
        if isinstance(event, loop_state.LoopCancelled):
            self._actions.call_off()
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
        self._tell_event(before, event)

    def _tell_event(self, before: loop_state.LoopState, event: LoopEvent) -> None:
        happened = loop_timeline.happened(before, event, self._loop)
        for text in filter(None, (happened, loop_timeline.ending(self._state))):
            self._say(text)
            loop_files.note(self._loop, text)
        if before.rounds and len(self._state.rounds) > len(before.rounds) and self._state.phase == "working":
            self._tell_remarks(before.round)
        for old, new in zip(before.rounds, self._state.rounds, strict=False):
            if new.stale and not old.stale:
                loop_files.superseded(self._loop, new)

    def _tell_remarks(self, refused: Round) -> None:
        """Say what goes back to the creator; the remarks of a loop's last round are told with its end."""
        for name in (each.reviewer for each in refused.reviews if each.verdict == "not_pass"):
            lines = loop_files.remarks(self._loop, refused.number, name, lines=REMARKS_SHOWN)
            self._say("\n  ".join([f"{name} refused:", *filter(None, lines)]))

    def _cancelled(self) -> LoopEvent | None:
        with self._mam.registry.view() as view:
            loop = loop_store.need(view, self._loop.id)
        return loop_state.LoopCancelled() if loop.cancel_at is not None else None

    # -- orders become side effects -------------------------------------------------------------------

    def _at_once(self, order: Order) -> LoopEvent:
        match order:
            case Capture(number):
                return self._marked(f"r{number}/capture", lambda: self._actions.at_once(self._state, order))
            case Promote(number):
                return self._marked(f"r{number}/promote", lambda: self._actions.at_once(self._state, order))
        return self._actions.at_once(self._state, order)

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

    def _wait(self, orders: Sequence[Work | Ask]) -> LoopEvent:
        """Have every order on its way, and return the first answer; a cancel comes first."""
        watch = self._mam.registry.watch()
        look_at, version = 0.0, -1
        try:
            while True:
                if time.monotonic() >= look_at:
                    # Without a monitor no job would end, and no lease of a dead holder.
                    if monitor_process.ensure(self._mam, say=self._say) is None:
                        loop = self._loop.id
                        raise NoMonitorHere(kept=f"{loop} is kept, and `mam loop resume {loop}` goes on with it")
                    self._tell_wants(orders)
                    look_at = time.monotonic() + MONITOR_LOOK_S
                if not self._holds_reviewers(orders):
                    if (event := self._waits_in_vain() or self._cancelled()) is not None:
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

    def _holds_reviewers(self, orders: Sequence[Work | Ask]) -> bool:
        return self._state.phase != "reviewing" or self._lease.hold(orders[0].round, self._state.reviewers)

    def _waits_in_vain(self) -> LoopEvent | None:
        if self._lease.waited_s <= self._patience_s:
            return None
        return Halted(f"its reviewers were not free for {self._patience_s:g} s")

    def _send(self, order: Work | Ask) -> LoopEvent | None:
        """Send what is due; an event where it cannot be sent at all."""
        since, again_at = self._busy.get(order, (time.monotonic(), 0.0))
        if time.monotonic() < again_at:
            return None
        try:
            attempt = self._actions.plan(order)
            fault_points.point("loop.step")
            self._actions.send(self._state, order, attempt)
            fault_points.point("loop.stepped")
            self._mark(loop_jobs.step_of(order), "done", str(attempt))
        except SessionBusy as error:
            if time.monotonic() - since > self._patience_s:
                return Halted(f"{error} for {self._patience_s:g} s")
            self._say(f"{error}: trying again in {self._retry_s:g} s")
            self._busy[order] = (since, time.monotonic() + self._retry_s)
            return None
        except review.IMPOSSIBLE as error:
            return self._actions.impossible(order, f"{error} ({error.remedy})")
        self._sent[order] = attempt
        return None

    def _answer(self, orders: Sequence[Work | Ask]) -> LoopEvent | None:
        """The first answer to *orders*; those whose agent is busy with something else are not sent yet."""
        sent = ((order, attempt) for order in orders if (attempt := self._sent.get(order)) is not None)
        answers = (self._actions.answer(self._state, order, attempt) for order, attempt in sent)
        return next((event for event in answers if event is not None), None)

    def _tell_wants(self, orders: Sequence[Work | Ask]) -> None:
        """Say once what an agent wants of a person: the loop stands still until a person looks."""
        wants = self._actions.wants([order for order in orders if order in self._sent], now_ms())
        for want in sorted(wants - self._wants):
            self._say(want.text())
        self._wants = wants


# -- the verbs ----------------------------------------------------------------------------------------


def begin(mam: Mam, request: LoopRequest, *, say: Progress = silent, limits: Limits | None = None) -> Loop:
    """
    `mam loop run`: enter the loop and carry it out until it has ended or waits for a person.

    Raises what `start.begin` raises, with nothing left behind, and what `LoopRun.run` raises.
    """
    loop_id = request.loop_id or loop_start.new_id()
    with loop_locks.held(mam, loop_id):
        loop = loop_start.begin(mam, request._replace(loop_id=loop_id))
        say(f"loop {loop.id}: {loop_timeline.place(loop)}, base {loop.base_sha[:12]}; files in {loop.folder}")
        return _carry_out(mam, loop, say, limits)


def resume(mam: Mam, loop_id: str, *, say: Progress = silent, limits: Limits | None = None) -> Loop:
    """`mam loop resume`: go on with a loop that was killed or is stuck. Raises UnknownLoop, LoopEnded, LoopRuns."""
    with loop_locks.held(mam, loop_id):
        with mam.registry.view() as view:
            loop = loop_store.need(view, loop_id)
        if loop.ended_at is not None:
            raise loop_store.LoopEnded(loop=loop.id, outcome=loop.outcome or loop.state)
        return _carry_out(mam, loop, say, limits)


def _carry_out(mam: Mam, loop: Loop, say: Progress, limits: Limits | None) -> Loop:
    try:
        return LoopRun(mam, loop, say, limits).run()
    except KeyboardInterrupt:
        say(f"its agents go on; `mam loop resume {loop.id}` takes it up again, `mam loop cancel {loop.id}` ends it")
        raise


def cancel(mam: Mam, loop_id: str, *, say: Progress = silent) -> Loop:
    """
    `mam loop cancel`: end a loop, its jobs and its review trees, by the process that carries it out or by this one.

    Raises UnknownLoop, LoopEnded, NotEnded.
    """
    loop_store.ask_cancel(mam, loop_id)
    try:
        with loop_locks.held(mam, loop_id):
            with mam.registry.view() as view:
                loop = loop_store.need(view, loop_id)
            # Ended already where the process that carried it out has just done it.
            return loop if loop.ended_at is not None else LoopRun(mam, loop, say).run()
    except loop_locks.LoopRuns:
        return loop_store.await_end(mam, loop_id)
