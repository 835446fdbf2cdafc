"""A bus that only notes what is published."""

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
