"""The monitor's own way to what agents said: straight from the spools, with or without a runner or a broker."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from mam.broker import spool
from mam.broker.envelope import topics
from mam.broker.envelope.signing import UNAUTHENTICATED
from mam.broker.spool import Spooled
from mam.control_plane.messaging.inbox import Inbox

RUNNER_GETS_S = 3.0  # how long a live runner has for what it carries itself
RUNNERS_EVERY = 3  # in how many sweeps one looks after live runners: each is a folder to list, and mostly empty
BURY_TRIES = 20
BURY_AGE_S = 3600.0
BATCH = 64


class Swept(NamedTuple):
    """What one sweep did: how many events were recorded, and the files that were set aside."""

    recorded: int
    buried: list[Path]


class SpoolSweep:
    """
    Records the events that lie in spools, so that none is lost without a broker or a runner.

    It leaves younger events to a runner that is connected. What cannot be authenticated is set aside after some sweeps.
    """

    def __init__(self, run: Path, inbox: Inbox) -> None:
        self._run, self._inbox = run, inbox
        self._tries: dict[str, int] = {}
        self._sweeps = 0

    def once(self, *, live: set[str]) -> Swept:
        """
        Record what lies in the spools and drop what is settled.

        Args:
            live: Sessions whose runner is connected: their younger events are left to it.
        """
        found: list[Spooled] = []
        thorough, self._sweeps = self._sweeps % RUNNERS_EVERY == 0, self._sweeps + 1
        for session in self._sessions():
            if not thorough and session in live:
                continue
            for entry in spool.entries(self._run / session / "outbox"):
                if session not in live or entry.beat or _age_s(entry.path) > RUNNER_GETS_S:
                    item = spool.load(entry)
                    if item is not None:
                        found.append(item)
        recorded, buried = 0, []
        for start in range(0, len(found), BATCH):
            batch = found[start : start + BATCH]
            for item, settling in zip(batch, self._inbox.take([(i.topic, i.wire) for i in batch]), strict=True):
                if settling.outcome not in UNAUTHENTICATED or item.beat:
                    item.path.unlink(missing_ok=True)
                    self._tries.pop(item.id, None)
                    recorded += 1
                elif self._hopeless(item):
                    buried.append(spool.bury(item, item.path.parent.parent / "dead"))
        return Swept(recorded, buried)

    def empty(self, session: str, job: str) -> bool:
        """Whether nothing about *job* waits in the spool of *session*: only then its silence means anything."""
        topic = topics.job(job)
        return not any(i.topic == topic and not i.beat for i in spool.pending(self._run / session / "outbox"))

    def dead(self) -> list[Path]:
        """Events that could not be authenticated, as paths."""
        return sorted(path for session in self._sessions() for path in (self._run / session / "dead").glob("*.event"))

    def _sessions(self) -> list[str]:
        """Sessions that have a folder. Not by a glob: it would be the most expensive part of an idle monitor's look."""
        with os.scandir(self._run) as found:
            return sorted(each.name for each in found if each.is_dir())

    def _hopeless(self, item: Spooled) -> bool:
        tries = self._tries.get(item.id, 0) + 1
        self._tries[item.id] = tries
        if tries >= BURY_TRIES and _age_s(item.path) > BURY_AGE_S:
            del self._tries[item.id]
            return True
        return False


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
