"""Scorecard 4 and 6 to 8: tampered, replayed, outlived and misplaced messages at the inbox, in numbers."""

import logging
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from mam.broker.envelope import keys, topics
from mam.broker.envelope.signing import UNAUTHENTICATED, seal
from mam.control_plane.config import layout as layouts
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.inbox import Inbox
from mam.control_plane.registry.records import Attempt, Job
from mam.control_plane.registry.transactions import Registry
from tests.support import size
from tests.support.desk import Desk
from tests.support.tampering import Wire, tamper

Figure = Callable[[str, float], None]
REFUSED = UNAUTHENTICATED | {
    "schema", "binding_mismatch", "from_future", "expired", "unknown_attempt", "stale_attempt", "equivocation"
}  # fmt: skip
BATCH = 256


class Crowd:
    """Many sessions with a job each, and everything that is said about them."""

    def __init__(self, desk: Desk, count: int) -> None:
        self.desk = desk
        self.names = [f"agent-{n}" for n in range(count)]
        for name in self.names:
            desk.session(name)
        self.jobs = [desk.job(name, f"job-{n:08d}") for n, name in enumerate(self.names)]

    def events(self, job: Job, progress: int) -> list[Wire]:
        """All that is said in the life of *job*, in order."""
        desk, name = self.desk, job.session
        states = ("received", "submitted")
        said = [desk.runtime(name, "delivery", {"state": s}, job=job.id, attempt=job.attempt) for s in states]
        notes = [desk.wire(job.id, "progress", {"note": f"n{n}"}, attempt=job.attempt) for n in range(progress)]
        own = [desk.wire(job.id, "started", attempt=job.attempt), *notes, desk.report(job, verdict="pass")]
        return [*((topics.events(name), wire) for wire in said), *((topics.job(job.id), wire) for wire in own)]

    def everything(self, progress: int) -> list[Wire]:
        return [event for job in self.jobs for event in self.events(job, progress)]


def take(inbox: Inbox, wires: Sequence[Wire]) -> list[str]:
    batches = (wires[start : start + BATCH] for start in range(0, len(wires), BATCH))
    return [settling.outcome for batch in batches for settling in inbox.take(batch)]


def state(registry: Registry) -> tuple[list[Job], list[Attempt], set[str], int]:
    """What the events made of the jobs, which events are kept, and how many orders wait."""
    with registry.view() as view:
        attempts = [replace(attempt, last_note=None) for attempt in view.rows(Attempt, "ORDER BY job, attempt")]
        kept = {row[0] for row in view.connection.execute("SELECT id FROM events")}
        return view.rows(Job, "ORDER BY id"), attempts, kept, len(view.outbox())


def audited(registry: Registry) -> int:
    with registry.view() as view:
        found: int = view.connection.execute("SELECT count(*) FROM audit").fetchone()[0]
        return found


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Each refusal is a line of the log: too many to keep."""
    with caplog.at_level(logging.ERROR, "mam.inbox"):
        yield


@pytest.mark.scorecard(4)
@pytest.mark.req("M96")
def test_no_tampered_message_is_accepted_and_none_raises(
    desk: Desk, dice: random.Random, figure: Figure, quiet: None
) -> None:
    crowd = Crowd(desk, 10)
    good = crowd.everything(3)
    tokens = [keys.load(path) for path in sorted(desk.mam.layout.secrets.glob("*.key"))]
    count = size(1000, 100_000)
    before = state(desk.mam.registry)
    outcomes: dict[str, int] = {}

    for start in range(0, count, BATCH):
        spoilt = [tamper(dice, good, tokens) for _ in range(min(BATCH, count - start))]
        for outcome in take(desk.inbox, spoilt):
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    assert sum(outcomes.values()) == count
    assert set(outcomes) <= REFUSED, outcomes
    assert len(outcomes) >= 7, f"they were all spoilt in the same way: {outcomes}"
    assert state(desk.mam.registry) == before
    assert set(take(desk.inbox, good)) == {"accepted"}
    figure("messages", count)
    figure("kinds", len(outcomes))
    figure("accepted", outcomes.get("accepted", 0))


@pytest.mark.scorecard(6)
def test_everything_replayed_ten_times_in_any_order_ends_in_the_same_state(
    desk: Desk, tmp_path: Path, dice: random.Random, figure: Figure
) -> None:
    crowd = Crowd(desk, size(10, 50))
    wires = crowd.everything(96)
    twin = tmp_path / "twin"
    shutil.copytree(desk.mam.layout.root, twin, ignore=lambda folder, names: [n for n in names if "wake" in n])
    layout = layouts.layout(desk.mam.settings, str(twin))
    other = Inbox(Registry(layout.database, layout.registry_lock, by="twin"), Keyring(layout), clock=lambda: desk.clock)
    again = wires * 10
    dice.shuffle(again)

    assert set(take(desk.inbox, wires)) == {"accepted"}
    expected, changes = state(desk.mam.registry), audited(desk.mam.registry)

    assert set(take(desk.inbox, again)) == {"duplicate"}
    assert (state(desk.mam.registry), audited(desk.mam.registry)) == (expected, changes)
    outcomes = take(other, again)
    assert outcomes.count("duplicate") == len(again) - len(wires)
    assert state(Registry(layout.database, layout.registry_lock, by="test")) == expected
    assert {job.state for job in expected[0]} == {"reported"}
    figure("events", len(wires))
    figure("replays", 2 * len(again))
    figure("extra", audited(desk.mam.registry) - changes)


@pytest.mark.scorecard(7)
@pytest.mark.req("M38")
def test_what_an_earlier_attempt_said_is_stale_after_the_next_dispatch(
    desk: Desk, dice: random.Random, figure: Figure, quiet: None
) -> None:
    crowd = Crowd(desk, 20)
    recorded, held_back = [], []
    for job in crowd.jobs:
        events = [wire for wire in crowd.events(job, 48) if wire[0].startswith("jobs/")]
        recorded += events[:20]
        held_back += events[20:]
    take(desk.inbox, recorded)
    for job in crowd.jobs:
        jobs.cancel(desk.mam, job.id)
        delegation.retry(desk.mam, job.id)
    before, attempts, kept, orders = state(desk.mam.registry)
    dice.shuffle(held_back)

    assert set(take(desk.inbox, held_back)) == {"stale_attempt"}
    assert set(take(desk.inbox, recorded)) == {"duplicate"}

    after = state(desk.mam.registry)
    assert (after[0], after[1], after[3]) == (before, attempts, orders)
    assert len(after[2]) == len(kept) + len(held_back)  # stored, without effect
    assert {job.state for job in before} == {"queued"}
    figure("stale", len(held_back))
    figure("duplicate", len(recorded))


@pytest.mark.scorecard(8)
@pytest.mark.req("M38")
def test_no_key_speaks_for_another_job_session_or_topic(desk: Desk, figure: Figure, quiet: None) -> None:
    crowd = Crowd(desk, 20)
    layout = desk.mam.layout
    forged: list[Wire] = []
    for mine, other in permutations(crowd.jobs, 2):
        token, theirs = keys.load(layout.job_key(mine.id)), topics.job(other.id)
        body = desk.agent.job_event(other.id, 1, "started", {})
        forged += [
            (theirs, seal(body, token=token, use="event-mac", scope=other.id, topic=theirs)),
            (theirs, seal(body, token=token, use="event-mac", scope=mine.id, topic=topics.job(mine.id))),
            (topics.job(mine.id), seal(body, token=token, use="event-mac", scope=mine.id, topic=topics.job(mine.id))),
            (theirs, seal(body, token=_session_key(desk, mine), use="rt", scope=mine.session, topic=theirs)),
            (theirs, seal(body, token=_session_key(desk, other), use="event-mac", scope=other.id, topic=theirs)),
            (theirs, seal(body, token=keys.load(layout.control_key), use="card", scope="control", topic=theirs)),
            *_as_runner(desk, mine, other),
        ]

    outcomes = take(desk.inbox, forged)

    assert set(outcomes) <= {"bad_signature", "binding_mismatch"}
    assert state(desk.mam.registry)[2] == set()
    figure("messages", len(forged))
    figure("accepted", outcomes.count("accepted"))


def _session_key(desk: Desk, job: Job) -> bytes:
    return keys.load(desk.mam.layout.session_key(job.session))


def _as_runner(desk: Desk, mine: Job, other: Job) -> list[Wire]:
    """Words of a runner: of another session, and the monitor's own ones reflected."""
    place = topics.events(other.session)
    data = {"state": "submitted", "reason": "", "evidence": ""}
    body = desk.runner.session_message(other.session, "delivery", data, job=other.id, attempt=1)
    job_key = keys.load(desk.mam.layout.job_key(other.id))
    return [
        (place, seal(body, token=_session_key(desk, mine), use="rt", scope=other.session, topic=place)),
        (place, seal(body, token=_session_key(desk, other), use="cmd", scope=other.session, topic=place)),
        (place, seal(body, token=job_key, use="rt", scope=other.session, topic=place)),
    ]
