"""Scorecard 10: a client that may publish sends garbage wherever the monitor listens, then somebody speaks sense."""

import json
import random
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from mam.broker import spool
from mam.broker.bus.mqtt import MqttBus
from mam.broker.envelope import keys, signing, topics
from mam.broker.envelope.payloads import Producer
from mam.broker.envelope.signing import seal
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.monitor.broker_supervisor import SUBSCRIBED
from tests.support import Root, size, until

A_TOPIC = size(200, 1000)
GROWTH_MB = 100  # the promise is 20; this is where the monitor keeps what it should not


def garbage(dice: random.Random, good: bytes) -> bytes:
    """One payload that nobody should believe: binary, deep, oversize, or nearly good."""
    deep = dice.randrange(1_000, 100_000)
    flipped = bytearray(good)
    flipped[dice.randrange(len(good))] ^= 1 << dice.randrange(8)
    return dice.choices(
        [
            dice.randbytes(dice.randrange(1, 600)),
            b"\0" * dice.randrange(1, 5_000),
            b"[" * deep,
            b'{"a":' * deep,
            b"[" * deep + b"]" * deep,
            good[: dice.randrange(1, len(good))],
            bytes(flipped),
            good + b" ",
            json.dumps({"v": 1, "kid": "k" * deep, "body": "", "sig": "v1,"}).encode(),
            json.dumps({"v": 10**300, "kid": "k1", "body": "", "sig": "v1,"}).encode(),
            json.dumps({"v": 1, "kid": "k1", "body": "A" * 200_000, "sig": "v1," + "A" * 43}).encode(),
            b"x" * (signing.MAX_WIRE_BYTES + 1),
            b"x" * 900_000,
        ],
        weights=[10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 4, 4, 4],
    )[0]


class Flooder:
    """The authorised client, and what it watches of the monitor."""

    def __init__(self, root: Root, job: str) -> None:
        mam = root.parts
        running, known = nats_server.running(mam.layout.broker), monitor_process.look(mam.layout)
        assert running is not None and known is not None
        self._run_dir = mam.layout.run_dir("writer")
        self.monitor = psutil.Process(known.process.pid)
        self._buses: dict[str, MqttBus] = {}
        for user in ("runner", "control"):
            login = nats_config.endpoint(mam.layout.secrets, running.port, user)
            self._buses[user] = MqttBus(login, topics.root(mam.fingerprint))
            self._buses[user].wait_ready(60)
        self._token, self.job, self._producer = keys.load(mam.layout.job_key(job)), job, Producer("verb")
        self.peak = self.rss()

    def rss(self) -> int:
        size: int = self.monitor.memory_info().rss
        return size

    def event(self) -> tuple[str, bytes]:
        """Id and wire of a good event of the job."""
        body = self._producer.job_event(self.job, 1, "progress", {"note": "sense"})
        topic = topics.job(self.job)
        return str(body["id"]), seal(body, token=self._token, use="event-mac", scope=self.job, topic=topic)

    def throw(self, topic: str, wire: bytes, *, retain: bool) -> None:
        """Publish as the user that may."""
        bus = self._buses["control" if topic.endswith("/state") else "runner"]
        until(lambda: bus.publish(topic, wire, retain=retain), what="the client's queue has room")
        self.peak = max(self.peak, self.rss())

    def speak_sense(self) -> str:
        """Say one good event the way that an agent does, and return its id."""
        event_id, wire = self.event()
        spool.write(self._run_dir / "outbox", event_id, topics.job(self.job), wire)
        spool.wake(self._run_dir / "wake")
        return event_id

    def close(self) -> None:
        for bus in self._buses.values():
            bus.close(flush_s=60)


@pytest.fixture
def flooder(root: Root) -> Iterator[Flooder]:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    made = Flooder(root, job)
    yield made
    made.close()


def places(pattern: str, job: str) -> list[str]:
    """Topics that *pattern* lets through: a known one, an unknown one, and one that is none."""
    known = {"jobs": job, "agents": "writer", "loops": "loop-00000001"}[pattern.split("/")[0]]
    return [pattern.replace("+", name) for name in (known, "nobody-there", "NO-\u00e4")]


@pytest.mark.scorecard(10)
def test_after_much_garbage_on_each_topic_the_next_good_message_is_recorded(
    root: Root, flooder: Flooder, dice: random.Random, figure: Callable[[str, float], None]
) -> None:
    before = flooder.rss()
    good = flooder.event()[1]
    for pattern in SUBSCRIBED:
        topics_of = places(pattern, flooder.job)
        for n in range(A_TOPIC):
            flooder.throw(topics_of[n % 3], garbage(dice, good), retain=pattern.endswith(("presence", "state")))

    began = time.monotonic()
    event_id = flooder.speak_sense()
    until(lambda: event_id in {event["id"] for event in root.events(f"jobs/{flooder.job}")})
    accepted_s = time.monotonic() - began

    log = (root.path / ".mam" / "logs" / "monitor.log").read_text("utf-8")
    refused = log.count(" refused ")
    grown_mb, peak_mb = (flooder.rss() - before) / 2**20, (flooder.peak - before) / 2**20
    assert flooder.monitor.is_running() and root.session("writer").status == "running"
    assert {event["outcome"] for event in root.events()} == {"accepted"}
    assert "Traceback" not in log and refused > A_TOPIC
    assert grown_mb < GROWTH_MB
    figure("garbage", A_TOPIC * len(SUBSCRIBED))
    figure("refused", refused)
    figure("accepted_s", accepted_s)
    figure("grown_mb", grown_mb)
    figure("peak_mb", peak_mb)
