"""Races and traps of the control plane, one small test each, without processes."""

import json
import os
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mam.broker.envelope import keys, topics
from mam.broker.envelope.events import Presence, Signal
from mam.broker.envelope.payloads import now_ms
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.outbox import Outbox
from mam.control_plane.messaging.published_state import PublishedState
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import broker_supervisor, job_checks, monitor
from mam.control_plane.registry.records import Job
from mam.control_plane.sessions import free_text, runtime
from mam.control_plane.sessions import state as session_state
from mam.wrappers.mux.protocol import MuxSilent
from tests.support.desk import Desk

DAY_MS = 86_400_000
EVENTS = topics.events("writer")


class Paper:
    """A bus that only notes what is published."""

    connected = True
    unanswered = 0

    def __init__(self) -> None:
        self.sent: list[str] = []

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        self.sent.append(topic)
        return True


def ended_jobs(desk: Desk, count: int, at: int) -> None:
    desk.session()
    row = desk.job()
    jobs.cancel(desk.mam, row.id)
    with desk.mam.registry.transaction() as tx:
        for number in range(count):
            tx.put(replace(row, id=f"job-{number:08d}", state="cancelled", updated_at=at, ended_at=at))
        tx.connection.execute("DELETE FROM jobs WHERE updated_at > ?", (at,))


def cards(desk: Desk) -> PublishedState:
    return PublishedState(b"k" * 32, desk.keyring, "fp")


def test_a_start_publishes_no_card_of_jobs_that_ended_long_ago(desk: Desk) -> None:
    ended_jobs(desk, 20, desk.clock - 10 * DAY_MS)
    bus, shown = Paper(), cards(desk)

    with desk.mam.registry.view() as view:
        shown.start(bus, view)
        shown.refresh(bus, view)

    assert bus.sent == []


def test_a_card_that_expired_is_cleared_once(desk: Desk) -> None:
    ended_jobs(desk, 20, desk.clock - 2 * DAY_MS)
    bus, shown = Paper(), cards(desk)

    with desk.mam.registry.view() as view:
        for _ in range(3):
            shown.expire(bus, view, desk.clock)

    assert len(bus.sent) == 20


def test_a_key_that_was_destroyed_or_made_anew_is_not_remembered(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    extra = desk.wire(job.id, "progress", {"note": "x"})
    desk.take(job.id, desk.wire(job.id, "started"), desk.report(job))
    desk.settle([(EVENTS, desk.runtime("writer", "signal", {"name": "turn_ended"}))])

    jobs.archive(desk.mam, job.id)
    path = desk.mam.layout.session_key("writer")
    path.unlink()
    keys.create(path)

    assert desk.take(job.id, extra) == ["unknown_job"]
    again = desk.settle([(EVENTS, desk.runtime("writer", "signal", {"name": "turn_ended"}))])
    assert again[0].outcome == "accepted"


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


def test_a_verdict_on_one_attempt_does_not_end_the_next(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    jobs.cancel(desk.mam, job.id)
    delegation.retry(desk.mam, job.id)

    job_checks.act(desk.mam.registry, [], [job_checks.PresumedEnd(job.id, 1, "lost", "its agent is gone")])

    assert desk.row(job.id).state == "queued"


def test_a_pane_that_is_slow_to_open_is_not_gone(desk: Desk) -> None:
    desk.session(status="starting", pane="", updated_at=now_ms() - 11_000)

    with desk.mam.registry.view() as view:
        assert job_checks.ended_sessions(desk.mam, view.sessions()) == []


def test_a_runner_that_speaks_after_it_was_given_up_is_taken_back(desk: Desk) -> None:
    row = desk.session(status="ended", ended_reason="the pane closed before the runner reported")
    seen = Presence(online=True, incarnation="0001", pid=1, start_time="1", boot_id="b", version="1")

    after = session_state.presence(row, seen, now=1)

    assert (after.status, after.ended_reason) == ("running", None)
    assert session_state.presence(replace(after, status="ended"), seen, now=1).status == "ended"
    assert session_state.presence(replace(row, status="stopped"), seen, now=1).status == "stopped"


def test_the_end_of_an_earlier_life_does_not_end_this_one(desk: Desk) -> None:
    row = desk.session()

    assert session_state.signal(row, Signal(name="agent_exited", incarnation="0000"), now=1) == row
    assert session_state.signal(row, Signal(name="agent_exited", incarnation="0001"), now=1).status == "ended"


def test_a_retry_that_fails_leaves_the_report_where_it_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.session()
    job = desk.job()
    desk.take(job.id, desk.report(job))

    def full(*_: Any) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(delegation, "write_record", full)
    with pytest.raises(OSError, match="no space"):
        delegation.retry(desk.mam, job.id)

    assert desk.row(job.id).state == "reported"
    assert Path(job.report_path).exists()


def test_a_report_that_became_a_fifo_holds_up_nobody(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    wire = desk.report(job)
    Path(job.report_path).unlink()
    os.mkfifo(job.report_path)

    assert desk.take(job.id, wire) == ["report_altered"]


def test_what_comes_while_a_job_is_archived_is_not_deleted_unseen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.session()
    job = desk.job()
    desk.take(job.id, desk.report(job))
    outcomes: list[str] = []
    late = desk.wire(job.id, "progress", {"note": "late"})
    meanwhile = threading.Thread(target=lambda: outcomes.extend(desk.take(job.id, late)))
    real = jobs._export

    def export(*args: Any) -> None:
        real(*args)
        meanwhile.start()
        time.sleep(0.2)

    monkeypatch.setattr(jobs, "_export", export)
    jobs.archive(desk.mam, job.id)
    meanwhile.join()

    assert outcomes[0] in ("expired", "unknown_job")
    with desk.mam.registry.view() as view:
        assert view.events(scope=topics.job(job.id)) == []


def test_the_password_file_is_written_once_and_replaced_whole(desk: Desk) -> None:
    def keep(password: str) -> tuple[int, str]:
        values = {**desk.mam.settings.values, "MAM_BROKER_PASSWORD": password}
        desk.mam.settings = desk.mam.settings._replace(values=values)
        broker_supervisor._keep_password(desk.mam)
        path = desk.mam.layout.secrets / "broker-own.password"
        return path.stat().st_mtime_ns, path.read_text().strip()

    first = keep("one")

    assert keep("one") == first
    assert keep("two")[1] == "two"


def test_trouble_with_the_database_does_not_end_the_monitor(desk: Desk) -> None:
    def locked() -> None:
        raise sqlite3.OperationalError("database is locked")

    monitor.Monitor(desk.mam)._guarded(locked)


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
        assert [order.kind for order in outbox.relay(bus, view, 1.0)] == ["say"]  # type: ignore[arg-type]
    assert bus.sent == []


def test_an_order_that_was_answered_is_remembered_no_longer(desk: Desk) -> None:
    desk.session()
    desk.job()
    bus, outbox = Paper(), Outbox(desk.keyring, lambda *_: 60_000)
    with desk.mam.registry.view() as view:
        outbox.relay(bus, view, 1.0)  # type: ignore[arg-type]
    assert len(outbox._due) == len(bus.sent) == 1

    with desk.mam.registry.transaction() as tx:
        tx.drop(tx.outbox()[0])
    with desk.mam.registry.view() as view:
        outbox.relay(bus, view, 2.0)  # type: ignore[arg-type]

    assert outbox._due == {}


def test_a_card_that_was_cleared_is_remembered_for_as_long_as_it_is_looked_at(desk: Desk) -> None:
    ended_jobs(desk, 20, desk.clock - 2 * DAY_MS)
    shown = cards(desk)

    with desk.mam.registry.view() as view:
        shown.expire(Paper(), view, desk.clock)
        shown.expire(Paper(), view, desk.clock + 10 * DAY_MS)

    assert shown._cleared == set()


def test_an_archived_job_is_not_tried_again(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    desk.take(job.id, desk.report(job))
    jobs.archive(desk.mam, job.id)

    with pytest.raises(jobs.JobArchived):
        delegation.retry(desk.mam, job.id)

    assert desk.row(job.id).state == "reported"


def test_a_record_names_the_attempt_of_now(desk: Desk) -> None:
    desk.session()
    job: Job = desk.job()
    jobs.cancel(desk.mam, job.id)
    delegation.retry(desk.mam, job.id)

    assert json.loads((Path(job.folder) / "job.json").read_text())["attempt"] == 2


def test_a_multiplexer_that_does_not_answer_is_asked_once_a_look(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        desk.session(name, status="starting", updated_at=now_ms() - 20_000)
    asked = []

    class Wedged:
        def panes(self) -> None:
            asked.append(1)
            raise MuxSilent(server="s", why="no answer within 10 s")

    monkeypatch.setattr(runtime, "multiplexer", lambda *_: Wedged())

    with desk.mam.registry.view() as view:
        assert job_checks.ended_sessions(desk.mam, view.sessions()) == []
    assert len(asked) == 1
