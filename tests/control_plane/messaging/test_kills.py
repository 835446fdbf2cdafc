"""Scorecard 1 to 3: kill -9 of broker, carrier, monitor and producer in the middle of many events."""

import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from mam.broker import spool
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from tests.support import size, until
from tests.support.road import Road

pytestmark = pytest.mark.slow

EVENTS = size(3000, 10_000)
Figure = Callable[[str, float], None]


def finish(road: Road, figure: Figure, *, unanswered: int = 0, within_s: float = 90) -> None:
    """
    Everything said is recorded once, in the registry and in its audit log, and nothing waits any more.

    Args:
        unanswered: How many events at most may be there whose verb died between the disk and its answer.
    """
    said = set(road.said())
    until(lambda: not spool.entries(road.outbox), within_s=within_s, what="the spool is settled")
    recorded = road.recorded()
    lost, doubled = len(said - set(recorded)), len(recorded) - len(set(recorded))
    assert (lost, doubled) == (0, 0)
    assert len(set(recorded) - said) <= unanswered, "events that nobody said"
    until(lambda: len(road.audited()) >= len(recorded), within_s=within_s, what="all is in the audit log")
    assert sorted(road.audited()) == sorted(recorded)
    figure("events", len(said))
    figure("lost", lost)
    figure("doubled", doubled)


def has_carried(road: Road, events: int) -> bool:
    return road.count() > events


def strike_in_turn(road: Road, targets: list[str]) -> None:
    """kill -9 each of *targets*, spread over the first three quarters of the events."""
    for strike, what in enumerate(targets):
        waited = EVENTS * strike // (len(targets) + len(targets) // 3)
        until(partial(has_carried, road, waited), what="events flow")
        road.strike(what)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("broker", marks=pytest.mark.scorecard(1)),
        pytest.param("monitor", marks=pytest.mark.scorecard(2)),
        pytest.param("carrier", marks=pytest.mark.scorecard(2)),
    ],
)
def test_killing_one_part_five_times_loses_and_doubles_nothing(road: Road, figure: Figure, what: str) -> None:
    began = time.monotonic()
    road.speak(EVENTS)
    strike_in_turn(road, [what] * 5)
    road.spoken()

    assert len(road.said()) == EVENTS
    finish(road, figure)
    figure("kills", 5)
    figure("seconds", time.monotonic() - began)


@pytest.mark.scorecard(2)
def test_killing_everything_in_turn_sixteen_times_loses_and_doubles_nothing(
    road: Road, dice: random.Random, figure: Figure
) -> None:
    targets = ["broker", "carrier", "monitor", "producer"] * 4
    dice.shuffle(targets)
    began = time.monotonic()
    road.speak(EVENTS)
    strike_in_turn(road, targets)
    road.spoken()

    assert sorted(road.said().values()) == list(range(EVENTS))
    finish(road, figure, unanswered=targets.count("producer"))
    figure("kills", len(targets))
    figure("seconds", time.monotonic() - began)


@pytest.mark.scorecard(3)
@pytest.mark.parametrize("carrier", ["restarted", "kept"])
def test_a_thousand_events_said_while_nothing_listens_come_when_it_is_back(
    road: Road, figure: Figure, carrier: str
) -> None:
    monitor_process.end(road.mam.layout)
    nats_server.stop(road.mam.layout.broker)
    if carrier == "restarted":
        road.carrier.kill()
        road.carrier.wait()
    road.speak(1000)
    road.spoken()
    assert road.recorded() == []

    began = time.monotonic()
    monitor_process.ensure(road.mam, wait_s=60)
    if carrier == "restarted":
        road.carry()
    until(lambda: road.count() >= 1000, what="every event is recorded")
    figure("seconds", time.monotonic() - began)

    finish(road, figure)
