"""What happens in a loop in the words of its timeline, pure."""

from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops.state import LoopEvent, LoopState, Reviewed, WorkEnded
from mam.control_plane.registry.records import Loop


def place(loop: Loop) -> str:
    """Where a loop works, and on which branch, as a reader of its beginning needs it."""
    return f"{loop.worktree} on {loop.branch}" if loop.branch else f"{loop.worktree}, whose HEAD is detached"


def happened(before: LoopState, event: LoopEvent, loop: Loop) -> str:
    """What happened in *loop*, for the timeline."""
    number = len(before.rounds) or 1
    match event:
        case loop_state.Began():
            return f"round {number} begins"
        case loop_state.Resumed():
            return f"resumed in round {number}"
        case WorkEnded(ok, failed, why):
            return f"round {number}: {before.creator} " + ("is done" if ok else "failed" if failed else why)
        case loop_state.Captured(_, head, _, captured, _):
            own = "the branch's commit" if loop.branch else "the commit of a detached HEAD, on no branch"
            kind = "a snapshot that holds uncommitted work" if captured else own
            return f"round {number}: under review is {head}, {kind}"
        case Reviewed(reviewer, _, verdict, why):
            return f"round {number}: {reviewer}: {verdict or f'no verdict that counts: {why}'}"
        case loop_state.Looked(False) | loop_state.NotPromoted(True, _):
            return f"round {number}: the worktree moved meanwhile; its new head is reviewed"
        case loop_state.Promoted(what):
            return f"{'next' if loop.promote in ('none', 'pr-body') else 'promoted'}: {what}"
    return ""


def ending(state: LoopState) -> str:
    if state.phase == "stuck":
        return f"stuck: {state.detail}"
    return f"{state.outcome}{': ' if state.detail else ''}{state.detail}" if state.phase == "ended" else ""
