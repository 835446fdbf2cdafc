"""
A broker that forgets, repeats, floods, takes and keeps silent, or is shared with clients that misbehave.

The bus itself, ports in use, passwords, permissions: tests/broker. Kills among thousands of events, long absences:
tests/control_plane/messaging/test_kills.py. Brokers of one's own: test_own_broker.py.
"""

import os
import shutil
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from mam.broker import spool
from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.protocol import Message
from mam.broker.bus.url import Endpoint
from mam.broker.envelope import keys, topics
from mam.broker.envelope.payloads import Producer
from mam.broker.envelope.signing import seal
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.monitor import broker_supervisor, monitor
from mam.control_plane.monitor.monitor import Monitor
from tests.support import Root, size, until
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile

JOB = "job-00000001"
FLOOD = size(6_000, 30_000)
HANG: list[dict[str, Any]] = [{"started": {}}, {"hang": {}}]


def bus_of(root: Root, user: str = "control") -> MqttBus:
    """One more client of the embedded broker; the caller closes it."""
    layout = root.parts.layout
    running = nats_server.running(layout.broker)
    assert running is not None
    bus = MqttBus(nats_config.endpoint(layout.secrets, running.port, user), topics.root(root.parts.fingerprint))
    bus.wait_ready(30)
    return bus


class TestFloods:
    def test_of_too_much_heartbeats_are_dropped_first_and_reports_last(self, desk: Desk) -> None:
        desk.session()
        desk.job()
        watcher = Monitor(desk.mam)
        beat = Message(topics.job(JOB), desk.wire(JOB, "heartbeat"), retained=False)
        progress = Message(topics.job(JOB), desk.wire(JOB, "progress", {"note": "n"}), retained=False)
        for _ in range(monitor.QUEUE * 2):
            watcher._enqueue(beat)
        assert len(watcher._queue) == monitor.BEATS_UNTIL

        watcher._enqueue(progress)

        assert watcher._queue[-1] == progress
        for _ in range(monitor.QUEUE):
            watcher._enqueue(progress)
        assert len(watcher._queue) == monitor.QUEUE

    def test_a_report_that_was_dropped_is_recorded_from_its_spool(self, desk: Desk) -> None:
        desk.session(presence="online")
        job = desk.job()
        outbox = desk.mam.layout.run_dir("writer") / "outbox"
        path = spool.write(outbox, "a" * 32, topics.job(JOB), desk.report(job))
        os.utime(path, (1, 1))  # its runner has had it for long
        watcher = Monitor(desk.mam)
        watcher._queue.extend([Message("x", b"", retained=False)] * monitor.QUEUE)
        watcher._enqueue(Message(topics.job(JOB), desk.report(job), retained=False))

        view = desk.mam.registry.watch()
        watcher._sweep_spools(view)

        assert desk.row(JOB).state == "reported"
        view.connection.close()

    def test_a_report_comes_through_a_flood_of_heartbeats_and_garbage(self, root: Root) -> None:
        gate = root.gate()
        root.agent("writer", {"started": {}}, gate.step, {"report": {"text": "done"}})
        job = root.delegate()
        until(lambda: root.job(job).state == "running")
        bus, agent = bus_of(root, "runner"), Producer("flood")
        token = keys.load(root.parts.layout.job_key(job))
        topic = topics.job(job)
        for number in range(FLOOD):
            beat = agent.job_event(job, 1, "heartbeat", {})
            wire = seal(beat, token=token, use="event-mac", scope=job, topic=topic) if number % 3 else os.urandom(200)
            bus.publish(topic, wire, qos=0)
            if number == FLOOD // 2:
                gate.open()

        done = root.mam("job", "wait", job, "--timeout", "60", "--json")

        bus.close()
        assert (done.code, done.json["every_event_verified"]) == (0, True)
        assert [e["kind"] for e in root.events(f"jobs/{job}")] == ["started", "report"]

    def test_free_text_that_no_message_could_carry_is_refused_at_once(self, root: Root) -> None:
        root.agent()

        long = root.mam("agent", "send", "writer", "-", "--json", stdin="👩" * 59_000)
        most = root.mam("agent", "send", "writer", "-", "--json", stdin="한" * 40_000)

        assert (long.code, long.error["code"]) == (2, "usage")
        assert most.code == 0, most.err

    def test_a_packet_over_the_brokers_limit_ends_its_sender_and_nobody_else(self, root: Root) -> None:
        root.agent()
        known = monitor_process.look(root.parts.layout)
        bus = bus_of(root, "runner")
        for length in (300_000, 900_000, 3_000_000):
            bus.publish(topics.job(JOB), b"x" * length)
            bus.publish(topics.presence("writer"), b"x" * length)
            bus.publish(topics.events("writer"), b"[" * length)

        assert root.mam("job", "wait", root.delegate(), "--timeout", "60").code == 0
        bus.close(flush_s=0)
        assert monitor_process.look(root.parts.layout) == known


class TestForgetfulness:
    def test_a_broker_that_comes_back_without_its_store_costs_nothing(self, root: Root) -> None:
        gate = root.gate()
        root.agent("writer", {"started": {}}, gate.step, {"report": {"text": "done"}})
        job = root.delegate()
        until(lambda: root.job(job).state == "running")
        running = nats_server.running(root.parts.layout.broker)
        assert running is not None
        os.kill(running.pid, signal.SIGSTOP)  # so that nobody starts it before its store is gone
        shutil.rmtree(root.parts.layout.broker / "store")
        os.kill(running.pid, signal.SIGKILL)
        gate.open()

        assert root.mam("job", "wait", job, "--timeout", "60").code == 0
        assert root.mam("job", "wait", root.delegate(), "--timeout", "60").code == 0
        cards: list[Message] = []
        viewer = bus_of(root, "viewer")
        viewer.subscribe("monitor/state", cards.append)
        until(lambda: any(card.retained for card in cards), what="the monitor's card is there again")
        viewer.close()

    def test_the_whole_folder_of_the_broker_may_be_removed_while_it_is_down(self, root: Root) -> None:
        root.agent()
        root.mam("down")
        shutil.rmtree(root.parts.layout.broker)
        for password in root.parts.layout.secrets.glob("broker-*.password"):
            password.unlink()

        assert root.mam("job", "wait", root.delegate(), "--timeout", "60").code == 0


class TestRetained:
    """Whoever has a password that publishes may leave retained copies, and the broker gives them to the next."""

    def test_leftovers_on_every_topic_disturb_neither_monitor_nor_runner(self, root: Root) -> None:
        root.agent("writer", *HANG)
        job = root.delegate()
        until(lambda: root.job(job).state == "running")
        started = next(event for event in root.events(f"jobs/{job}") if event["kind"] == "started")
        control, runner = bus_of(root), bus_of(root, "runner")
        for bus, topic, wire in (
            (runner, "jobs/job-deleted-long-ago", started["wire"]),
            (runner, topics.job(job), started["wire"]),
            (runner, topics.events("writer"), b"garbage"),
            (runner, topics.events("nobody"), started["wire"]),
            (runner, topics.presence("nobody"), b"{}"),
            (runner, topics.presence("writer"), b"\xff" * 100),
            (control, topics.inbox("writer"), b"garbage"),
            (control, topics.job_state("job-deleted-long-ago"), b"{}"),
        ):
            assert bus.publish(topic, wire, retain=True)
        for bus in (control, runner):
            bus.close()
        before = len(root.events(f"jobs/{job}"))

        root.kill_monitor()
        root.mam("up")
        root.kill_broker()

        until(lambda: root.ok("status")["monitor"]["problem"] == "" and root.session("writer").presence == "online")
        root.agent("second")
        assert root.mam("job", "wait", root.delegate("second"), "--timeout", "60").code == 0
        assert len(root.events(f"jobs/{job}")) == before
        assert root.job(job).state == "running"

    def test_an_old_prompt_that_was_retained_is_not_typed_into_the_next_life(self, root: Root) -> None:
        root.agent()
        seen: list[Message] = []
        bus = bus_of(root)
        bus.subscribe(topics.inbox("writer"), seen.append)
        bus.wait_ready(30)
        job = root.delegate()
        root.mam("job", "wait", job, "--timeout", "30")
        dispatch = max((message.payload for message in seen), key=len)
        root.mam("agent", "stop", "writer")
        assert bus.publish(topics.inbox("writer"), dispatch, retain=True)
        bus.close()

        assert root.mam("agent", "resume", "writer").code == 0
        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0

        memory = (root.path / ".mam" / "run" / "writer" / "memory.json").read_text("utf-8")
        assert memory.count(f"[MAM job {job},") == 1

    def test_the_card_of_an_archived_job_is_cleared(self, root: Root) -> None:
        root.agent()
        job = root.delegate("writer", "x", "--wait")
        cards: list[Message] = []
        viewer = bus_of(root, "viewer")
        viewer.subscribe(topics.job_state(job), cards.append)
        until(lambda: cards and cards[-1].payload, what="its card is there")

        root.mam("job", "archive", job)

        until(lambda: cards[-1].payload == b"", what="its card is cleared")
        viewer.close()


class TestStrangeClients:
    def test_a_second_client_with_the_id_of_ours_costs_one_reconnect(self, root: Root) -> None:
        root.mam("up")
        ours = bus_of(root, "viewer")
        got: list[Message] = []
        ours.subscribe("probe/+", got.append)
        ours.wait_ready(30)
        layout = root.parts.layout
        running = nats_server.running(layout.broker)
        assert running is not None
        there = nats_config.endpoint(layout.secrets, running.port, "viewer")
        twin = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=ours._client._client_id.decode(), protocol=paho.MQTTv311
        )
        twin.username_pw_set(there.user, there.password)
        twin.connect(there.host, there.port)
        twin.loop_start()
        until(lambda: twin.is_connected() or not ours.connected, what="the twin is in")
        twin.disconnect()
        twin.loop_stop()

        until(lambda: ours.connected, what="ours is back")
        ours.wait_ready(30)
        control = bus_of(root)
        control.publish("probe/viewer", b"still here")
        until(lambda: any(message.payload == b"still here" for message in got))
        for bus in (ours, control):
            bus.close()

    def test_two_connections_of_one_control_root_never_share_an_id(self) -> None:
        nowhere = Endpoint("127.0.0.1", 9)
        buses = [MqttBus(nowhere, "mam/0123456789ab") for _ in range(50)]
        try:
            assert len({bus._client._client_id for bus in buses}) == 50
        finally:
            for bus in buses:
                bus.close(flush_s=0)

    def test_somebody_elses_presence_under_a_runners_name_is_overruled(self, root: Root) -> None:
        root.agent()
        layout = root.parts.layout
        row = root.session("writer")
        topic = topics.presence("writer")
        said = {"online": False, "incarnation": "0001", "version": "0", "pid": 1, "start_time": "1", "boot_id": "b"}
        body = Producer("runner").session_message("writer", "presence", said)
        wire = seal(body, token=keys.load(layout.session_key("writer")), use="rt", scope="writer", topic=topic)
        bus = bus_of(root, "runner")
        seen: list[bytes] = []
        bus.subscribe(topic, lambda message: seen.append(message.payload))
        bus.wait_ready(30)

        bus.publish(topic, wire, retain=True)

        until(lambda: wire in seen and seen[-1] != wire, what="the runner says again that it is there")
        bus.close()
        assert root.session("writer").status == "running" and root.session("writer").pid == row.pid


class Mute(threading.Thread):
    """A broker that lets everybody in and subscribe, takes every message, answers for none, and hangs up."""

    def __init__(self, answers: bool) -> None:
        super().__init__(daemon=True)
        self.answers = answers
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.start()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        while kind := connection.recv(1):
            body = _body(connection)
            if kind[0] >> 4 == 1:
                connection.sendall(b"\x20\x02\x00\x00")
            elif kind[0] >> 4 == 8:
                connection.sendall(b"\x90\x03" + body[:2] + b"\x01")
            elif kind[0] >> 4 == 3:
                if not self.answers:
                    return
                (length,) = struct.unpack(">H", body[:2])
                connection.sendall(b"\x40\x02" + body[2 + length : 4 + length])

    def end(self) -> None:
        self._listener.close()


def _body(connection: socket.socket) -> bytes:
    length, shift = 0, 0
    while True:
        (byte,) = connection.recv(1)
        length += (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return body


def is_back(mute: Mute, bus: MqttBus, connections: int) -> bool:
    return mute.connections >= connections and bus.connected


class TestSilence:
    @pytest.fixture
    def mute(self, request: pytest.FixtureRequest) -> Iterator[Mute]:
        broker = Mute(request.param)
        yield broker
        broker.end()

    @pytest.mark.parametrize("mute", [False], indirect=True)
    def test_a_broker_that_answers_for_nothing_is_noticed(self, mute: Mute) -> None:
        bus = MqttBus(Endpoint("127.0.0.1", mute.port), "mam/0123456789ab")
        bus.wait_ready(30)

        bus.publish("jobs/x", b"y")

        until(lambda: bus.unanswered >= broker_supervisor.UNANSWERED, what="connections without an answer are counted")
        bus.close(flush_s=0)

    @pytest.mark.parametrize("mute", [True], indirect=True)
    def test_a_connection_that_breaks_after_its_answers_counts_for_nothing(self, mute: Mute) -> None:
        bus = MqttBus(Endpoint("127.0.0.1", mute.port), "mam/0123456789ab")
        bus.wait_ready(30)
        for number in range(3):
            bus.publish("jobs/x", b"y")
            until(lambda: not bus._client._out_messages)
            connection = bus._client.socket()
            assert isinstance(connection, socket.socket)
            connection.shutdown(socket.SHUT_RDWR)
            until(partial(is_back, mute, bus, number + 2))

        assert bus.unanswered == 0
        bus.close(flush_s=0)

    @pytest.mark.parametrize("mute", [False], indirect=True)
    def test_ones_own_broker_that_answers_for_nothing_is_said(self, root: Root, mute: Mute) -> None:
        root.mam("up", env={"MAM_BROKER_URL": f"mqtt://127.0.0.1:{mute.port}"})

        until(lambda: "acknowledges nothing" in root.ok("status")["monitor"]["problem"], within_s=160)

        root.mam("down")

    def test_a_handler_that_raises_for_one_message_gets_the_next(self, desk: Desk) -> None:
        watcher = Monitor(desk.mam)
        broken = Message("jobs/\udcff", b"\xff", retained=True)

        for message in (broken, Message("", b"", retained=False), Message("x" * 70_000, b"x", retained=False)):
            watcher._enqueue(message)
        watcher._guarded(watcher._take_batch)
        desk.session()
        desk.job()
        watcher._enqueue(Message(topics.job(JOB), desk.wire(JOB, "started"), retained=False))
        watcher._guarded(watcher._take_batch)

        assert desk.row(JOB).state == "running"
