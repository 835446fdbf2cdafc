import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from mam.broker.envelope import keys, topics
from mam.broker.envelope.signing import seal
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.monitor import job_checks
from mam.control_plane.sessions.lookup import need_session
from tests.support.desk import Desk

JOB = "job-00000001"


@pytest.fixture
def busy(desk: Desk) -> Desk:
    desk.session()
    desk.job()
    return desk


@pytest.mark.req("M96")
def test_started_progress_and_report_move_the_job_and_are_all_stored(busy: Desk) -> None:
    job = busy.row(JOB)

    outcomes = busy.take(JOB, busy.wire(JOB, "started"), busy.wire(JOB, "progress", {"note": "n"}), busy.report(job))

    assert outcomes == ["accepted"] * 3
    assert (busy.row(JOB).state, busy.row(JOB).result) == ("reported", "done")
    with busy.mam.registry.view() as view:
        assert [event["kind"] for event in view.events(scope=f"jobs/{JOB}")] == ["started", "progress", "report"]


def test_an_event_that_comes_again_is_a_duplicate_without_effect(busy: Desk) -> None:
    wire = busy.wire(JOB, "started")

    assert busy.take(JOB, wire, wire) == ["accepted", "duplicate"]
    assert busy.take(JOB, wire) == ["duplicate"]


def test_replaying_everything_shuffled_ten_times_changes_nothing(busy: Desk) -> None:
    job = busy.row(JOB)
    wires = [
        busy.wire(JOB, "started"),
        *[busy.wire(JOB, "progress", {"note": str(n)}) for n in range(20)],
        busy.report(job),
    ]
    busy.take(JOB, *wires)
    before, events = busy.row(JOB), _count(busy)

    again = wires * 10
    random.Random(7).shuffle(again)
    outcomes = busy.take(JOB, *again)

    assert set(outcomes) == {"duplicate"}
    assert (busy.row(JOB), _count(busy)) == (before, events)


def _count(desk: Desk) -> int:
    with desk.mam.registry.view() as view:
        return view.last_event()


def test_two_bodies_in_one_slot_are_an_equivocation(busy: Desk) -> None:
    first = busy.wire(JOB, "progress", {"note": "a"}, producer="verb-1", seq=0)
    second = busy.wire(JOB, "progress", {"note": "b"}, producer="verb-1", seq=0)

    assert busy.take(JOB, first, second) == ["accepted", "equivocation"]


@pytest.mark.req("M38")
def test_events_of_an_earlier_attempt_are_fenced_out(busy: Desk) -> None:
    old = busy.row(JOB)
    jobs.cancel(busy.mam, JOB)
    delegation.retry(busy.mam, JOB)

    outcomes = busy.take(JOB, busy.wire(JOB, "started"), busy.report(old), busy.wire(JOB, "started", attempt=3))

    assert outcomes == ["stale_attempt", "stale_attempt", "unknown_attempt"]
    assert (busy.row(JOB).state, busy.row(JOB).attempt) == ("queued", 2)


def test_what_an_earlier_attempt_said_is_kept_without_effect_and_once(busy: Desk) -> None:
    report = busy.report(busy.row(JOB))
    jobs.cancel(busy.mam, JOB)
    delegation.retry(busy.mam, JOB)
    before = busy.row(JOB)

    assert busy.take(JOB, report, busy.wire(JOB, "heartbeat")) == ["stale_attempt", "accepted"]
    assert busy.take(JOB, report) == ["duplicate"]

    with busy.mam.registry.view() as view:
        kept = [(event["kind"], event["outcome"]) for event in view.events(scope=f"jobs/{JOB}")]
        first = view.attempt(JOB, 1)
    assert kept == [("report", "stale_attempt")]
    assert first is not None and first.last_heartbeat_at is None
    assert busy.row(JOB) == before


@pytest.mark.req("M38")
def test_the_key_of_one_job_speaks_for_no_other(busy: Desk) -> None:
    busy.session("second")
    busy.job("second", "job-00000002")
    token = keys.load(busy.mam.layout.job_key(JOB))
    body = busy.agent.job_event("job-00000002", 1, "started", {})
    forged = seal(body, token=token, use="event-mac", scope="job-00000002", topic="jobs/job-00000002")

    assert busy.take("job-00000002", forged) == ["bad_signature"]
    assert busy.take("job-00000002", busy.wire(JOB, "started")) == ["bad_signature"]
    assert busy.row("job-00000002").state == "queued"


@pytest.mark.req("M36")
def test_what_is_signed_is_the_topic_below_the_root(busy: Desk) -> None:
    wire = busy.wire(JOB, "started")

    assert busy.row(JOB).topic_prefix == f"mam/{busy.mam.fingerprint}/jobs"
    assert [s.outcome for s in busy.settle([("jobs/job-00000009", wire)])] == ["unknown_job"]
    assert [s.outcome for s in busy.settle([("agents/writer/events", wire)])] == ["bad_signature"]


def test_a_binding_that_differs_from_the_topic_is_refused_though_signed(busy: Desk) -> None:
    assert busy.take(JOB, busy.wire(JOB, "started", job="job-00000002")) == ["binding_mismatch"]


def test_a_clock_far_off_in_either_direction_refuses_nothing(busy: Desk) -> None:
    ahead = busy.wire(JOB, "started", ts=busy.clock + 600_000)
    behind = busy.wire(JOB, "started", ts=busy.clock - 30 * 24 * 3600 * 1000)

    assert busy.take(JOB, ahead, behind) == ["accepted", "accepted"]
    with busy.mam.registry.view() as view:
        assert [event["arrived_at"] for event in view.events()] == [busy.clock] * 2


def test_a_report_that_was_altered_after_signing_counts_as_failed(busy: Desk) -> None:
    job = busy.row(JOB)
    wire = busy.report(job, verdict="pass")
    Path(job.report_path).write_text("I never wrote this\n", "utf-8")

    assert busy.take(JOB, wire) == ["report_altered"]
    after = busy.row(JOB)
    assert (after.state, after.result, after.verdict, after.detail) == ("reported", "failed", None, "report_altered")


def test_a_late_report_corrects_a_presumed_end(busy: Desk) -> None:
    job_checks.act(busy.mam.registry, [], [job_checks.PresumedEnd(JOB, 1, "lost", "its agent is gone")])
    assert busy.row(JOB).state == "lost"

    assert busy.take(JOB, busy.report(busy.row(JOB))) == ["accepted"]
    assert (busy.row(JOB).state, busy.row(JOB).late) == ("reported", 1)


def test_garbage_among_good_messages_takes_nothing_with_it(busy: Desk) -> None:
    batch = [
        ("jobs/" + JOB, b"\xff\x00garbage"),
        ("jobs/" + JOB, busy.wire(JOB, "started")),
        ("nonsense", b"{}"),
        ("jobs/" + JOB, b"[" * 100_000),
        ("jobs/" + JOB, b"x" * 300_000),
        ("jobs/" + JOB, busy.wire(JOB, "report", {"result": "maybe"})),
        ("jobs/" + JOB, busy.wire(JOB, "progress", {"note": "still here"})),
    ]

    outcomes = [s.outcome for s in busy.settle(batch)]

    assert outcomes == ["malformed", "accepted", "bad_topic", "malformed", "too_large", "schema", "accepted"]


def test_an_authenticated_refusal_is_settled_and_an_unauthenticated_one_is_not(busy: Desk) -> None:
    good = busy.wire(JOB, "report", {"result": "maybe"})
    settled = busy.settle([("jobs/" + JOB, good), ("jobs/" + JOB, good[:-9] + b'AAAAAAA"}')])

    assert settled[0].session == "writer" and len(settled[0].event_id) == 32
    assert settled[1].session == "" and settled[1].event_id == ""


def test_a_kind_of_a_newer_version_is_stored_without_effect(busy: Desk) -> None:
    before = busy.row(JOB)

    assert busy.take(JOB, busy.wire(JOB, "sighed", {"depth": 3})) == ["accepted"]
    assert busy.row(JOB) == before
    assert _count(busy) == 1


@pytest.mark.req("M98")
def test_heartbeats_are_noted_but_never_stored(busy: Desk) -> None:
    assert busy.take(JOB, busy.wire(JOB, "heartbeat")) == ["accepted"]
    busy.inbox.write_beats()

    with busy.mam.registry.view() as view:
        attempt = view.attempt(JOB, 1)
    assert attempt is not None and attempt.last_heartbeat_at == busy.clock
    assert _count(busy) == 0


def test_the_last_heartbeat_is_written_once_a_minute_and_with_what_is_written_anyway(busy: Desk) -> None:
    began = busy.clock
    busy.take(JOB, busy.wire(JOB, "heartbeat"), busy.wire(JOB, "started"))
    assert _beat_of(busy) == began

    busy.clock += 59_000
    busy.take(JOB, busy.wire(JOB, "heartbeat"), busy.wire(JOB, "progress", {"note": "n"}))
    assert (_beat_of(busy), busy.inbox.heard[(JOB, 1)]) == (began, busy.clock)

    busy.clock += 1_000
    busy.take(JOB, busy.wire(JOB, "heartbeat"))
    busy.inbox.write_beats()
    assert _beat_of(busy) == busy.clock


def _beat_of(desk: Desk) -> int | None:
    with desk.mam.registry.view() as view:
        attempt = view.attempt(JOB, 1)
    assert attempt is not None
    return attempt.last_heartbeat_at


SEEN = {"online": True, "incarnation": "0001", "pid": 1, "start_time": "1", "boot_id": "b", "version": "0"}
OLD_SCREEN = {"name": "screen", "state": "ready", "incarnation": "0000"}


def test_what_is_never_kept_and_changes_nothing_needs_no_transaction(busy: Desk) -> None:
    events, presence = topics.events("writer"), topics.presence("writer")
    busy.settle([(presence, busy.runtime("writer", "presence", SEEN))])
    busy.inbox.arrived.clear()
    batch = [
        (topics.job(JOB), busy.wire(JOB, "heartbeat")),
        (presence, busy.runtime("writer", "presence", SEEN)),
        (events, busy.runtime("writer", "signal", OLD_SCREEN)),
        (topics.job(JOB), b"garbage"),
    ]

    with busy.mam.registry.locked():  # a transaction would wait for this, in vain
        outcomes = [settling.outcome for settling in busy.settle(batch)]

    assert outcomes == ["accepted", "accepted", "accepted", "malformed"]
    assert busy.inbox.heard == {(JOB, 1): busy.clock} and busy.inbox.arrived == {"writer"}


def test_what_is_never_kept_is_never_settled_whether_it_is_accepted_or_refused(busy: Desk) -> None:
    screen = {"name": "screen", "state": "ready", "evidence": "> ", "incarnation": "0001"}
    batch = [
        (topics.job(JOB), busy.wire(JOB, "heartbeat")),
        (topics.job(JOB), busy.wire(JOB, "heartbeat", attempt=7)),
        (topics.presence("writer"), busy.runtime("writer", "presence", SEEN)),
        (topics.events("writer"), busy.runtime("writer", "signal", screen)),
        (topics.events("writer"), busy.runtime("writer", "signal", {"name": "turn_ended"})),
    ]

    settled = busy.settle(batch)

    assert [each.outcome for each in settled] == ["accepted", "unknown_attempt", "accepted", "accepted", "accepted"]
    assert [each.session for each in settled] == ["", "", "", "", "writer"]
    with busy.mam.registry.view() as view:
        session = need_session(view, "writer")
        assert [event["kind"] for event in view.events()] == ["signal"]
    assert (session.presence, session.screen, session.screen_at) == ("online", "ready", busy.clock)


def test_what_comes_before_the_first_change_of_a_batch_counts_as_much_as_what_follows(busy: Desk) -> None:
    wires = [busy.wire(JOB, kind) for kind in ("heartbeat", "started", "heartbeat")]

    assert busy.take(JOB, *wires, wires[1]) == ["accepted", "accepted", "accepted", "duplicate"]
    assert busy.row(JOB).state == "running"


def test_after_archiving_a_job_its_topic_is_dead(busy: Desk) -> None:
    wire = busy.wire(JOB, "progress", {"note": "n"})
    busy.take(JOB, busy.report(busy.row(JOB)))
    jobs.archive(busy.mam, JOB)

    assert busy.take(JOB, wire) == ["unknown_job"]


def test_an_archived_job_whose_key_outlived_a_crash_takes_nothing(busy: Desk) -> None:
    busy.take(JOB, busy.report(busy.row(JOB)))
    key = busy.mam.layout.job_key(JOB)
    kept, late = key.read_bytes(), busy.wire(JOB, "progress", {"note": "n"})
    jobs.archive(busy.mam, JOB)
    key.write_bytes(kept)
    key.chmod(0o600)

    assert busy.take(JOB, late) == ["expired"]
    assert _count(busy) == 0


def test_a_retry_calls_off_what_the_runner_still_tries_to_deliver(busy: Desk) -> None:
    with busy.mam.registry.transaction() as tx:
        tx.put(replace(jobs.need(tx, JOB), state="lost", ended_at=busy.clock))

    delegation.retry(busy.mam, JOB)

    with busy.mam.registry.view() as view:
        assert {(order.kind, order.attempt) for order in view.outbox()} == {("cancel", 1), ("dispatch", 2)}


def test_what_became_of_an_earlier_prompt_ends_no_later_attempt(busy: Desk) -> None:
    refused = busy.runtime("writer", "delivery", {"state": "refused", "reason": "busy"}, job=JOB, attempt=1)
    jobs.cancel(busy.mam, JOB)
    delegation.retry(busy.mam, JOB)

    assert [s.outcome for s in busy.settle([(topics.events("writer"), refused)])] == ["stale_attempt"]
    assert (busy.row(JOB).state, busy.row(JOB).attempt) == ("queued", 2)


def test_a_delivery_makes_the_job_dispatched_and_ends_its_order(busy: Desk) -> None:
    topic = topics.events("writer")
    received = busy.runtime("writer", "delivery", {"state": "received"}, job=JOB, attempt=1)
    busy.settle([(topic, received)])
    with busy.mam.registry.view() as view:
        assert (view.outbox()[0].job, busy.row(JOB).state) == (JOB, "dispatched")

    busy.settle([(topic, busy.runtime("writer", "delivery", {"state": "submitted"}, job=JOB, attempt=1))])

    with busy.mam.registry.view() as view:
        attempt = view.attempt(JOB, 1)
        assert view.outbox() == []
    assert attempt is not None and (attempt.delivery, attempt.delivered_at) == ("submitted", busy.clock)


def test_a_refused_prompt_frees_the_agent_and_says_why(busy: Desk) -> None:
    data = {"state": "refused", "reason": "dialog", "evidence": "Trust this folder?"}

    busy.settle([(topics.events("writer"), busy.runtime("writer", "delivery", data, job=JOB, attempt=1))])

    assert (busy.row(JOB).state, busy.row(JOB).detail) == ("agent_blocked", "prompt not delivered: dialog")
    assert busy.job(job_id="job-00000002").state == "queued"


def test_a_presence_of_another_incarnation_is_old_news(busy: Desk) -> None:
    seen = {"online": True, "incarnation": "0000", "pid": 1, "start_time": "1", "boot_id": "b", "version": "0"}
    topic = topics.presence("writer")

    busy.settle([(topic, busy.runtime("writer", "presence", seen))])
    with busy.mam.registry.view() as view:
        assert need_session(view, "writer").pid is None

    busy.settle([(topic, busy.runtime("writer", "presence", {**seen, "incarnation": "0001"}))])
    with busy.mam.registry.view() as view:
        assert need_session(view, "writer").pid == 1


def test_offline_is_a_question_and_ends_nothing(busy: Desk) -> None:
    seen = {"online": False, "incarnation": "0001", "pid": 1, "start_time": "1", "boot_id": "b", "version": "0"}

    busy.settle([(topics.presence("writer"), busy.runtime("writer", "presence", seen))])

    with busy.mam.registry.view() as view:
        session = need_session(view, "writer")
    assert (session.status, session.presence) == ("running", "offline")


@pytest.mark.req("M98")
def test_a_heartbeat_of_an_earlier_attempt_is_no_sign_of_the_current_one(busy: Desk) -> None:
    beat = busy.wire(JOB, "heartbeat")
    jobs.cancel(busy.mam, JOB)
    delegation.retry(busy.mam, JOB)

    assert busy.take(JOB, beat) == ["accepted"] and busy.inbox.heard == {}
    busy.take(JOB, busy.wire(JOB, "heartbeat", attempt=2))
    assert list(busy.inbox.heard) == [(JOB, 2)]


def test_a_report_that_is_a_fifo_by_now_counts_as_altered_and_holds_nothing_up(busy: Desk) -> None:
    job = busy.row(JOB)
    wire = busy.report(job)
    Path(job.report_path).unlink()
    os.mkfifo(job.report_path)

    assert busy.take(JOB, wire) == ["report_altered"]


def test_what_names_another_session_than_its_topic_is_refused_though_signed(busy: Desk) -> None:
    body = busy.runner.session_message("other", "signal", {"name": "agent_exited"}, job=None, attempt=0)
    topic = topics.events("writer")
    token = keys.load(busy.mam.layout.session_key("writer"))

    (settling,) = busy.settle([(topic, seal(body, token=token, use="rt", scope="writer", topic=topic))])

    assert settling.outcome == "binding_mismatch"
    with busy.mam.registry.view() as view:
        assert need_session(view, "writer").status == "running"
