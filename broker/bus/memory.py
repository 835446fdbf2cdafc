"""A bus inside one process, with the same bytes, retained messages and wills as the real one. A shipped double."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable

from paho.mqtt.client import topic_matches_sub

from mam.broker.bus.protocol import Handler, Message, Will
from mam.broker.errors import BrokerUnreachable

_log = logging.getLogger("mam.bus")


class MemoryBroker:
    """What several MemoryBus objects share. One thread delivers all messages, in the order of publishing."""

    def __init__(self) -> None:
        self.retained: dict[str, bytes] = {}
        self.buses: list[MemoryBus] = []
        self.up = True
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name="memory-broker", daemon=True)
        self._thread.start()

    def send(self, topic: str, payload: bytes, retain: bool) -> None:
        """Queue a message for all subscribers. With *retain*, later ones get it too; an empty one ends that."""
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        for bus in list(self.buses):
            for pattern, handler in list(bus.handlers.items()):
                if topic_matches_sub(pattern, topic):
                    self.enqueue(handler, Message(topic, payload, retained=False))

    def enqueue(self, handler: Handler, message: Message) -> None:
        """Queue one delivery."""
        self._queue.put(lambda: handler(message))

    def call(self, hook: Callable[[], None]) -> None:
        """Run *hook* on the delivering thread, as a real bus does."""
        self._queue.put(hook)

    def drain(self) -> None:
        """Wait until everything that was sent so far has been delivered."""
        done = threading.Event()
        self._queue.put(done.set)
        done.wait()

    def close(self) -> None:
        """Deliver what is queued and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _deliver(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call()
            except Exception:  # noqa: BLE001 (the same border as in mqtt.py)
                _log.exception("a bus handler failed")


class MemoryBus:
    """A Bus on a MemoryBroker."""

    def __init__(
        self, broker: MemoryBroker, *, will: Will | None = None, on_connect: Callable[[], None] | None = None
    ) -> None:
        self._broker = broker
        self._will = will
        self.handlers: dict[str, Handler] = {}
        broker.buses.append(self)
        if on_connect is not None:
            broker.call(on_connect)

    @property
    def unanswered(self) -> int:
        return 0

    @property
    def connected(self) -> bool:
        return self._broker.up and self in self._broker.buses

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        if not self.connected:
            return False
        self._broker.send(topic, payload, retain)
        return True

    def subscribe(self, pattern: str, handler: Handler) -> None:
        self.handlers[pattern] = handler
        for topic, payload in list(self._broker.retained.items()):
            if topic_matches_sub(pattern, topic):
                self._broker.enqueue(handler, Message(topic, payload, retained=True))

    def wait_ready(self, wait_s: float) -> None:
        if not self.connected:
            raise BrokerUnreachable(url="memory:", why="it is down")

    def close(self, *, flush_s: float = 2.0) -> None:
        with contextlib.suppress(ValueError):
            self._broker.buses.remove(self)

    def drop(self) -> None:
        """Leave as a crash would: the broker sends the will."""
        was_connected = self.connected
        self.close()
        if self._will is not None and was_connected:
            self._broker.send(self._will.topic, self._will.payload, retain=True)
