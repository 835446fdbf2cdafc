"""
A bus on a bad day: it loses, doubles and reorders messages, by a seed. A shipped double around any other bus.

No part of MAM may rest on the bus (see protocol.py). So everything that runs over this one must end as it does over a
good one, only later.
"""

import random
from typing import NamedTuple

from mam.broker.bus.protocol import Bus, Handler
from mam.broker.errors import Usage


class Impairment(NamedTuple):
    """Chances from 0 to 0.9 for each message that is published."""

    seed: int = 1
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


def parse(text: str) -> Impairment | None:
    """Return what ``seed=1,loss=0.2,duplicate=0.2,reorder=0.2`` says; None for an empty text. Raises Usage."""
    if not text.strip():
        return None
    given: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            given[name] = -1.0
        chance = name in ("loss", "duplicate", "reorder") and 0 <= given[name] <= 0.9
        if not chance and not (name == "seed" and given[name] >= 0):
            hint = "seed=1,loss=0.2,duplicate=0.2,reorder=0.2, each chance at most 0.9"
            raise Usage(what=f"MAM_CHAOS={text!r} cannot be read at {part.strip()!r}", hint=hint)
    return Impairment(**{**given, "seed": int(given.get("seed", 1))})  # type: ignore[arg-type]


class ImpairedBus:
    """A Bus that impairs what is published through it. What it receives stays as it is."""

    def __init__(self, bus: Bus, weather: Impairment, who: str) -> None:
        self._bus, self._weather = bus, weather
        self._chance = random.Random(f"{weather.seed}/{who}")
        self._held: list[tuple[str, bytes, int, bool]] = []

    @property
    def connected(self) -> bool:
        return self._bus.connected

    @property
    def unanswered(self) -> int:
        return self._bus.unanswered

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        """Publish, lose or hold back. Returns True also for a lost message: its sender could not know either."""
        if not self._bus.connected:
            return False
        roll = self._chance.random
        if roll() < self._weather.loss:
            return True
        if roll() < self._weather.reorder:
            self._held.append((topic, payload, qos, retain))  # sent after the next one; the very last is lost
            return True
        sent = self._bus.publish(topic, payload, qos=qos, retain=retain)
        if roll() < self._weather.duplicate:
            self._bus.publish(topic, payload, qos=qos, retain=retain)
        held, self._held = self._held, []
        for late in held:
            self._bus.publish(late[0], late[1], qos=late[2], retain=late[3])
        return sent

    def subscribe(self, pattern: str, handler: Handler) -> None:
        self._bus.subscribe(pattern, handler)

    def wait_ready(self, wait_s: float) -> None:
        self._bus.wait_ready(wait_s)

    def close(self, *, flush_s: float = 2.0) -> None:
        self._bus.close(flush_s=flush_s)
