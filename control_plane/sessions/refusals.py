"""Why an agent did not take a text, and what a person does about it: the same words for every face."""

from mam.control_plane.registry.records import Session

# The reasons of `DeliveryReason`, in words; a reason that stands not here is said as it is.
WHY = {
    "draft": "a draft stands in its composer",
    "busy": "it is busy",
    "dialog": "it shows a question",
    "not_foreground": "a shell has its pane",
    "brief_altered": "its brief was changed after it was delegated",
    "unsubmitted": "it did not take the text after Enter was pressed",
}


def pane(session: Session) -> str:
    """The command that shows a session's pane."""
    return f"mam agent attach {session.name}" if session.mux == "tmux" else f"mam agent show {session.name}"


def remedy(session: Session, reason: str, again: str, *, other: str = "") -> str:
    """
    What makes the agent take a text that it refused for *reason*, then *again*, the command that sends it anew.

    *other* is the command that gives it to another agent, where there is one.
    """
    remedies = {
        "draft": f"send or clear the draft in its pane ({pane(session)}), then {again}",
        "busy": f"wait until {session.name} is ready" + (f", or {other}" if other else f", then {again}"),
        "dialog": f"answer the question in its pane ({pane(session)}), then {again}",
        "not_foreground": f"a shell has the pane: mam agent stop {session.name} --force, resume it, then {again}",
        "brief_altered": "its brief was changed after it was delegated: mam job delegate it anew",
    }
    return remedies.get(reason, f"look at its pane ({pane(session)}), then {again}")
