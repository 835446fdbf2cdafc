"""What an agent wants of a person, and the command for that."""

import json
import shlex

from mam.broker.host.text import clean
from mam.control_plane.jobs import questions
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Job, Question, Session

ASKS = {"asking": "asks for a permission", "dialog": "shows a question", "error": "shows an error"}
COMMANDS_SHOWN = 4


def pane(session: Session) -> str:
    """The command that shows a session's pane."""
    return f"mam agent attach {session.name}" if session.mux == "tmux" else f"mam agent show {session.name}"


def answers(asked: Question) -> str:
    """The commands that answer a question: one a choice, where it offers a few."""
    choices = json.loads(asked.choices)
    texts = [clean(shlex.quote(choice)) for choice in choices] if len(choices) <= COMMANDS_SHOWN else []
    # The question is named, so that a command that is given twice answers no later one.
    return ", or ".join(f"mam job answer {asked.job} {text} --question {asked.id}" for text in texts or ["TEXT"])


_STANDS_MS = 2000


def wanted(view: View, job: Job, now: int) -> tuple[str, str] | None:
    """What the agent of an open job wants of a person, and the command for that; None where it wants nothing."""
    asked = questions.current(view, job)
    if asked is not None:
        return f"{job.session} asks: “{clean(asked.question)}”", answers(asked)
    session = view.session(job.session)
    # A question that has just been drawn may be one that is answered by a rule.
    if session is None or session.screen not in ASKS or now - (session.screen_at or now) < _STANDS_MS:
        return None
    return f"the screen of {job.session} {ASKS[session.screen]}", pane(session)
