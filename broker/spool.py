"""
Events of an agent that the registry has not settled yet, one file each. Standard library only.

A file appears by rename, so a reader never sees half of it. The names sort by time. The first line is the logical
topic; the rest is the exact wire bytes.
"""

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mam.broker.host import atomic_files, fault_points
from mam.broker.host.atomic_files import Durability

READ_AT_MOST = 512 * 1024  # twice the size limit of an event

_EVENT = re.compile(r"\d{13}-([0-9a-f]{32})\.event")
_BEAT = re.compile(r"\d{13}-([0-9a-f]{32})\.beat")


class Spooled(NamedTuple):
    """One file of a spool, with its content. *beat* marks a heartbeat, which is sent once and never settled."""

    path: Path
    id: str
    topic: str
    wire: bytes
    beat: bool


class SpoolEntry(NamedTuple):
    """One file of a spool, without its content."""

    path: Path
    id: str
    beat: bool


def write(folder: Path, event_id: str, topic: str, wire: bytes, *, beat: bool = False) -> Path:
    """
    Keep one event until it is settled.

    When this returns, the event survives a crash of every process and of the machine. A beat survives only a crash of
    processes: it is not worth an fsync.

    Raises:
        OSError: Nothing was kept. Where only the last fsync failed, the file may be there all the same. Writing the
            same id again is harmless.
    """
    target = folder / f"{time.time_ns() // 1_000_000:013d}-{event_id}.{'beat' if beat else 'event'}"
    durability = Durability.PROCESS if beat else Durability.NAME  # the caller tells an agent that the event is kept
    atomic_files.write(target, topic.encode() + b"\n" + wire, durability, point="spool.rename")
    return target


def entries(folder: Path) -> list[SpoolEntry]:
    """
    Return what waits in *folder*, oldest first; nothing where there is no such folder.

    No file is opened, so this is cheap also while thousands wait.
    """
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
    Return the content of an entry; None where the file has vanished or is not a plain one (a FIFO would block).

    A file that is larger than any event is read only as far as its refusal needs.
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
    """Yield what waits in *folder*, oldest first, with its content."""
    for entry in entries(folder):
        item = load(entry)
        if item is not None:
            yield item


def settle(settled: Iterable[SpoolEntry]) -> int:
    """Remove these events, and return how many there were. Settling twice is harmless. Raises OSError."""
    dropped = 0
    for entry in settled:
        if entry.path.is_file():
            entry.path.unlink(missing_ok=True)
            dropped += 1
    return dropped


def bury(item: Spooled | SpoolEntry, dead: Path) -> Path:
    """Set aside an event that could not be authenticated. `mam doctor` and `mam why` name it; MAM never deletes it."""
    dead.mkdir(mode=0o700, exist_ok=True)
    target = dead / item.path.name
    fault_points.point("spool.bury")
    item.path.replace(target)
    return target


def wake(fifo: Path) -> bool:
    """Wake the reader of *fifo*; False where no process reads. After a lost wake, the reader looks a little later."""
    try:
        descriptor = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.write(descriptor, b"!")
    except OSError:
        return False  # the pipe is full: the reader will wake anyway
    finally:
        os.close(descriptor)
    return True
