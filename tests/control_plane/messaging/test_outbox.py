"""Which orders are still wanted: what was overtaken by an attempt, a life or its time is dropped, and never sent."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.outbox import SAY_KEPT_MS, Outbox
from mam.control_plane.registry.records import OutboxMessage
from tests.support.desk import Desk

SAY = OutboxMessage(
    "say-1", "writer", "say", "say-1", 1, "0001", json.dumps({"prompt": "hi", "deliver_within_s": 10}), 0
)
CANCEL = OutboxMessage("c-1", "writer", "cancel", "job-00000001", 1, "0001", "{}", 0)


def pointless(desk: Desk) -> list[str]:
    with desk.mam.registry.view() as view:
        return [order.id for order in Outbox(Keyring(desk.mam.layout), lambda *_: 0.0).relay(None, view, 0.0)]


@pytest.mark.parametrize(("changes", "dropped"), [({}, False), ({"attempt": 2}, True), ({"state": "cancelled"}, True)])
def test_a_prompt_is_wanted_for_the_open_jobs_current_attempt_alone(
    desk: Desk, changes: dict[str, Any], dropped: bool
) -> None:
    desk.session()
    job = desk.job()
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(job, **changes))

    assert bool(pointless(desk)) == dropped


@pytest.mark.parametrize(
    ("life", "status", "dropped"), [("0001", "running", False), ("0002", "running", True), ("0001", "ended", True)]
)
@pytest.mark.parametrize("order", [SAY, CANCEL], ids=["say", "cancel"])
def test_what_was_meant_for_one_life_of_an_agent_is_not_said_to_the_next(
    desk: Desk, order: OutboxMessage, life: str, status: str, dropped: bool
) -> None:
    desk.session(incarnation=life, status=status)
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(order, created_at=now_ms()))

    assert bool(pointless(desk)) == dropped


@pytest.mark.parametrize(("age_ms", "dropped"), [(9_000, False), (11_000 + SAY_KEPT_MS, True)])
def test_text_whose_sender_was_told_that_it_did_not_arrive_is_not_typed_later(
    desk: Desk, age_ms: int, dropped: bool
) -> None:
    desk.session()
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(SAY, created_at=now_ms() - age_ms))

    assert bool(pointless(desk)) == dropped


def test_a_prompt_says_until_when_it_is_wanted_for_a_runner_that_is_stopped_meanwhile(desk: Desk) -> None:
    desk.session()
    desk.job()
    outbox = Outbox(Keyring(desk.mam.layout), lambda *_: 5000.0)

    with desk.mam.registry.view() as view:
        (order,) = view.outbox()
        before, until, after = now_ms(), outbox._data(view, order)["expires_at"], now_ms()

    assert isinstance(until, int) and before + 5000 <= until <= after + 5000


def test_a_prompt_that_was_on_its_way_when_its_job_was_cancelled_does_not_answer_the_cancel(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    jobs.cancel(desk.mam, job.id)
    topic = "agents/writer/events"

    def after(**data: str) -> list[str]:
        desk.settle([(topic, desk.runtime("writer", "delivery", data, job=job.id, attempt=1))])
        with desk.mam.registry.view() as view:
            return [order.kind for order in view.outbox()]

    assert "cancel" in after(state="submitted")
    assert "cancel" not in after(state="refused", reason="cancelled")
