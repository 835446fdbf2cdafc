"""The Bus protocol: everything that MAM needs of a message bus."""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """One delivered message. *topic* is logical (below the root). *retained* marks a copy that the broker had kept."""

    topic: str
    payload: bytes
    retained: bool


Handler = Callable[[Message], None]


class Will(NamedTuple):
    """The retained message that the broker publishes for a client whose connection ended without a goodbye."""

    topic: str
    payload: bytes


class Bus(Protocol):
    """
    A connection to a message bus. It may lose, double and reorder messages: what must survive is kept elsewhere.

    A handler runs on the thread of the bus, so it must return at once: enqueue, and nothing else. An exception in a
    handler is logged, and ends neither the bus nor the handler.
    """

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted the connection of this moment."""
        ...

    @property
    def unanswered(self) -> int:
        """How many connections in a row ended before the broker acknowledged anything that was published on them."""
        ...

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        """Give *payload* to the live connection. Returns False, and keeps nothing, where there is none."""
        ...

    def subscribe(self, pattern: str, handler: Handler) -> None:
        """Call *handler* for each message on a topic that matches *pattern* (MQTT wildcards), also after reconnects."""
        ...

    def wait_ready(self, wait_s: float) -> None:
        """Wait until it is connected and all subscriptions are granted. Raises BrokerUnreachable after *wait_s*."""
        ...

    def close(self, *, flush_s: float = 2.0) -> None:
        """Send what was published, for at most *flush_s*, and say goodbye: no will is sent. Twice is harmless."""
        ...
