"""
What one authenticated message leaves in the registry, inside of a transaction: its bytes in its slot, questions,
what became of a prompt.
"""

import json

from mam.broker.envelope import events as ev
from mam.broker.envelope.signing import refuse
from mam.control_plane.jobs import state as job_state
from mam.control_plane.registry.records import Job, Question
from mam.control_plane.registry.transactions import Transaction


def is_repeat(tx: Transaction, scope: str, frame: ev.JobEvent | ev.SessionMessage, digest: str) -> bool:
    """Whether these very bytes used their slot already. Refuses other bytes in a used slot as an equivocation."""
    known = tx.slot(scope, frame.attempt, frame.producer, frame.seq)
    if known is not None and known != digest:
        refuse("equivocation", f"{frame.producer} {frame.seq}")
    return known is not None


def store(
    tx: Transaction,
    scope: str,
    topic: str,
    wire: bytes,
    frame: ev.JobEvent | ev.SessionMessage,
    digest: str,
    outcome: str,
    now: int,
) -> bool:
    """Keep an event with its exact bytes; False, with nothing kept, where its slot is used."""
    return tx.add_event(
        arrived_at=now,
        id=frame.id,
        topic=topic,
        scope=scope,
        kind=frame.kind,
        attempt=frame.attempt,
        producer=frame.producer,
        slot=frame.seq,
        wire_sha256=digest,
        outcome=outcome,
        wire=wire,
    )


def ask_question(tx: Transaction, job: Job, attempt: int, asked: ev.Data | None, now: int) -> None:
    """Keep a question, also one that comes too late, so that the command that waits is told. An id is used once."""
    if not isinstance(asked, ev.Asked) or tx.question(asked.question_id) is not None:
        return
    text, choices = asked.question, json.dumps(asked.choices, ensure_ascii=False)
    tx.put(Question(asked.question_id, job.id, attempt, text, choices, now, asked.timeout_s, asked.fallback))


def delivery(tx: Transaction, job_id: str, number: int, data: ev.DeliveryReport, now: int) -> str:
    """What a runner says of a prompt: its order ends, its attempt moves on. Returns the outcome."""
    if data.state != "received":
        for order in tx.outbox():
            # A delivery that was on its way when the job was cancelled does not answer the cancel.
            answered = order.kind != "cancel" or data.reason == "cancelled"
            if answered and (order.job, order.attempt) == (job_id, number):
                tx.drop(order)
    job, attempt = tx.job(job_id), tx.attempt(job_id, number)
    if job is None:
        return "accepted"  # free text: nothing but its order depends on it
    if attempt is None or number != job.attempt:
        return "stale_attempt"
    after_job, after = job_state.delivery(job, attempt, data, now=now)
    if after != attempt:
        tx.put(after)
    if after_job != job:
        tx.put(after_job)
    return "accepted"
