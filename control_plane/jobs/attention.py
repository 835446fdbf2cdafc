"""What an agent wants of a person, and the command for that."""

import json
import shlex
from typing import NamedTuple

from mam.broker.host.text import clean, fold
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import OPEN, Job, Question, Session
from mam.control_plane.sessions.refusals import pane

ASKS = {"asking": "asks for a permission", "dialog": "shows a question", "error": "shows an error"}
COMMANDS_SHOWN = 4


def is_current(job: Job, question: Question) -> bool:
    """Whether a question belongs to the attempt that its job is at, and the job has not ended."""
    return job.state in OPEN and question.attempt == job.attempt


def waiting(view: View, job: Job) -> list[Question]:
    """Return all open questions of the job's current attempt, the oldest first; none where the job has ended."""
    return [each for each in view.open_questions(job.id) if is_current(job, each)]


def answer_commands(asked: Question) -> list[str]:
    """The commands that answer a question: one a choice, where it offers a few."""
    choices = json.loads(asked.choices)
    texts = [clean(shlex.quote(choice)) for choice in choices] if len(choices) <= COMMANDS_SHOWN else []
    # The question is named, so that a command that is given twice answers no later one.
    return [f"mam job answer {asked.job} {text} --question {asked.id}" for text in texts or ["TEXT"]]


def answers(asked: Question) -> str:
    """The commands that answer a question, as one line."""
    return ", or ".join(answer_commands(asked))


_STANDS_MS = 2000


class Want(NamedTuple):
    """What the agent of an open job wants of a person: *what* in words, and *commands* of which one gives it."""

    agent: str
    job: str
    what: str
    commands: tuple[str, ...]

    def text(self, columns: int | None = None) -> str:
        """What is wanted, folded to *columns*, and each command on a line of its own below it, to be copied."""
        return "\n".join([fold(self.what, columns, indent="  "), *(f"  → {command}" for command in self.commands)])


def asked_text(asked: Question) -> str:
    """The question in its asker's words, with the answers that are possible and the one that time gives."""
    choices = ", ".join(clean(choice) for choice in json.loads(asked.choices))
    notes = [f"one of: {choices}"] if choices else []
    if asked.timeout_s and asked.fallback is not None:
        notes.append(f"without an answer in {asked.timeout_s:g} s: {clean(asked.fallback)}")
    return f"“{clean(asked.question)}”" + (f" ({'; '.join(notes)})" if notes else "")


def answered_text(asked: Question) -> str:
    """How a question that is not open any more has ended: the answer and who gave it."""
    if asked.answered_by == "nobody":
        return "no answer: its attempt ended first"
    by = "its default, since its time was over" if asked.answered_by == "timeout" else f"by a {asked.answered_by}"
    return f"{clean(asked.answer or '')} ({by})"


def wants(view: View, job: Job, now: int) -> list[Want]:
    """
    Everything that the agent of an open job wants of a person, each with a command that can be run as it stands.

    All of its open questions, the oldest first, and a screen that has asked for some time.
    """
    found = [
        Want(job.session, job.id, f"{job.session} asks: {asked_text(each)}", tuple(answer_commands(each)))
        for each in waiting(view, job)
    ]
    session = view.session(job.session)
    return found + (on_screen(session, job.id, now) if session is not None else [])


def on_screen(session: Session, job: str, now: int) -> list[Want]:
    """What an agent's screen asks of a person, where it has asked for some time; *job* is its open one, or empty."""
    # A question that has just been drawn may be one that is answered by a rule.
    if session.screen not in ASKS or now - (session.screen_at or now) < _STANDS_MS:
        return []
    return [Want(session.name, job, f"the screen of {session.name} {ASKS[session.screen]}", (pane(session),))]
