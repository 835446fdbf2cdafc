"""
A Bus over paho-mqtt, MQTT 3.1.1, with the known traps of paho closed.

Each line below that looks odd closes one trap: no TCP_NODELAY (35 ms instead of 2.4 ms a round trip), callbacks whose
exceptions end the network thread, publishes that queue in memory while offline, subscriptions that a reconnect loses,
a CONNECT without CONNACK, a SUBACK that refuses.
"""

import logging
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from mam.broker.bus.protocol import Handler, Message, Will
from mam.broker.bus.url import Endpoint
from mam.broker.errors import BrokerUnreachable
from mam.broker.host import fault_points
from mam.broker.host.waiting import wait_until

_log = logging.getLogger("mam.bus")

KEEPALIVE_S = 15
MAX_INFLIGHT = 100
MAX_QUEUED = 2000
ROUTES_AT_MOST = 4096


class MqttBus:
    """
    A Bus over one MQTT connection. After a loss it connects again by itself, every 1 to 10 s.

    Where the endpoint names the server's process, each connection is proven to be that one's before anything is sent.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        root: str,
        *,
        will: Will | None = None,
        on_connect: Callable[[], None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._prefix = root + "/"
        self._on_connect_hook = on_connect
        self._handlers: dict[str, Handler] = {}
        self._routes: dict[str, list[Handler]] = {}  # topic -> whose pattern matches it; matching is dear
        self._granted: set[str] = set()
        self._asked: dict[int, str] = {}
        self._why = "no answer yet"
        self._changed = threading.Condition()
        self._ready_connection = False
        self._closed = False
        self._answered = True
        self._unanswered = 0
        # What was handed over and awaits the broker's word, which comes in this order [MQTT-4.6.0-2].
        self._sent: deque[paho.MQTTMessageInfo] = deque()
        self._counting = threading.Lock()  # never held while paho is called for more than whether one is answered
        client = _client(endpoint, self._prefix, will)
        client.on_socket_open = self._on_socket_open
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        self._client = client
        client.connect_async(endpoint.host, endpoint.port, keepalive=KEEPALIVE_S)
        client.loop_start()

    def __repr__(self) -> str:
        return f"MqttBus({self._endpoint.url}, {'connected' if self.connected else self._why})"

    @property
    def connected(self) -> bool:
        return self._ready_connection

    @property
    def unanswered(self) -> int:
        self._awaits_answers()
        return self._unanswered

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        if not self._ready_connection:
            return False
        fault_points.point("bus.publish")
        info = self._client.publish(self._prefix + topic, payload, qos=qos, retain=retain)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return False
        if qos:  # nothing ever acknowledges the others
            with self._counting:
                self._sent.append(info)
            self._awaits_answers()
        return True

    def _awaits_answers(self) -> bool:
        """Whether the broker has not acknowledged all that it was given; notes what it did acknowledge."""
        with self._counting:
            while self._sent and self._sent[0].is_published():
                self._sent.popleft()
                self._answered, self._unanswered = True, 0
            return bool(self._sent)

    def subscribe(self, pattern: str, handler: Handler) -> None:
        with self._changed:
            self._handlers[pattern] = handler
            self._routes = {}
            if self._ready_connection:
                self._ask(pattern)

    def wait_ready(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not (self._ready_connection and self._granted >= self._handlers.keys()):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise BrokerUnreachable(url=self._endpoint.url, why=self._why)
                self._changed.wait(left_s)

    def close(self, *, flush_s: float = 2.0) -> None:
        if self._closed:
            return
        self._closed = True
        # A disconnect right after a publish loses most of the queue, so wait for the PUBACKs first.
        wait_until(lambda: not (self._ready_connection and self._awaits_answers()), flush_s, every_s=0.005)
        self._client.disconnect()
        self._end_thread()
        self._ready_connection = False

    def drop(self) -> None:
        """End the connection as a crash would. The broker gets no goodbye, so it sends the will."""
        self._closed = True
        self._end_thread()
        sock = self._client.socket()
        if sock is not None:
            sock.close()
        self._ready_connection = False

    def _end_thread(self) -> None:
        """End paho's thread. Its `loop_stop` looks at the thread twice, and fails where it ends in between."""
        try:
            self._client.loop_stop()
        except AttributeError:
            pass  # the thread has ended by itself, as was asked for

    # -- paho's thread ------------------------------------------------------------

    def _ask(self, pattern: str) -> None:
        code, message_id = self._client.subscribe(self._prefix + pattern, qos=1)
        if code == MQTTErrorCode.MQTT_ERR_SUCCESS and message_id is not None:
            self._asked[message_id] = pattern

    def _on_connect(
        self, _client: paho.Client, _data: Any, _flags: paho.ConnectFlags, reason: ReasonCode, _props: Properties | None
    ) -> None:
        with self._changed:
            if reason.is_failure:
                self._why = f"refused: {reason}"
                self._changed.notify_all()
                return
            self._ready_connection = True
            self._answered = False
            self._why = "a subscription was not granted yet"
            self._granted.clear()
            self._asked.clear()
            for pattern in self._handlers:
                self._ask(pattern)
            self._changed.notify_all()
        if self._on_connect_hook is not None:
            self._guard(self._on_connect_hook)

    def _on_socket_open(self, _client: paho.Client, _data: Any, sock: Any) -> None:
        """Prove who has accepted the connection. Nothing was sent on it yet, and nothing is where the proof fails."""
        if not isinstance(sock, socket.socket):
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = self._endpoint.server
        if server is None or server.proven():
            return
        sock.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self._why = f"what listens there is not the process {server.process.pid} that was started"
            self._changed.notify_all()

    def _on_connect_fail(self, _client: paho.Client, _data: Any) -> None:
        with self._changed:
            self._why = "the connection was refused or timed out"
            self._changed.notify_all()

    def _on_disconnect(
        self,
        _client: paho.Client,
        _data: Any,
        _flags: paho.DisconnectFlags,
        reason: ReasonCode,
        _props: Properties | None,
    ) -> None:
        with self._changed:
            if self._ready_connection and self._awaits_answers() and not self._answered:
                self._unanswered += 1
            self._ready_connection = False
            self._granted.clear()
            if not self._why.startswith(("refused", "what listens")):
                self._why = f"the connection ended: {reason}"
            self._changed.notify_all()

    def _on_subscribe(
        self, _client: paho.Client, _data: Any, message_id: int, reasons: list[ReasonCode], _props: Properties | None
    ) -> None:
        with self._changed:
            pattern = self._asked.pop(message_id, None)
            if pattern is None:
                return
            if any(reason.is_failure for reason in reasons):
                self._why = f"the subscription to {pattern} was refused"
                _log.error("%s at %s", self._why, self._endpoint.url)
            else:
                self._granted.add(pattern)
            self._changed.notify_all()

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        topic = message.topic  # decoded anew at each access
        handlers = self._routes.get(topic)
        if handlers is None:
            handlers = self._route(topic)
        if handlers:
            got = Message(topic[len(self._prefix) :], bytes(message.payload), bool(message.retain))
            for handler in handlers:
                self._guard(handler, got)

    def _route(self, topic: str) -> list[Handler]:
        if not topic.startswith(self._prefix):
            return []
        routes, logical = self._routes, topic[len(self._prefix) :]
        found = [
            handler for pattern, handler in list(self._handlers.items()) if paho.topic_matches_sub(pattern, logical)
        ]
        if len(routes) >= ROUTES_AT_MOST:
            routes.clear()
        routes[topic] = found
        return found

    def _guard(self, call: Callable[..., None], *args: Message) -> None:
        # Border: whatever escapes here would end paho's network thread while it still says "connected".
        try:
            call(*args)
        except Exception:  # noqa: BLE001
            _log.exception("a bus handler failed")


def _client(endpoint: Endpoint, prefix: str, will: Will | None) -> paho.Client:
    """A client of *endpoint*, set up and not yet connected."""
    # NATS refuses MQTT 5, and some client ids that others take: hex is safe everywhere.
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id="mam" + secrets.token_hex(12),
        clean_session=True,
        protocol=paho.MQTTv311,
    )
    client.suppress_exceptions = True
    client.max_inflight_messages_set(MAX_INFLIGHT)
    client.max_queued_messages_set(MAX_QUEUED)
    client.reconnect_delay_set(1, 10)
    if endpoint.user:
        client.username_pw_set(endpoint.user, endpoint.password or None)
    if endpoint.tls:
        client.tls_set(ca_certs=str(endpoint.ca_file) if endpoint.ca_file else None)
    if will is not None:
        client.will_set(prefix + will.topic, will.payload, qos=1, retain=True)
    return client
