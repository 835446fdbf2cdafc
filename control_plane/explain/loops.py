"""`mam why` for loops and worktrees: rows in, an explanation out. Pure but for what the caller looked at."""

import json
import shlex
from pathlib import Path

from mam.broker.host.text import clean
from mam.control_plane.explain.agents_and_jobs import Explanation, back
from mam.control_plane.explain.tables import ago
from mam.control_plane.jobs.attention import wants
from mam.control_plane.leases.leases import queue
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops.jobs import job_id
from mam.control_plane.loops.state import LoopState
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, OPEN, Job, Lease, Loop, Session, StepMark, Worktree
from mam.wrappers.git import dotgit


def loop(view: View, loop: Loop, *, runs: bool, now: int) -> Explanation:
    """Why a loop is where it is. *runs*: some process carries it out at this moment."""
    state = loop_state.from_json(json.loads(loop.checkpoint))
    evidence = [_round_line(each) for each in state.rounds]
    evidence += [f"step {mark.step}: begun {ago(mark.at, now)}, never finished" for mark in _open_steps(view, loop)]
    shown = f"{loop.outcome or loop.state} (round {loop.round}, {ago(loop.updated_at, now)})"
    if loop.ended_at is not None:
        because, awaited, next_step = _ended(loop, state)
    elif loop.state == "stuck":
        because, awaited = loop.detail or "a person must look", "a person"
        next_step = _unstick(view, loop, state)
    elif not runs:
        because = f"the process that carried it out is gone; it was {loop.state}"
        awaited, next_step = "a process that goes on", f"mam loop resume {loop.id}, or mam loop cancel {loop.id}"
    else:
        because, awaited, next_step = _running(view, loop, state, now)
    return Explanation(f"loop {loop.id}", shown, because, evidence, awaited, next_step)


def _round_line(each: loop_state.Round) -> str:
    said = ", ".join(f"{review.reviewer} {review.verdict or review.why or 'not yet'}" for review in each.reviews)
    mark = ", superseded" if each.stale else ""
    return clean(f"round {each.number}: {each.head[:12] or 'no commit yet'}{mark}: {said or 'no reviewer asked yet'}")


def _open_steps(view: View, loop: Loop) -> list[StepMark]:
    return [mark for mark in view.steps(loop.id) if mark.state != "done"] if loop.ended_at is None else []


def _ended(loop: Loop, state: LoopState) -> tuple[str, str, str]:
    if loop.outcome == "passed":
        because = f"all of {', '.join(state.reviewers)} passed {loop.head_sha} (base {loop.base_sha})"
        if loop.detail:
            return f"{because}; {clean(loop.detail)}", "a person", f"mam loop show {loop.id}"
        if loop.promote in ("none", "pr-body"):
            return because, "nothing", state.promoted or f"mam loop show {loop.id}"  # it says what a person may do
        return f"{because}; {clean(state.promoted)}", "nothing", f"mam loop show {loop.id}"
    return clean(loop.detail or "it ended"), "nothing", f"mam loop show {loop.id}; its files are in {loop.folder}"


def _unstick(view: View, loop: Loop, state: LoopState) -> str:
    """What brings the missing ones back, then the loop itself."""
    steps = []
    for name in _awaited(state):
        session, job = view.session(name), _own_job(view, loop, state, name)
        if session is None:
            steps.append(f"mam agent create {name} --agent KIND")
        elif session.status not in LIVE:
            steps.append(back(session))
        elif job is not None:
            steps.append(f"mam why {job.id}")
    return ", then ".join([*steps, f"mam loop resume {loop.id}"])


def _awaited(state: LoopState) -> list[str]:
    """Whom a loop waits for: its creator, or those of its reviewers who said nothing yet."""
    stuck = state.phase == "stuck"
    phase = state.back_to if stuck else state.phase
    if phase == "working":
        return [state.creator] if state.creator else []
    if phase != "reviewing":
        return []
    return [each.reviewer for each in state.round.reviews if each.verdict is None and (stuck or not each.settled)]


def _own_job(view: View, loop: Loop, state: LoopState, name: str) -> Job | None:
    """The round's job of its creator or of a reviewer, once there is one."""
    reviewer = None if name == state.creator else name
    return view.job(job_id(loop.id, state.round.number if state.rounds else 1, reviewer))


def _running(view: View, loop: Loop, state: LoopState, now: int) -> tuple[str, str, str]:
    waiting = _awaited(state)
    if state.phase == "working":
        awaited = "the end of its work"
        because = f"{state.creator} works on round {state.round.number}"
    elif state.phase == "reviewing":
        because, awaited = f"{state.round.head[:12]} is still reviewed by {', '.join(waiting)}", "their verdicts"
        if any(ticket.holder == loop.id for ticket in view.waiting()):
            return f"it waits for its turn with {', '.join(state.reviewers)}", "its reviewers", "mam queue"
    else:
        return f"it is {state.phase}", "its next step, in a moment", f"mam loop show {loop.id}"
    jobs = {name: job for name in waiting if (job := _own_job(view, loop, state, name)) and job.state in OPEN}
    for name in waiting:
        other = view.open_job(name)
        if name not in jobs and other is not None:
            return (
                f"{because}; {name} has the job {other.id} before that",
                f"the end of {other.id}",
                f"mam why {other.id}",
            )
    for job in jobs.values():
        if found := wants(view, job, now):
            whats = "; ".join(want.what for want in found)
            return f"{because}; {whats}", "a person", "; then ".join(", or ".join(want.commands) for want in found)
    return because, awaited, f"mam why {next(iter(jobs.values())).id if jobs else waiting[0]}"


def with_loops(view: View, session: Session, said: Explanation) -> Explanation:
    """What was *said* of an agent, with the open loops that it has a part in, and the one that waits for it."""
    for loop in view.loops(only_open=True):
        state = loop_state.from_json(json.loads(loop.checkpoint))
        if session.name not in (loop.creator, *state.reviewers):
            continue
        what = "its work" if session.name == loop.creator else "its verdict"
        if session.name not in _awaited(state):
            part = "creator" if session.name == loop.creator else "reviewer"
            said.evidence.append(f"loop {loop.id} ({loop.state}) has it as {part}, and does not wait for it now")
            continue
        said.evidence.append(f"loop {loop.id} ({loop.state}) waits for {what}")
        if said.awaited in ("nothing", "a job"):
            said = said._replace(awaited=f"{what} in {loop.id}", next=_for_loop(loop, session, said.next))
    return said


def _for_loop(loop: Loop, session: Session, next_step: str) -> str:
    """The step after which *loop* has what it waits for of an agent that does nothing for it now."""
    if session.status not in LIVE:
        return f"{next_step}, then mam loop resume {loop.id}" if loop.state == "stuck" else next_step
    return next_step if next_step == "mam up" else f"mam why {loop.id}"


def worktree(view: View, row: Worktree, found: str, agents: list[str], now: int) -> Explanation:
    """Why a worktree is in its state. *found*: what it is at this moment (`tree_states.now`)."""
    evidence = [
        f"{row.path} on {row.branch}, made from {row.base_sha[:12]}",
        *(f"{name} lives there" for name in agents),
    ]
    loops = [loop for loop in view.loops(only_open=True) if Path(loop.worktree).resolve() == Path(row.path).resolve()]
    evidence += [f"loop {loop.id} ({loop.state}) is about it" for loop in loops]
    evidence += [f"finding {finding.code}: {finding.text}" for finding in view.findings(row.name)]
    subject, state = f"worktree {row.name}", f"{found} ({ago(row.updated_at, now)})"
    again = f"mam worktree prepare {row.name}"
    if row.state == "removed":
        because = f"it was removed at {row.head_sha}; its branch {row.branch} stayed"
        return Explanation(subject, state, because, evidence, "nothing", f"{again} makes it again")
    if row.state in ("preparing", "removing"):
        verb = again if row.state == "preparing" else f"mam worktree remove {row.name}"
        return Explanation(subject, state, f"{row.state} did not finish", evidence, "the same verb again", verb)
    if found == "missing":
        return Explanation(subject, found, _missing(row), evidence, "a person", f"{again} heals it")
    if found == "off branch":
        on = dotgit.branch_of(Path(row.path))
        because = f"it is on {on or 'no branch'}, not on {row.branch}"
        back_on = shlex.join(["git", "-C", row.path, "switch", row.branch])
        return Explanation(subject, state, because, evidence, "a person", back_on)
    awaited, next_step = "nothing", f"mam agent create --agent KIND --worktree {row.name}"
    if loops:
        awaited, next_step = f"the end of {loops[0].id}", f"mam why {loops[0].id}"
    elif agents:
        next_step = f"git -C {shlex.quote(row.path)} status"
    return Explanation(subject, state, "it is as it should be", evidence, awaited, next_step)


def _missing(row: Worktree) -> str:
    gone = not Path(row.path).is_dir()
    return "its directory is gone" if gone else f"{row.path} is not a work tree of this repository any more"


def lease(view: View, lease: Lease, *, runs: bool, now: int) -> Explanation:
    """Why a resource of `mam queue` is taken, and until when. *runs*: its holder is carried out at this moment."""
    waiting = [place for place in queue(view, now) if lease.resource in place.waits_for]
    evidence = [f"token {lease.token}, signs of life {lease.renewals}"]
    evidence += [f"{place.ticket.holder} waits since {ago(place.ticket.asked_at, now)}" for place in waiting]
    if lease.holder is None:
        because, awaited = "no loop has it", "the next loop that asks"
        return Explanation(lease.resource, "free", because, evidence, awaited, "mam queue")
    shown = f"held since {ago(lease.since or now, now)}"
    if runs:
        because, awaited = f"{lease.holder} reviews with it", "the end of that round"
    else:
        because = f"{lease.holder} has it, and no process carries that loop out"
        awaited = f"the monitor, which gives it back {lease.ttl_s:g} s after the last sign of life"
    return Explanation(lease.resource, shown, because, evidence, awaited, f"mam why {lease.holder}")
