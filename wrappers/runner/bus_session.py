"""The connection of a runner to the monitor: presence, messages out, messages in."""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from mam.broker import spool
from mam.broker.bus import impaired
from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.protocol import Bus, Message, Will
from mam.broker.bus.url import Endpoint
from mam.broker.envelope import keys, topics
from mam.broker.envelope.orders import Received, SeenPresence, read_inbox, read_presence
from mam.broker.envelope.payloads import Producer
from mam.broker.envelope.signing import USE_COMMAND, USE_JOB, USE_RUNTIME, seal, unseal
from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId
from mam.broker.spool import Spooled
from mam.broker.version import VERSION
from mam.wrappers.runner.launch_spec import LaunchSpec
from mam.wrappers.runner.relay import Relay

NEW_BROKER_AFTER_S = 1.0
INBOX_AT_MOST = 1000
ECHO_S = 2.0

Connect = Callable[[Endpoint, str, Will, Callable[[], None]], Bus]


def connect_mqtt(endpoint: Endpoint, root: str, will: Will, on_connect: Callable[[], None]) -> Bus:
    """Return a bus that connects to *endpoint* in the background."""
    return MqttBus(endpoint, root, will=will, on_connect=on_connect)


def connector(weather: str, who: str) -> Connect:
    """Return the function that connects; with a *weather*, what it publishes is impaired. Raises Usage."""
    parsed = impaired.parse(weather)
    if parsed is None:
        return connect_mqtt

    def connect(endpoint: Endpoint, root: str, will: Will, on_connect: Callable[[], None]) -> Bus:
        return impaired.ImpairedBus(connect_mqtt(endpoint, root, will, on_connect), parsed, who)

    return connect


class BusSession:
    """
    What a runner says and hears on the bus, for one life of its agent.

    It works without a broker as well: events wait in the spool, and it connects as soon as one answers. All methods
    belong to the runner's one thread, but *wake*.
    """

    def __init__(self, spec: LaunchSpec, connect: Connect) -> None:
        self._spec = spec
        self._connect = connect
        self._key = keys.load(Path(spec.session_key))
        self._producer = Producer("runner")
        self._me = process_identity.me()
        self._agent: ProcessId | None = None
        self._bus: Bus | None = None
        self._endpoint: Endpoint | None = None
        self._due = 0.0
        self._announce_due = False  # after a connect
        self._echo_due: float | None = None  # when our own presence must have come back from the broker
        self._incoming: deque[Message] = deque(maxlen=INBOX_AT_MOST)
        self.relay = Relay(spec.spool, Path(spec.run_dir) / "dead")
        self.wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def wake_descriptor(self) -> int:
        """The descriptor that a signal handler writes to, to end the loop's sleep."""
        return self._wake_write

    @property
    def connected(self) -> bool:
        """Whether a broker has accepted the connection of this moment."""
        return self._bus is not None and self._bus.connected

    def open(self, agent: ProcessId) -> None:
        """Begin to connect. It must be called after the fork of the agent, since it starts a thread."""
        self._agent = agent
        self.attend()

    def attend(self) -> None:
        """Connect, or connect anew where the broker was started anew while it could not be reached."""
        now = time.monotonic()
        if self.connected or now < self._due:
            return
        self._due = now + NEW_BROKER_AFTER_S
        endpoint = self._spec.broker.endpoint("runner")
        if endpoint is None or endpoint == self._endpoint:
            return
        if self._bus is not None:
            self._bus.close(flush_s=0)
        will = Will(topics.presence(self._spec.session), self._presence(online=False))
        self._endpoint = endpoint
        self._bus = self._connect(endpoint, topics.root(self._spec.fingerprint), will, self._on_connect)
        self._bus.subscribe(topics.inbox(self._spec.session), self._enqueue)
        self._bus.subscribe(topics.presence(self._spec.session), self._enqueue)

    def announce(self) -> bool:
        """
        Publish the presence: after a connect, and again until the broker has sent it back.

        Returns True after a connect. The caller must then repeat what the lost connection may have swallowed.
        """
        unheard = self._echo_due is not None and time.monotonic() > self._echo_due
        if not (self._announce_due or unheard) or not self._publish_presence(online=True):
            return False
        self._echo_due = time.monotonic() + ECHO_S
        anew, self._announce_due = self._announce_due, False
        if anew:
            self.relay.hurry()
        return anew

    def say(
        self, kind: str, data: Mapping[str, object], *, job: str | None = None, attempt: int = 0, keep: bool = True
    ) -> bool:
        """
        Send a message to the monitor.

        With *keep* it waits in the spool until it is settled (OSError where the disk refuses). Without, it may be lost,
        and False says that it was.
        """
        topic = topics.events(self._spec.session)
        if kind == "signal":
            data = {**data, "incarnation": self._spec.incarnation}
        body = self._producer.session_message(self._spec.session, kind, data, job=job, attempt=attempt)
        wire = self._seal(body, topic)
        if not keep:
            return self._bus is not None and self._bus.publish(topic, wire)
        spool.write(self._spec.spool, str(body["id"]), topic, wire)
        return True

    def beat(self, job: str, attempt: int, key: bytes) -> None:
        """Publish a heartbeat of an attempt; nothing happens while there is no connection."""
        body = self._producer.job_event(job, attempt, "heartbeat", {})
        topic = topics.job(job)
        if self._bus is not None:
            self._bus.publish(topic, seal(body, token=key, use=USE_JOB, scope=job, topic=topic), qos=0)

    def carry(self, now: float) -> list[Spooled]:
        """Publish the events of the spool that are due. Returns those that were published for the first time."""
        return self.relay.send(self._bus, now)

    def receive(self) -> Received | None:
        """
        Return the next message for this runner, checked; None where no more are waiting.

        Raises EventRefused for a message that cannot be accepted. The next call goes on with the one after it.
        """
        while self._incoming:
            message = self._incoming.popleft()
            if not message.payload:
                continue
            own_presence = message.topic == topics.presence(self._spec.session)
            use, read = (USE_RUNTIME, read_presence) if own_presence else (USE_COMMAND, read_inbox)
            scope, keyring = self._spec.session, {"k1": self._key}
            body = unseal(message.payload, keyring=keyring, use=use, scope=scope, topic=message.topic)
            received = read(body)
            if not own_presence:
                return received
            self._answer(received.data)
        return None

    def close(self) -> None:
        """Publish that the runner goes offline, and disconnect without a will."""
        if self._bus is not None:
            self._publish_presence(online=False)
            self._bus.close()

    def wake(self) -> None:
        """End the loop's sleep. Any thread may call it."""
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            pass  # it is awake already

    def _on_connect(self) -> None:
        self._announce_due = True
        self.wake()

    def _enqueue(self, message: Message) -> None:
        self._incoming.append(message)
        self.wake()

    def _answer(self, seen: object) -> None:
        """A late will may have overwritten our `online`: publish it again, unless a younger runner has published."""
        if not isinstance(seen, SeenPresence):
            return
        if seen.incarnation == self._spec.incarnation and seen.online:
            self._echo_due = None
        elif seen.incarnation <= self._spec.incarnation:
            self._publish_presence(online=True)

    def _publish_presence(self, *, online: bool) -> bool:
        topic = topics.presence(self._spec.session)
        return self._bus is not None and self._bus.publish(topic, self._presence(online=online), retain=True)

    def _presence(self, *, online: bool) -> bytes:
        data: dict[str, object] = {
            "online": online,
            "incarnation": self._spec.incarnation,
            "version": VERSION,
            "pid": self._me.pid,
            "start_time": self._me.start,
            "boot_id": self._me.boot,
        }
        if self._agent is not None:
            data |= {"agent_pid": self._agent.pid, "agent_start": self._agent.start}
        body = self._producer.session_message(self._spec.session, "presence", data)
        return self._seal(body, topics.presence(self._spec.session))

    def _seal(self, body: Mapping[str, object], topic: str) -> bytes:
        return seal(body, token=self._key, use=USE_RUNTIME, scope=self._spec.session, topic=topic)
