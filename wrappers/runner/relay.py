"""The relay from a spool to the bus: each event is published again and again until it is settled."""

import time
from collections.abc import Set as AbstractSet
from pathlib import Path

from mam.broker import spool
from mam.broker.bus.protocol import Bus
from mam.broker.host.waiting import pause_s
from mam.broker.spool import Spooled, SpoolEntry

FIRST_RETRY_S = 2.0
LAST_RETRY_S = 60.0
AT_ONCE = 500  # events a call: a long backlog must not keep the runner from everything else
BURY_TRIES = 20
BURY_AGE_S = 3600.0


class Relay:
    """
    Publishes the events of one folder until they are settled.

    An event is tried again after 2 s, then 4 s, up to 60 s. It is set aside in *dead* after 20 tries and an hour. A
    heartbeat is published once and dropped.
    """

    def __init__(self, folder: Path, dead: Path) -> None:
        self._folder, self._dead = folder, dead
        self._tries: dict[str, tuple[int, float]] = {}  # id -> tries so far, when the next one is due
        self._entries: dict[str, list[SpoolEntry]] = {}  # id -> its files, as of the last listing; mostly one

    def send(self, bus: Bus | None, now: float) -> list[Spooled]:
        """Publish what is due. Returns the events that were seen for the first time, also where *bus* is None."""
        fresh: list[Spooled] = []
        sent = 0
        entries = spool.entries(self._folder)
        self._entries = {}
        for entry in entries:
            self._entries.setdefault(entry.id, []).append(entry)
        self._tries = {event_id: known for event_id, known in self._tries.items() if event_id in self._entries}
        for entry in entries:
            if sent >= AT_ONCE:
                break
            if not entry.beat and entry.id in self._tries and (bus is None or now < self._tries[entry.id][1]):
                continue  # not due, so its content is not read
            item = spool.load(entry)
            if item is None:
                continue
            if item.beat:
                if bus is not None:
                    bus.publish(item.topic, item.wire, qos=0)
                item.path.unlink(missing_ok=True)  # a late heartbeat would say nothing
                continue
            tries, due = self._tries.get(item.id, (0, 0.0))
            if item.id not in self._tries:
                fresh.append(item)
                self._tries[item.id] = (0, now)
            if now < due or bus is None or not bus.publish(item.topic, item.wire):
                continue
            sent += 1
            tries += 1
            self._tries[item.id] = (tries, now + pause_s(tries, first_s=FIRST_RETRY_S, last_s=LAST_RETRY_S))
            try:
                if tries >= BURY_TRIES and time.time() - item.path.stat().st_mtime > BURY_AGE_S:
                    spool.bury(item, self._dead)  # it was never answered, so it could not be authenticated
            except FileNotFoundError:
                pass  # the monitor has swept it meanwhile
        return fresh

    def hurry(self) -> None:
        """Make all events due at once, after a connection came back."""
        self._tries = {event_id: (tries, 0.0) for event_id, (tries, _) in self._tries.items()}

    def settle(self, ids: AbstractSet[str]) -> None:
        """
        Drop what is settled, by the names of the last listing: the folder is not listed again.

        An id that was not seen there is no event of ours, or one that goes out again and is settled again.
        """
        for event_id in ids:
            spool.settle(self._entries.pop(event_id, []))
            self._tries.pop(event_id, None)
