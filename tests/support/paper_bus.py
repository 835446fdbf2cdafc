"""A bus that only notes what is published."""

from mam.broker.bus.protocol import Handler
from mam.broker.envelope import topics

EVENTS = topics.events("writer")


class Paper:
    """A bus that only notes what is published."""

    connected = True
    unanswered = 0

    def __init__(self) -> None:
        self.sent: list[str] = []

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        self.sent.append(topic)
        return True

    def subscribe(self, pattern: str, handler: Handler) -> None:
        """Nothing is ever delivered."""

    def wait_ready(self, wait_s: float) -> None:
        """It always is."""

    def close(self, *, flush_s: float = 2.0) -> None:
        """There is nothing to close."""
