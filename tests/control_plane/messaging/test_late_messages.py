"""Messages that come late, out of turn or for an earlier attempt, and spools with junk."""

from dataclasses import replace

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.outbox import Outbox
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.sessions import free_text
from tests.support.desk import Desk
from tests.support.paper_bus import EVENTS, Paper


def test_a_delivery_on_its_way_does_not_answer_a_cancel(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    before = desk.runtime("writer", "delivery", {"state": "submitted"}, job=job.id, attempt=1)
    jobs.cancel(desk.mam, job.id)

    desk.settle([(EVENTS, before)])
    with desk.mam.registry.view() as view:
        assert [order.kind for order in view.outbox()] == ["cancel"]

    answer = {"state": "submitted", "reason": "cancelled"}
    desk.settle([(EVENTS, desk.runtime("writer", "delivery", answer, job=job.id, attempt=1))])
    with desk.mam.registry.view() as view:
        assert view.outbox() == []


def test_junk_in_a_spool_says_nothing_about_a_job(desk: Desk) -> None:
    desk.session()
    outbox = desk.mam.layout.run_dir("writer") / "outbox"
    sweep = SpoolSweep(desk.mam.layout.run, desk.inbox)
    (outbox / f"{1:013d}-{'a' * 32}.event").write_bytes(b"jobs/job-99999999\njunk")
    (outbox / f"{1:013d}-{'b' * 32}.beat").write_bytes(b"jobs/job-00000001\nbeat")

    assert sweep.empty("writer", "job-00000001")
    assert not sweep.empty("writer", "job-99999999")


def test_free_text_is_not_typed_long_after_its_sender_was_told_that_it_failed(desk: Desk) -> None:
    desk.session()
    free_text.queue(desk.mam, "writer", "hello")
    bus, outbox = Paper(), Outbox(desk.keyring, lambda *_: 60_000)
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(tx.outbox()[0], created_at=now_ms() - 70_000))

    with desk.mam.registry.view() as view:
        assert [order.kind for order in outbox.relay(bus, view, 1.0)] == ["say"]
    assert bus.sent == []


def test_an_order_that_was_answered_is_remembered_no_longer(desk: Desk) -> None:
    desk.session()
    desk.job()
    bus, outbox = Paper(), Outbox(desk.keyring, lambda *_: 60_000)
    with desk.mam.registry.view() as view:
        outbox.relay(bus, view, 1.0)
    assert len(outbox._due) == len(bus.sent) == 1

    with desk.mam.registry.transaction() as tx:
        tx.drop(tx.outbox()[0])
    with desk.mam.registry.view() as view:
        outbox.relay(bus, view, 2.0)

    assert outbox._due == {}
