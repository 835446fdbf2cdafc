"""Scorecard 1 to 3: kill -9 of broker, carrier, monitor and producer in the middle of many events."""

import os
import random
import signal
import subprocess

import pytest

from mam.broker import server, spool
from mam.control_plane import daemon
from tests.support import until

from .conftest import Road

EVENTS = int(os.environ.get("MAM_TEST_EVENTS", "3000"))


def finish(road: Road, said: set[str], within_s: float = 60) -> None:
    """Everything said is recorded once, and nothing waits any more."""
    until(lambda: len(road.recorded()) >= len(said), within_s=within_s, what="every event is recorded")
    until(lambda: not spool.entries(road.outbox), within_s=within_s, what="the spool is settled")
    recorded = road.recorded()
    assert set(recorded) == said, "lost or foreign events"
    assert len(recorded) == len(set(recorded)), "events recorded twice"


def ended(producer: "subprocess.Popen[str]") -> None:
    assert producer.wait(120) == 0


@pytest.mark.parametrize("what", ["broker", "monitor", "carrier"])
def test_killing_one_part_five_times_loses_and_doubles_nothing(road: Road, what: str) -> None:
    producer = road.produce(0, EVENTS)
    for strike in range(5):
        until(lambda strike=strike: len(road.recorded()) > strike * EVENTS // 8, within_s=60, what="events flow")
        road.strike(what)
    ended(producer)
    said = road.said()

    assert len(said) == EVENTS
    finish(road, said)


def test_killing_everything_in_turn_twelve_times_loses_and_doubles_nothing(road: Road, dice: random.Random) -> None:
    producer = road.produce(0, EVENTS)
    for strike in range(12):
        until(lambda strike=strike: len(road.recorded()) > strike * EVENTS // 16, within_s=60, what="events flow")
        road.strike(dice.choice(["broker", "monitor", "carrier"]))
    ended(producer)
    said = road.said()

    finish(road, said)


def test_a_killed_producer_loses_nothing_that_its_verb_had_answered(road: Road) -> None:
    for first in range(0, 1000, 200):
        before = len(road.said())
        producer = road.produce(first, first + 200)
        until(lambda before=before: len(road.said()) > before + 40, what="it speaks")
        producer.send_signal(signal.SIGKILL)
        producer.wait()
    said = road.said()

    until(lambda: said <= set(road.recorded()), within_s=60, what="all that was answered is recorded")
    until(lambda: not spool.entries(road.outbox), what="the spool is settled")
    recorded = road.recorded()
    assert len(recorded) == len(set(recorded))
    assert len(recorded) <= len(said) + 5  # at most one event a kill was on disk and not answered yet


def test_a_thousand_events_said_while_nothing_listens_come_when_it_is_back(road: Road) -> None:
    daemon.end(road.mam.layout)
    server.stop(road.mam.layout.broker)
    road.carrier.kill()
    road.carrier.wait()
    producer = road.produce(0, 1000)
    ended(producer)
    said = road.said()
    assert road.recorded() == []

    daemon.ensure(road.mam)
    road.carry()

    finish(road, said)
