"""The review loop's decisions."""

from tests.mutants.mutant import Mutant

_FILE, _TESTS = "control_plane/loops/state.py", ("tests/control_plane/loops/test_state.py",)


def _row(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"loop-{name}", rule, _FILE, old, new, _TESTS)


ROWS = (
    _row("ended-stays", "nothing leaves the end", 'if state.phase == "ended":', 'if state.phase == "none":'),
    _row(
        "consensus",
        "M65: one refusal of a reviewer blocks",
        '"promoting" if all(review.verdict == "pass" for review in reviews)',
        '"promoting" if any(review.verdict == "pass" for review in reviews)',
    ),
    _row(
        "all-settled",
        "M65: every reviewer must have said a verdict",
        "if not all(review.settled for review in reviews):",
        "if not any(review.settled for review in reviews):",
    ),
    _row(
        "no-verdict",
        "a reviewer without a verdict stops the loop, it does not pass it",
        'missing = [f"{review.reviewer}: {review.why}" for review in reviews if review.verdict is None]',
        "missing: list[str] = []",
    ),
    _row(
        "attempt-of-now",
        "the verdict of an earlier attempt does not count",
        "(review.reviewer, review.attempt) != (event.reviewer, event.attempt) or review.settled",
        "review.reviewer != event.reviewer or review.settled",
    ),
    _row(
        "first-verdict",
        "a verdict that came twice changes nothing",
        "(event.reviewer, event.attempt) or review.settled:",
        "(event.reviewer, event.attempt):",
    ),
    _row(
        "asked-again",
        "a reviewer without a verdict is asked once more",
        "elif event.verdict is None and review.attempt < ASKED_AT_MOST:",
        "elif event.verdict is None and review.attempt < ASKED_AT_MOST - 1:",
    ),
    _row("asked-at-most", "and only once more", "ASKED_AT_MOST = 2", "ASKED_AT_MOST = 3"),
    _row(
        "refused-current",
        "M56: a refusal must be known to be of the current work",
        "return _refused(state) if same else _stale(state)",
        "return _refused(state)",
    ),
    _row(
        "moved-promotion",
        "M57: a move between the last verdict and the promotion blocks it",
        'return _stale(state) if moved else _end(state, "passed", f"not promoted: {why}")',
        'return _end(state, "passed", f"not promoted: {why}")',
    ),
    _row(
        "stale-reviewed-anew",
        "M56: a change that moved is reviewed anew, without new work",
        "return _next_round(after, work=False)",
        "return _next_round(after, work=True)",
    ),
    _row("stale-marked", "M56: verdicts of a change that moved are marked", "_with_round(state, stale=True)", "state"),
    _row(
        "rounds-max",
        "the number of rounds is limited",
        ">= state.rounds_max:",
        "> state.rounds_max:",
    ),
    _row(
        "rounds-stale",
        "a stale round is not counted",
        "if sum(1 for each in state.rounds if not each.stale) >= state.rounds_max:",
        "if len(state.rounds) >= state.rounds_max:",
    ),
    _row("stale-limit", "a branch that moves for ever stops the loop", "in_a_row >= STALE_AT_MOST:", "in_a_row < 0:"),
    _row(
        "stale-row",
        "only stale rounds in a row count",
        "            break\n        in_a_row",
        "            pass\n        in_a_row",
    ),
    _row(
        "review-only",
        "M23: without a creator a refusal ends the loop",
        'if state.creator is None:\n        return _end(state, "not_pass", f"refused by {against}")',
        "",
    ),
    _row(
        "review-first", "M23: without a creator nothing is worked on", "work=state.creator is not None)", "work=True)"
    ),
    _row(
        "empty",
        "a change that changes nothing is not reviewed",
        "if event.empty:",
        "if False:",
    ),
    _row(
        "failed-work",
        "work that was reported as failed ends the loop",
        "if event.failed:",
        "if False:",
    ),
    _row(
        "resume-work",
        "resumed work is a new attempt",
        "work_attempt=state.round.work_attempt + 1",
        "work_attempt=state.round.work_attempt",
    ),
    _row(
        "resume-verdicts",
        "a resumed review keeps the verdicts that there are",
        "review if review.verdict else replace(review, attempt=review.attempt + 1, given_up=False)",
        "replace(review, attempt=review.attempt + 1, given_up=False)",
    ),
    _row(
        "resume-back",
        "a loop that was stopped goes on where it stood",
        'back = state.back_to or "capturing"',
        'back: LoopPhase = "capturing"',
    ),
    _row(
        "pending-asks",
        "only what has no answer yet is ordered again",
        "asked = (review for review in state.round.reviews if not review.settled)",
        "asked = (review for review in state.round.reviews)",
    ),
    _row(
        "stuck-once",
        "a loop that is stuck remembers where it was",
        'case Halted(why) if state.phase not in ("new", "stuck"):',
        "case Halted(why):",
    ),
)
