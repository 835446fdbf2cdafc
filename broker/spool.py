"""
What an agent said and the registry has not settled yet: one file an event. Standard library only.

A file appears by rename, so a reader never sees half of one. Its name sorts by
time; its first line is the logical topic, the rest the exact wire bytes.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mam.broker.host import atomic_files, fault_points
from mam.broker.host.atomic_files import Durability

READ_AT_MOST = 512 * 1024  # twice what any event may have

_EVENT = re.compile(r"\d{13}-([0-9a-f]{32})\.event")
_BEAT = re.compile(r"\d{13}-([0-9a-f]{32})\.beat")


class Spooled(NamedTuple):
    """One file of a spool. *beat* marks a heartbeat: sent once, never settled."""

    path: Path
    id: str
    topic: str
    wire: bytes
    beat: bool


class SpoolEntry(NamedTuple):
    """One file of a spool, known by its name only."""

    path: Path
    id: str
    beat: bool


def write(folder: Path, event_id: str, topic: str, wire: bytes, *, beat: bool = False) -> Path:
    """
    Keep one event until it is settled.

    When this returns, the event survives a crash of every process and of the
    machine (a beat only of processes: it is not worth an fsync).

    Raises:
        OSError: Nothing was kept; where only the last fsync failed the file may
            be there all the same, and writing the same id again is harmless.
    """
    target = folder / f"{time.time_ns() // 1_000_000:013d}-{event_id}.{'beat' if beat else 'event'}"
    durability = Durability.PROCESS if beat else Durability.NAME  # an event is told as kept when this returns
    atomic_files.write(target, topic.encode() + b"\n" + wire, durability, point="spool.rename")
    return target


def entries(folder: Path) -> list[SpoolEntry]:
    """What waits in *folder*, oldest first, by name alone: cheap also when thousands wait. No folder: nothing."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = []
    for name in names:
        event = _EVENT.fullmatch(name)
        match = event or _BEAT.fullmatch(name)
        if match:
            found.append(SpoolEntry(folder / name, match.group(1), beat=event is None))
    return found


def load(entry: SpoolEntry) -> Spooled | None:
    """
    The content of an entry; None where it vanished meanwhile, or is no file (a FIFO would hold up every reader).

    Of a file that is larger than any event only so much is read that it is refused for that.
    """
    try:
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        topic, _, wire = os.read(descriptor, READ_AT_MOST).partition(b"\n")
    finally:
        os.close(descriptor)
    return Spooled(entry.path, entry.id, topic.decode("utf-8", "replace"), wire, entry.beat)


def pending(folder: Path) -> Iterator[Spooled]:
    """What waits in *folder*, oldest first, with its content."""
    for entry in entries(folder):
        item = load(entry)
        if item is not None:
            yield item


def settle(folder: Path, event_ids: set[str]) -> int:
    """Drop the events with these ids and return how many there were. Settling twice is harmless."""
    dropped = 0
    for entry in entries(folder):
        if entry.id in event_ids and entry.path.is_file():
            entry.path.unlink(missing_ok=True)
            dropped += 1
    return dropped


def bury(item: Spooled | SpoolEntry, dead: Path) -> Path:
    """Set aside what nobody could authenticate; `doctor` and `why` name it, nothing deletes it."""
    dead.mkdir(mode=0o700, exist_ok=True)
    target = dead / item.path.name
    fault_points.point("spool.bury")
    item.path.replace(target)
    return target


def wake(fifo: Path) -> bool:
    """Nudge the reader of *fifo*; False where nobody reads. A lost nudge only costs the reader's next look."""
    try:
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(descriptor, b"!")
    except OSError:
        return False  # full: the reader has nudges enough
    finally:
        os.close(descriptor)
    return True
