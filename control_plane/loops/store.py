"""Review loops as rows: saved, cancelled, archived. loop_begin.py makes them, loop_run.py carries them out."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace

from mam.broker import spool
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host.waiting import wait_until
from mam.control_plane.control_root.context import Mam
from mam.control_plane.leases import leases
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import review_trees
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops.locks import LoopRuns
from mam.control_plane.loops.state import LoopState
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Loop
from mam.wrappers.git import snapshot
from mam.wrappers.git.command import GitFailed


class UnknownLoop(MamError):
    """No loop has this id."""

    loop: str

    code = "unknown_loop"
    exit_code = 2
    message = "there is no loop {loop!r}"
    remedy_text = "`mam loop list` shows them"


class LoopOpen(LoopRuns):
    """The loop must have ended first."""

    state: str

    message = "the loop {loop} has not ended: it is {state}"
    remedy_text = "`mam loop resume {loop}` goes on with it, `mam loop cancel {loop}` ends it"


class LoopEnded(MamError):
    """The loop has ended, so it cannot go on."""

    loop: str
    outcome: str

    code = "loop_ended"
    message = "{loop} has ended: {outcome}"
    remedy_text = "`mam loop show {loop}`; `mam loop run` begins another one"


class NotEnded(MamError):
    """The process that carries the loop out did not react to the cancellation in time."""

    loop: str
    waited_s: float

    code = "loop_not_ended"
    exit_code = 4
    message = "the process that carries {loop} out did not end it within {waited_s:g} s"
    remedy_text = "`mam why {loop}` says what it does; kill it, then `mam loop cancel {loop}` again"


def need(view: View, loop_id: str) -> Loop:
    """Raises UnknownLoop."""
    loop = view.loop(loop_id)
    if loop is None:
        raise UnknownLoop(loop=loop_id)
    return loop


def state_of(loop: Loop) -> LoopState:
    return loop_state.from_json(json.loads(loop.checkpoint))


def save(mam: Mam, loop: Loop, state: LoopState, mine: Mapping[str, int] | None = None) -> Loop:
    """
    Write the checkpoint; never over one that another process wrote in between, and only while *mine* is held.

    Raises LoopRuns, Fenced.
    """
    with mam.registry.transaction() as tx:
        leases.check(tx, loop.id, mine or {})
        if state.phase != "reviewing":  # in the same step: a death in between must not keep reviewers from others
            leases.release_all(tx, loop.id)
        current = need(tx, loop.id)
        if current.generation != loop.generation:
            raise LoopRuns(loop=loop.id)
        now = now_ms()
        after = replace(
            current,
            state=state.phase,
            generation=loop.generation + 1,
            checkpoint=json.dumps(loop_state.to_json(state)),
            updated_at=now,
            round=len(state.rounds),
            head_sha=(state.round.head or current.head_sha) if state.rounds else None,
            outcome=state.outcome,
            detail=state.detail or None,
            ended_at=now if state.phase == "ended" else None,
        )
        tx.put(after)
    loop_files.summary(after, state)
    spool.wake(mam.layout.monitor_wake)
    return after


def ask_cancel(mam: Mam, loop_id: str) -> Loop:
    """Note that a loop is to be cancelled; the process that carries it out sees that. Raises UnknownLoop, LoopEnded."""
    with mam.registry.transaction() as tx:
        loop = need(tx, loop_id)
        if loop.ended_at is not None:
            raise LoopEnded(loop=loop_id, outcome=loop.outcome or loop.state)
        asked = replace(loop, cancel_at=loop.cancel_at or now_ms())
        tx.put(asked)
    return asked


def await_end(mam: Mam, loop_id: str, *, wait_s: float = 120.0) -> Loop:
    """The loop when the process that carries it out has ended it. Raises UnknownLoop, and NotEnded after *wait_s*."""

    def ended() -> Loop | None:
        with mam.registry.view() as view:
            loop = need(view, loop_id)
        return loop if loop.ended_at is not None else None

    loop = wait_until(ended, wait_s, every_s=0.05)
    if loop is None:
        raise NotEnded(loop=loop_id, waited_s=wait_s)
    return loop


def exit_code(loop: Loop, state: LoopState) -> int:
    """0: passed, and promoted as asked. 3: refused by a reviewer, or failed by its creator. 1: anything else."""
    if loop.outcome == "passed":
        return 0 if state.promoted else 1
    by_creator = loop.outcome == "failed" and bool(state.rounds) and not state.round.head
    return 3 if loop.outcome == "not_pass" or by_creator else 1


def archive(mam: Mam, loop_id: str) -> int:
    """Put an ended loop away: its commits are pinned no longer. Its folder stays. How many pins there were."""
    with mam.registry.view() as view:
        loop = need(view, loop_id)
        if loop.ended_at is None:
            raise LoopOpen(loop=loop_id, state=loop.state)
    review_trees.close_all(mam, loop_id)
    if loop.remote is not None:
        with contextlib.suppress(GitFailed):  # it may be gone for good by now
            snapshot.unpush(mam.layout.root, loop.remote, loop_id)
    freed = snapshot.unpin(mam.layout.root, loop_id)
    with mam.registry.transaction() as tx:
        tx.put(replace(need(tx, loop_id), archived_at=now_ms()))
    return freed
