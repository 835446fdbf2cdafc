"""
What agents ask of people in the middle of a job, and the answers.

The answer lies beside the job's brief, where the command that waits for it
looks; where none waits any more it is typed into the pane. It is put there
before the row says so: what an agent may have read already is what was answered.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mam.broker import spool
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError, Usage
from mam.broker.host import atomic_files, process_identity
from mam.broker.host.atomic_files import write_json
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs.attention import is_current, waiting
from mam.control_plane.jobs.jobs import need
from mam.control_plane.jobs.unobserved import Gap, lasted
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, Job, OutboxMessage, Question
from mam.control_plane.registry.transactions import Transaction

_log = logging.getLogger("mam.questions")

TYPED_WITHIN_S = 600
_ANSWER = "answer-"


class NoQuestion(MamError):
    """The job has no question without an answer."""

    job: str

    code = "no_question"
    exit_code = 2
    message = "{job} asks nothing at the moment"
    remedy_text = "`mam why {job}` says what it waits for; `mam agent send` types free text"


def folder(job: Job) -> Path:
    return Path(job.folder) / "answers"


def tend(mam: Mam, view: View, now: int, gaps: Sequence[Gap] = ()) -> None:
    """Give the agreed answer to questions whose time is over, and end the waiting for answers that cannot come."""
    due = {question.id for question in overdue(view, now, gaps)}
    for question in view.open_questions():
        try:
            if not is_current(need(view, question.job), question):
                _end(mam, question.id)
            elif question.id in due:
                answer(mam, question.id, question.fallback or "", by="timeout")
        except (MamError, OSError) as error:  # one job's trouble (a folder that is gone) must not hold up the others
            _log.warning("the question %s of %s: %s", question.id, question.job, error)

    for order in view.outbox():
        if order.kind == "say" and order.id.startswith(_ANSWER) and _is_too_late(view, order):
            _take_back(mam, order)


def _is_too_late(view: View, order: OutboxMessage) -> bool:
    """Whether an answer that waits to be typed is not needed: its job has ended, or its agent has fetched it."""
    question = view.question(order.id.removeprefix(_ANSWER))
    if question is None:
        return False
    job = need(view, question.job)
    return not is_current(job, question) or (folder(job) / f"{question.id}.taken").exists()


def _take_back(mam: Mam, order: OutboxMessage) -> None:
    """An answer that came too late is not typed at all, and keeps no other prompt away."""
    with mam.registry.transaction() as tx:
        if not _is_too_late(tx, order):
            return
        tx.drop(order)
        data = json.dumps({"reason": "the job that asked has ended, or its agent has the answer"})
        tx.put(replace(order, id=f"{order.id}/cancel", kind="cancel", data=data, created_at=now_ms()))


def overdue(view: View, now: int, gaps: Sequence[Gap] = ()) -> list[Question]:
    """Open questions whose time is over and which named an answer for that case."""
    return [
        each
        for each in view.open_questions()
        if each.timeout_s and each.fallback is not None and lasted(each.asked_at, now, gaps) > each.timeout_s * 1000
    ]


def _end(mam: Mam, question_id: str) -> None:
    """Close a question whose job has ended or was tried again, and tell the command that waits, if any."""
    with mam.registry.transaction() as tx:
        question = tx.question(question_id)
        job = need(tx, question.job) if question is not None else None
        if question is None or job is None or question.answered_at is not None or is_current(job, question):
            return
        tx.put(replace(question, answered_at=now_ms(), answered_by="nobody"))
    state = job.state if question.attempt == job.attempt else "tried again"
    if folder(job).is_dir():  # the asker made it
        write_json(_place(job, question), {"over": state})


def answer(mam: Mam, question_id: str, text: str, *, by: str) -> Question:
    """
    Answer one question; the second answer changes nothing.

    Raises Usage for an answer that is empty or not one of the choices; an agreed answer is not checked.
    """
    with mam.registry.transaction() as tx:
        question = tx.question(question_id)
        assert question is not None
        if question.answered_at is not None:
            return question
        choices = json.loads(question.choices)
        if by != "timeout" and (not text.strip() or (choices and text.strip() not in choices)):
            raise Usage(
                what=f"{text!r} is not an answer", hint=f"one of: {', '.join(choices)}" if choices else "some text"
            )
        job = need(tx, question.job)
        said = atomic_files.read(_place(job, question))  # of an answer that ended before it was noted
        given = str(said.get("answer") or text.strip())
        answered = replace(question, answered_at=now_ms(), answer=given, answered_by=str(said.get("by") or by))
        tx.put(answered)
        folder(job).mkdir(mode=0o700, exist_ok=True)
        write_json(_place(job, question), {"answer": answered.answer, "by": answered.answered_by})
        if not _is_waited_for(job, question):  # asked last: who gives up looks once more afterwards
            _type(tx, job, answered)
    spool.wake(mam.layout.monitor_wake)
    return answered


def _place(job: Job, question: Question) -> Path:
    return folder(job) / f"{question.id}.json"


def _is_waited_for(job: Job, question: Question) -> bool:
    """Whether the command that asked still lives: an agent's own tools may have given it up."""
    waiter = atomic_files.read(folder(job) / f"{question.id}.wait")
    pid = waiter.get("pid")
    if not isinstance(pid, int):
        return False
    return process_identity.alive(process_identity.ProcessId(pid, str(waiter.get("start")), str(waiter.get("boot"))))


def _type(tx: Transaction, job: Job, question: Question) -> None:
    session = tx.session(job.session)
    if session is None or session.status not in LIVE:
        return
    text = f"[MAM answer for {job.id}] You asked: {question.question}\nThe answer is: {question.answer}"
    data = json.dumps({"prompt": text, "deliver_within_s": TYPED_WITHIN_S})
    order_id = f"{_ANSWER}{question.id}"  # free text: how its delivery ends says nothing of the job's
    tx.put(OutboxMessage(order_id, job.session, "say", order_id, 1, session.incarnation, data, now_ms()))


def ask(mam: Mam, job_id: str, question_id: str | None = None) -> Question:
    """
    The question that *job_id* waits with, or the one called *question_id*, answered or not.

    Raises UnknownJob, NoQuestion.
    """
    with mam.registry.view() as view:
        job = need(view, job_id)
        found = view.question(question_id) if question_id else next(iter(waiting(view, job)), None)
    if found is None or found.job != job_id:
        raise NoQuestion(job=job_id)
    return found
