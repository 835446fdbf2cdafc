"""The Bus protocol: what MAM asks of a message bus, and no more."""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """One delivery. *topic* is logical (below the root); *retained* marks a copy from the broker's cache."""

    topic: str
    payload: bytes
    retained: bool


Handler = Callable[[Message], None]


class Will(NamedTuple):
    """What the broker says for a client that died without saying goodbye; retained."""

    topic: str
    payload: bytes


class Bus(Protocol):
    """
    A road, not a memory: nothing that must survive rests on it.

    A handler runs on the bus's own thread, so it must only enqueue. An
    exception in a handler is logged and ends neither the bus nor the handler.
    """

    @property
    def connected(self) -> bool: ...

    @property
    def unanswered(self) -> int:
        """How many connections in a row ended without the broker's word for anything that was published on them."""
        ...

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        """Hand *payload* to a live connection; False, with nothing kept, where there is none."""
        ...

    def subscribe(self, pattern: str, handler: Handler) -> None:
        """Deliver what matches *pattern* (MQTT wildcards) to *handler*, again after every reconnect."""
        ...

    def wait_ready(self, wait_s: float) -> None:
        """Return once connected with every subscription granted; raise BrokerUnreachable."""
        ...

    def close(self, *, flush_s: float = 2.0) -> None:
        """Send what was handed over, say goodbye (no will), and leave. Closing twice is harmless."""
        ...
