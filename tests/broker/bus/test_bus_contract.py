"""What every bus promises, asked of the bus in memory, of the embedded server and of mosquitto."""

import socket
from collections.abc import Callable

import pytest

from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.protocol import Message, Will
from mam.broker.bus.url import Endpoint
from mam.broker.envelope.topics import root
from mam.broker.errors import BrokerUnreachable
from tests.broker.conftest import Embedded, Inbox, Rig
from tests.support import until

JOB, OTHER = "jobs/contract-1", "jobs/contract-2"
PRESENCE = "agents/w1/presence"


class TestBus:
    def test_what_is_published_arrives_byte_for_byte(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, got = rig.bus(), inbox()
        bus.subscribe(JOB, got)
        bus.wait_ready(30)
        payload = bytes(range(256)) * 40
        assert bus.publish(JOB, payload)
        assert got.next() == (JOB, payload, False)

    def test_messages_of_one_publisher_arrive_in_order(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, got = rig.bus(), inbox()
        bus.subscribe(JOB, got)
        bus.wait_ready(30)
        sent = [b"%d" % number for number in range(300)]
        for payload in sent:
            assert bus.publish(JOB, payload)
        assert [got.next().payload for _ in sent] == sent

    def test_a_wildcard_takes_one_level_and_no_more(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, got = rig.bus(), inbox()
        bus.subscribe("jobs/+", got)
        bus.wait_ready(30)
        bus.publish(f"{JOB}/state", b"deeper")
        bus.publish("agents/w1/inbox", b"elsewhere")
        bus.publish(JOB, b"one")
        bus.publish(OTHER, b"two")
        assert [got.next()[:2] for _ in range(2)] == [(JOB, b"one"), (OTHER, b"two")]

    def test_a_message_goes_to_each_subscriber_and_to_its_own_sender(self, rig: Rig, inbox: type[Inbox]) -> None:
        first, second, here, there = rig.bus(), rig.bus(), inbox(), inbox()
        first.subscribe(JOB, here)
        second.subscribe(JOB, there)
        first.wait_ready(30)
        second.wait_ready(30)
        first.publish(JOB, b"x")
        assert (here.next().payload, there.next().payload) == (b"x", b"x")

    def test_a_later_subscriber_gets_the_retained_copy_and_no_other(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, live, late = rig.bus(), inbox(), inbox()
        bus.subscribe(JOB, live)
        bus.wait_ready(30)
        bus.publish(JOB, b"not kept")
        bus.publish(JOB, b"old", retain=True)
        bus.publish(JOB, b"kept", retain=True)
        assert [live.next() for _ in range(3)][-1] == (JOB, b"kept", False)
        later = rig.bus()
        later.subscribe("jobs/+", late)
        assert late.next() == (JOB, b"kept", True)
        bus.publish(OTHER, b"end")
        assert late.upto(OTHER, b"end") == []

    def test_an_empty_payload_clears_the_retained_copy(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, live, late = rig.bus(), inbox(), inbox()
        bus.subscribe("jobs/+", live)
        bus.wait_ready(30)
        bus.publish(JOB, b"kept", retain=True)
        bus.publish(JOB, b"", retain=True)
        assert [live.next().payload for _ in range(2)] == [b"kept", b""]
        later = rig.bus()
        later.subscribe("jobs/+", late)
        later.wait_ready(30)
        bus.publish(OTHER, b"end")
        assert late.upto(OTHER, b"end") == []

    def test_the_will_of_a_crashed_client_is_sent_and_retained(self, rig: Rig, inbox: type[Inbox]) -> None:
        watcher, live, late = rig.bus(), inbox(), inbox()
        watcher.subscribe(PRESENCE, live)
        watcher.wait_ready(30)
        rig.bus(will=Will(PRESENCE, b"gone")).drop()
        assert live.next() == (PRESENCE, b"gone", False)
        rig.bus().subscribe(PRESENCE, late)
        assert late.next() == (PRESENCE, b"gone", True)

    def test_a_client_that_says_goodbye_leaves_no_will(self, rig: Rig, inbox: type[Inbox]) -> None:
        watcher, got = rig.bus(), inbox()
        watcher.subscribe(PRESENCE, got)
        watcher.wait_ready(30)
        rig.bus(will=Will(PRESENCE, b"gone")).close()
        # a second client, dropped afterwards, would be overtaken by the first one's will
        rig.bus(will=Will(PRESENCE, b"end")).drop()
        assert got.upto(PRESENCE, b"end") == []

    def test_close_sends_what_was_handed_over(self, rig: Rig, inbox: type[Inbox]) -> None:
        watcher, sender, got = rig.bus(), rig.bus(), inbox()
        watcher.subscribe(JOB, got)
        watcher.wait_ready(30)
        for number in range(200):
            assert sender.publish(JOB, b"%d" % number)
        sender.close(flush_s=30)
        assert [got.next().payload for _ in range(200)] == [b"%d" % number for number in range(200)]

    def test_a_handler_that_raises_ends_neither_the_bus_nor_itself(
        self, rig: Rig, inbox: type[Inbox], caplog: pytest.LogCaptureFixture
    ) -> None:
        bus, got = rig.bus(), inbox()

        def fail(message: Message) -> None:
            got(message)
            raise RuntimeError("a handler's own fault")

        bus.subscribe(JOB, fail)
        bus.subscribe(OTHER, got)
        bus.wait_ready(30)
        for topic in (JOB, JOB, OTHER):
            bus.publish(topic, b"x")
        # between two subscriptions of one client nats keeps no order
        assert sorted(got.next().topic for _ in range(3)) == [JOB, JOB, OTHER]
        assert bus.connected
        until(
            lambda: [r.exc_info and r.exc_info[0] for r in caplog.records if r.name == "mam.bus"] == [RuntimeError] * 2,
            "the log",
        )

    def test_publish_while_down_says_so_and_keeps_nothing(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, got = rig.bus(), inbox()
        bus.subscribe("jobs/+", got)
        bus.wait_ready(30)
        rig.crash()
        until(lambda: not bus.connected, "the news of the crash")
        assert bus.publish(JOB, b"while down") is False
        assert bus.publish(JOB, b"while down", retain=True) is False
        rig.restart()
        bus.wait_ready(30)
        assert bus.publish(OTHER, b"end")
        assert got.upto(OTHER, b"end") == []

    def test_a_closed_bus_publishes_nothing_and_closing_twice_is_harmless(self, rig: Rig, inbox: type[Inbox]) -> None:
        watcher, bus, got = rig.bus(), rig.bus(), inbox()
        watcher.subscribe(JOB, got)
        watcher.wait_ready(30)
        bus.close()
        bus.close()
        assert not bus.connected
        assert bus.publish(JOB, b"after the end") is False
        watcher.publish(JOB, b"end")
        assert got.upto(JOB, b"end") == []

    def test_subscriptions_survive_a_restart_of_the_broker(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, one, two = rig.bus(), inbox(), inbox()
        bus.subscribe(JOB, one)
        bus.subscribe("agents/+/inbox", two)
        bus.wait_ready(30)
        rig.crash()
        until(lambda: not bus.connected, "the news of the crash")
        rig.restart()
        bus.wait_ready(30)
        other = rig.bus()
        other.publish(JOB, b"again")
        other.publish("agents/w1/inbox", b"too")
        assert (one.next().payload, two.next().payload) == (b"again", b"too")

    def test_a_subscription_made_while_down_is_granted_later(self, rig: Rig, inbox: type[Inbox]) -> None:
        bus, got = rig.bus(), inbox()
        rig.crash()
        until(lambda: not bus.connected, "the news of the crash")
        bus.subscribe(JOB, got)
        rig.restart()
        bus.wait_ready(30)
        bus.publish(JOB, b"x")
        assert got.next().payload == b"x"

    def test_wait_ready_raises_while_the_broker_is_down(self, rig: Rig) -> None:
        bus = rig.bus()
        rig.crash()
        until(lambda: not bus.connected, "the news of the crash")
        with pytest.raises(BrokerUnreachable) as caught:
            bus.wait_ready(0.05)
        assert caught.value.data["why"]

    def test_each_connection_calls_on_connect_once(self, rig: Rig) -> None:
        if rig.name == "memory":
            pytest.skip("a bus in memory never connects again")
        calls = []
        bus = rig.bus(on_connect=lambda: calls.append(1))
        assert len(calls) == 1
        rig.crash()
        until(lambda: not bus.connected, "the news of the crash")
        rig.restart()
        bus.wait_ready(30)
        until(lambda: len(calls) == 2, "the second call")

    def test_overlapping_patterns_each_get_the_message(self, rig: Rig, inbox: type[Inbox]) -> None:
        """At least once: nats sends one copy for each of the client's subscriptions that match."""
        bus, wide, narrow = rig.bus(), inbox(), inbox()
        bus.subscribe("jobs/+", wide)
        bus.subscribe(JOB, narrow)
        bus.wait_ready(30)
        bus.publish(JOB, b"x")
        assert (wide.next().payload, narrow.next().payload) == (b"x", b"x")


@pytest.fixture
def reason() -> Callable[[MqttBus, str], str]:
    """Why a bus that can never be ready is not ready, once that reason is *words*."""

    def ask(bus: MqttBus, words: str) -> str:
        reasons = [""]

        def known() -> bool:
            with pytest.raises(BrokerUnreachable) as caught:
                bus.wait_ready(0.05)
            reasons.append(str(caught.value))
            return words in reasons[-1]

        until(known, f"the reason {words!r}")
        return reasons[-1]

    return ask


class TestNotReady:
    def test_when_nothing_listens(self, reason: Callable[[MqttBus, str], str]) -> None:
        with socket.socket() as reserved:  # bound and not listening: nobody else can take the port meanwhile
            reserved.bind(("127.0.0.1", 0))
            port = reserved.getsockname()[1]
            bus = MqttBus(Endpoint("127.0.0.1", port), root("0123456789ab"))
            try:
                assert f"mqtt://127.0.0.1:{port}" in reason(bus, "refused or timed out")
                assert not bus.connected
                assert bus.publish(JOB, b"x") is False
            finally:
                bus.close()

    def test_when_the_password_is_wrong_and_the_password_stays_secret(
        self, embedded: Embedded, reason: Callable[[MqttBus, str], str]
    ) -> None:
        embedded.start()
        bus = embedded.bus("control", password="not-the-password")
        said = reason(bus, "refused: ")
        assert "ot authorized" in said
        assert "not-the-password" not in said + repr(bus)
        assert not bus.connected

    def test_when_a_subscription_is_refused(
        self, embedded: Embedded, reason: Callable[[MqttBus, str], str], inbox: type[Inbox]
    ) -> None:
        embedded.start()
        bus = embedded.bus("runner")
        bus.subscribe("agents/+/inbox", inbox())
        bus.wait_ready(30)
        bus.subscribe("jobs/+", inbox())
        assert "subscription to" in reason(bus, "jobs/+ was refused")
        assert bus.connected
