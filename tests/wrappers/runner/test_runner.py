"""The runner's relay: what an agent said goes out again and again until it is settled."""

import json
import os
import secrets
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mam.broker import spool
from mam.broker.bus.memory import MemoryBroker, MemoryBus
from mam.broker.bus.protocol import Message
from mam.wrappers.runner.relay import BURY_AGE_S, BURY_TRIES, FIRST_RETRY_S, LAST_RETRY_S, Relay

TOPIC = "jobs/job-20260101-aaaa"


def wire(body: object) -> bytes:
    text = urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")
    return json.dumps({"v": 1, "kid": "k1", "body": text, "sig": "v1,x"}).encode()


class Road:
    """A spool, its relay, and a bus whose far end can be read and shut."""

    def __init__(self, folder: Path) -> None:
        self.spool, self.dead = folder / "outbox", folder / "dead"
        self.spool.mkdir()
        self.relay = Relay(self.spool, self.dead)
        self.broker = MemoryBroker()
        self.bus = MemoryBus(self.broker)
        self._arrived: list[Message] = []
        MemoryBus(self.broker).subscribe("#", self._arrived.append)

    def put(self, kind: str = "report", *, beat: bool = False) -> spool.Spooled:
        event_id = secrets.token_hex(16)
        spool.write(self.spool, event_id, TOPIC, wire({"kind": kind, "attempt": 2}), beat=beat)
        return next(item for item in spool.pending(self.spool) if item.id == event_id)

    def arrivals(self) -> list[bytes]:
        """What arrived since the last call."""
        self.broker.drain()
        found = [message.payload for message in self._arrived]
        self._arrived.clear()
        return found

    def send(self, now: float) -> int:
        self.relay.send(self.bus, now)
        return len(self.arrivals())


_watchers: list[list[object]] = []


def _note(event: str, args: tuple[object, ...]) -> None:
    if event in ("os.listdir", "os.scandir"):
        for seen in _watchers:
            seen.append(args[0])


sys.addaudithook(_note)  # for as long as the process lives: Python takes none back


@contextmanager
def listings() -> Iterator[list[object]]:
    """The folders that are listed meanwhile, as Python's own audit tells."""
    seen: list[object] = []
    _watchers.append(seen)
    try:
        yield seen
    finally:
        _watchers.remove(seen)


@pytest.fixture
def road(tmp_path: Path) -> Iterator[Road]:
    made = Road(tmp_path)
    yield made
    made.broker.close()


class TestSending:
    def test_an_event_goes_out_with_its_exact_bytes_on_its_topic_and_stays(self, road: Road) -> None:
        item = road.put()
        assert road.relay.send(road.bus, 0.0) == [item]
        assert road.arrivals() == [item.wire]
        assert list(spool.pending(road.spool)) == [item]

    def test_it_is_fresh_only_once(self, road: Road) -> None:
        item = road.put()
        assert [road.relay.send(road.bus, now) for now in (0.0, 100.0)] == [[item], []]

    def test_it_is_fresh_only_once_also_while_there_is_no_bus(self, road: Road) -> None:
        item = road.put()
        assert [road.relay.send(None, now) for now in (0.0, 1.0)] == [[item], []]

    def test_it_is_repeated_with_growing_pauses_up_to_a_limit(self, road: Road) -> None:
        road.put()
        now, pauses = 0.0, []
        assert road.send(now) == 1
        for _ in range(8):
            wait_s = 0.5
            while not road.send(now + wait_s):
                wait_s += 0.5
            pauses.append(wait_s)
            now += wait_s
        assert pauses == [FIRST_RETRY_S, 4.0, 8.0, 16.0, 32.0, LAST_RETRY_S, LAST_RETRY_S, LAST_RETRY_S]

    def test_without_a_connection_nothing_counts_as_tried(self, road: Road) -> None:
        road.put()
        road.broker.up = False
        assert [road.send(0.0), road.send(0.1)] == [0, 0]
        road.broker.up = True
        assert road.send(0.2) == 1

    def test_when_the_road_opens_again_everything_is_due_at_once(self, road: Road) -> None:
        road.put()
        assert [road.send(0.0), road.send(1.0)] == [1, 0]
        road.relay.hurry()
        assert road.send(1.0) == 1

    def test_what_somebody_else_took_out_of_the_spool_is_forgotten(self, road: Road) -> None:
        for _ in range(3):
            item = road.put()
            road.send(0.0)
            item.path.unlink()  # the monitor swept it
        road.send(1.0)
        assert road.relay._tries == {}

    def test_events_go_out_in_the_order_in_which_they_were_said(self, road: Road) -> None:
        items = []
        for kind in ("started", "progress", "report"):
            items.append(road.put(kind))
            until_next = time.time_ns() // 1_000_000
            while time.time_ns() // 1_000_000 == until_next:  # file names sort by millisecond
                pass
        road.relay.send(road.bus, 0.0)
        assert road.arrivals() == [item.wire for item in items]

    @pytest.mark.parametrize("connected", [True, False])
    def test_a_heartbeat_is_sent_once_or_never_and_is_not_kept(self, road: Road, connected: bool) -> None:
        road.put("heartbeat", beat=True)
        road.broker.up = connected
        assert road.relay.send(road.bus, 0.0) == []  # never fresh: it says nothing about a delivery
        road.broker.up = True
        assert len(road.arrivals()) + road.send(100.0) == int(connected)
        assert list(spool.pending(road.spool)) == []

    def test_foreign_files_in_the_spool_are_left_alone(self, road: Road) -> None:
        for name in (".half-written", "notes.txt", "1.event"):
            (road.spool / name).write_text("x", "utf-8")
        assert road.send(0.0) == 0
        assert len(list(road.spool.iterdir())) == 3


class TestSettling:
    def test_a_settled_event_is_gone_and_not_sent_again(self, road: Road) -> None:
        first, second = road.put(), road.put()
        assert road.send(0.0) == 2
        road.relay.settle({first.id, "0" * 32})
        assert [item.id for item in spool.pending(road.spool)] == [second.id]
        assert road.send(1000.0) == 1

    def test_settling_twice_is_harmless(self, road: Road) -> None:
        item = road.put()
        assert road.send(0.0) == 1
        road.relay.settle({item.id})
        road.relay.settle({item.id})
        assert road.send(1000.0) == 0

    def test_an_id_that_was_written_twice_is_settled_at_once(self, road: Road) -> None:
        item = road.put()
        twin = item.path.with_name(f"{0:013d}-{item.id}.event")
        twin.write_bytes(item.path.read_bytes())
        assert road.send(0.0) == 1
        road.relay.settle({item.id})
        assert list(spool.pending(road.spool)) == []

    def test_what_is_settled_is_found_by_its_name_without_listing_the_spool(self, road: Road) -> None:
        first, second = road.put(), road.put()
        assert road.send(0.0) == 2
        with listings() as listed:
            road.relay.settle({first.id, "0" * 32})
        assert listed == []
        assert [item.id for item in spool.pending(road.spool)] == [second.id]


class TestBurying:
    def age(self, item: spool.Spooled, by_s: float) -> None:
        then = time.time() - by_s
        os.utime(item.path, (then, then))

    def tries(self, road: Road, times: int) -> None:
        for _ in range(times):
            road.relay.hurry()
            road.relay.send(road.bus, 1.0)

    def test_what_nobody_settled_after_many_tries_and_an_hour_is_set_aside(self, road: Road) -> None:
        item = road.put()
        self.age(item, BURY_AGE_S + 60)
        self.tries(road, BURY_TRIES - 1)
        assert item.path.exists()
        self.tries(road, 1)
        assert not item.path.exists()
        assert (road.dead / item.path.name).read_bytes() == TOPIC.encode() + b"\n" + item.wire
        assert road.send(10_000.0) == BURY_TRIES and road.send(20_000.0) == 0

    def test_a_young_event_is_not_set_aside_however_often_it_was_tried(self, road: Road) -> None:
        item = road.put()
        self.age(item, BURY_AGE_S - 60)
        self.tries(road, 3 * BURY_TRIES)
        assert item.path.exists() and not road.dead.exists()

    def test_an_old_event_that_could_never_be_sent_is_kept(self, road: Road) -> None:
        item = road.put()
        self.age(item, 10 * BURY_AGE_S)
        road.broker.up = False
        self.tries(road, 3 * BURY_TRIES)
        assert item.path.exists() and not road.dead.exists()

    def test_an_event_that_is_swept_while_it_is_sent_disturbs_no_other(self, road: Road) -> None:
        first, second = sorted([road.put(), road.put()], key=lambda item: item.path.name)
        for item in (first, second):
            self.age(item, BURY_AGE_S + 60)
        self.tries(road, BURY_TRIES - 1)
        road.arrivals()

        class Sweeping(MemoryBus):
            """The monitor settles the first event in the moment in which we publish it."""

            def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
                first.path.unlink(missing_ok=True)
                return super().publish(topic, payload, qos=qos, retain=retain)

        road.relay.hurry()
        road.relay.send(Sweeping(road.broker), 1.0)
        assert not first.path.exists() and (road.dead / second.path.name).exists()
