"""
The review loop as a pure function: it decides, it does nothing.

`step(state, event) -> (state, orders)`. The process that carries the orders out answers
each with one event; `pending(state)` names the orders again that a dead process
left unanswered, so every order must be harmless when it is carried out twice.

A change passes only when every reviewer passed the same commit of the same
round, and that commit still is what the worktree holds.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

LoopPhase = Literal["new", "working", "capturing", "reviewing", "checking", "promoting", "stuck", "ended"]
LoopOutcome = Literal["passed", "not_pass", "failed", "cancelled"]

ASKED_AT_MOST = 2  # a reviewer without a verdict that counts is asked once more by itself
STALE_AT_MOST = 10  # rounds in a row that a moving branch made worthless


@dataclass(frozen=True)
class Review:
    """What one reviewer said in one round. *why* says why there is no verdict that counts."""

    reviewer: str
    attempt: int = 1
    verdict: str | None = None
    why: str = ""
    given_up: bool = False

    @property
    def settled(self) -> bool:
        return self.verdict is not None or self.given_up


@dataclass(frozen=True)
class Round:
    """One commit under review. *work*: the creator worked before it. *stale*: the worktree moved on meanwhile."""

    number: int
    work: bool
    work_attempt: int = 1
    base: str = ""
    head: str = ""
    tip: str = ""
    captured: bool = False
    reviews: tuple[Review, ...] = ()
    stale: bool = False


@dataclass(frozen=True)
class LoopState:
    reviewers: tuple[str, ...]
    creator: str | None
    rounds_max: int
    phase: LoopPhase = "new"
    rounds: tuple[Round, ...] = ()
    outcome: LoopOutcome | None = None
    detail: str = ""
    back_to: LoopPhase | None = None  # where a stuck loop goes on
    promoted: str = ""

    @property
    def round(self) -> Round:
        return self.rounds[-1]


class Work(NamedTuple):
    """Have the creator work (again); answered by WorkEnded."""

    round: int
    attempt: int


class Capture(NamedTuple):
    """Make one commit of what the worktree holds, and pin it; answered by Captured or NotCaptured."""

    round: int


class Ask(NamedTuple):
    """Have a reviewer look at the round's commit; answered by Reviewed."""

    round: int
    reviewer: str
    attempt: int


class Look(NamedTuple):
    """Look whether the worktree still holds what was reviewed; answered by Looked."""

    round: int


class Promote(NamedTuple):
    """Look once more, and do with the commit what was asked for; answered by Promoted or NotPromoted."""

    round: int


Order = Work | Capture | Ask | Look | Promote


class Began(NamedTuple):
    pass


class WorkEnded(NamedTuple):
    """*ok*: reported as done. *failed*: reported as failed. Neither: it ended without a report."""

    ok: bool
    failed: bool = False
    why: str = ""


class Captured(NamedTuple):
    base: str
    head: str
    tip: str
    captured: bool
    empty: bool


class NotCaptured(NamedTuple):
    why: str


class Reviewed(NamedTuple):
    reviewer: str
    attempt: int
    verdict: str | None
    why: str = ""


class Looked(NamedTuple):
    same: bool


class Promoted(NamedTuple):
    what: str


class NotPromoted(NamedTuple):
    """*moved*: the worktree no longer holds what was reviewed; otherwise *why* is a person's matter."""

    moved: bool
    why: str = ""


class Halted(NamedTuple):
    """What has to be done cannot be done for now: a person must look."""

    why: str


class LoopCancelled(NamedTuple):
    reason: str = ""


class Resumed(NamedTuple):
    pass


Answered = WorkEnded | Captured | NotCaptured | Reviewed | Looked | Promoted | NotPromoted
LoopEvent = Answered | Began | Halted | LoopCancelled | Resumed
Answer = tuple[LoopState, list[Order]]


def step(state: LoopState, event: LoopEvent) -> Answer:
    """Move a loop on by one event; an event that does not fit the phase changes nothing (it came twice)."""
    if state.phase == "ended":
        return state, []
    match event:
        case LoopCancelled(reason):
            return _end(state, "cancelled", reason or "it was cancelled")
        case Began() if state.phase == "new":
            return _next_round(state, work=state.creator is not None)
        case WorkEnded() if state.phase == "working":
            return _worked(state, event)
        case Captured() if state.phase == "capturing":
            return _captured(state, event)
        case NotCaptured(why) if state.phase == "capturing":
            return _stuck(state, why)
        case Reviewed() if state.phase == "reviewing":
            return _reviewed(state, event)
        case Looked(same) if state.phase == "checking":
            return _refused(state) if same else _stale(state)
        case Promoted(what) if state.phase == "promoting":
            return _end(replace(state, promoted=what), "passed", "")
        case NotPromoted(moved, why) if state.phase == "promoting":
            return _stale(state) if moved else _end(state, "passed", f"not promoted: {why}")
        case Halted(why) if state.phase not in ("new", "stuck"):
            return _stuck(state, why)
        case Resumed() if state.phase == "stuck":
            return _resumed(state)
    return state, pending(state)


def pending(state: LoopState) -> list[Order]:
    """The orders that still wait for their answer."""
    match state.phase:
        case "working":
            return [Work(state.round.number, state.round.work_attempt)]
        case "capturing":
            return [Capture(state.round.number)]
        case "reviewing":
            asked = (review for review in state.round.reviews if not review.settled)
            return [Ask(state.round.number, review.reviewer, review.attempt) for review in asked]
        case "checking":
            return [Look(state.round.number)]
        case "promoting":
            return [Promote(state.round.number)]
    return []


def _go(state: LoopState, phase: LoopPhase) -> Answer:
    after = replace(state, phase=phase, back_to=None, detail="")
    return after, pending(after)


def _end(state: LoopState, outcome: LoopOutcome, detail: str) -> Answer:
    return replace(state, phase="ended", outcome=outcome, detail=detail, back_to=None), []


def _stuck(state: LoopState, detail: str) -> Answer:
    """Wait for a person: nothing is thrown away, and `loop resume` goes on from here."""
    return replace(state, phase="stuck", back_to=state.phase, detail=detail), []


def _next_round(state: LoopState, *, work: bool) -> Answer:
    fresh = Round(len(state.rounds) + 1, work)
    return _go(replace(state, rounds=(*state.rounds, fresh)), "working" if work else "capturing")


def _with_round(state: LoopState, **changes: Any) -> LoopState:
    return replace(state, rounds=(*state.rounds[:-1], replace(state.round, **changes)))


def _worked(state: LoopState, event: WorkEnded) -> Answer:
    if event.ok:
        return _go(state, "capturing")
    if event.failed:
        return _end(state, "failed", f"{state.creator} reported that it failed")
    return _stuck(state, event.why)


def _captured(state: LoopState, event: Captured) -> Answer:
    shas = {"base": event.base, "head": event.head, "tip": event.tip, "captured": event.captured}
    if event.empty:
        why = f"there is nothing to review: {event.head} changes nothing against {event.base}"
        why += "; --base REV names where the work began, if that is an older commit"
        return _end(_with_round(state, **shas), "failed", why)
    reviews = tuple(Review(name) for name in state.reviewers)
    return _go(_with_round(state, reviews=reviews, **shas), "reviewing")


def _reviewed(state: LoopState, event: Reviewed) -> Answer:
    reviews = []
    for review in state.round.reviews:
        if (review.reviewer, review.attempt) != (event.reviewer, event.attempt) or review.settled:
            reviews.append(review)
        elif event.verdict is None and review.attempt < ASKED_AT_MOST:
            reviews.append(replace(review, attempt=review.attempt + 1, why=event.why))
        else:
            reviews.append(replace(review, verdict=event.verdict, why=event.why, given_up=event.verdict is None))
    after = _with_round(state, reviews=tuple(reviews))
    if not all(review.settled for review in reviews):
        return after, pending(after)
    missing = [f"{review.reviewer}: {review.why}" for review in reviews if review.verdict is None]
    if missing:
        return _stuck(after, f"no verdict from {'; '.join(missing)}")
    # A promotion looks for itself whether the worktree moved; a refusal must be known to be of the current work.
    return _go(after, "promoting" if all(review.verdict == "pass" for review in reviews) else "checking")


def _refused(state: LoopState) -> Answer:
    against = ", ".join(review.reviewer for review in state.round.reviews if review.verdict != "pass")
    if state.creator is None:
        return _end(state, "not_pass", f"refused by {against}")
    if sum(1 for each in state.rounds if not each.stale) >= state.rounds_max:
        return _end(state, "not_pass", f"refused by {against} in the last of {state.rounds_max} rounds")
    return _next_round(state, work=True)


def _stale(state: LoopState) -> Answer:
    """The worktree moved: the verdicts are kept, superseded, and the new head is reviewed."""
    after = _with_round(state, stale=True)
    in_a_row = 0
    for each in reversed(after.rounds):
        if not each.stale:
            break
        in_a_row += 1
    if in_a_row >= STALE_AT_MOST:
        stuck, orders = _stuck(after, f"the worktree moved during each of the last {in_a_row} reviews")
        return replace(stuck, back_to="capturing", rounds=(*stuck.rounds, Round(len(stuck.rounds) + 1, False))), orders
    return _next_round(after, work=False)


def _resumed(state: LoopState) -> Answer:
    back = state.back_to or "capturing"
    if back == "working":
        return _go(_with_round(state, work_attempt=state.round.work_attempt + 1), "working")
    if back == "reviewing":
        again = (
            review if review.verdict else replace(review, attempt=review.attempt + 1, given_up=False)
            for review in state.round.reviews
        )
        return _go(_with_round(state, reviews=tuple(again)), "reviewing")
    return _go(state, back)


def to_json(state: LoopState) -> dict[str, Any]:
    return asdict(state)


def from_json(content: dict[str, Any]) -> LoopState:
    """The inverse of `to_json`; unknown members, of a newer version, are a TypeError."""

    def review(one: dict[str, Any]) -> Review:
        return Review(**one)

    def of_round(one: dict[str, Any]) -> Round:
        return Round(**{**one, "reviews": tuple(review(each) for each in one["reviews"])})

    rounds: Sequence[dict[str, Any]] = content["rounds"]
    return LoopState(
        **{**content, "reviewers": tuple(content["reviewers"]), "rounds": tuple(of_round(each) for each in rounds)}
    )
