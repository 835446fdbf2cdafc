"""
Files that appear or change in one step, however a process or the machine ends. Standard library only.

A reader sees the whole old content or the whole new one. What else survives is the caller's choice: a Durability.
"""

import enum
import json
import os
from collections.abc import Mapping
from pathlib import Path

from mam.broker.host import fault_points


class Durability(enum.Enum):
    """What a file that was written survives. Each member includes those above it."""

    PROCESS = "process"  # the end of every process; a crash of the machine may bring back the old content, or empty it
    FILE = "file"  # a crash of the machine leaves the whole old content or the whole new one
    NAME = "name"  # after a crash of the machine the new content is there


def read(path: Path) -> dict[str, object]:
    """The object in a file; empty where it is missing, torn, or anything else than an object. Never raises."""
    try:
        value = json.loads(path.read_text("utf-8", "surrogateescape"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write(
    path: Path, content: bytes, durability: Durability, *, point: str, mode: int = 0o600, exclusive: bool = False
) -> None:
    """
    Put *content* at *path* in one step. Several writers at once do no harm: the last one wins.

    A symbolic link at *path* is replaced and never followed. The file has no more rights than *mode*, not even for
    a moment. A writer that is killed may leave a hidden file beside *path*, which no reader looks at.

    Args:
        point: The fault point before the file gets its name. The one before its sync has the same first word, and
            ends in `.fsync`.
        mode: The rights of the file, whatever the umask says.
        exclusive: Never replace a file.

    Raises:
        OSError: Nothing was changed; where only the sync of the folder failed, the new content is in place.
        FileExistsError: There is a file, and *exclusive* was asked for.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, mode)
        if durability is not Durability.PROCESS:
            fault_points.point(f"{point.partition('.')[0]}.fsync")
            os.fsync(descriptor)
        fault_points.point(point)
        if exclusive:
            os.link(partial, path)  # unlike a rename this never replaces what is there
        else:
            partial.replace(path)
    finally:
        os.close(descriptor)
        partial.unlink(missing_ok=True)
    if durability is Durability.NAME:
        sync_folder(path.parent)


def write_json(path: Path, content: Mapping[str, object], durability: Durability = Durability.FILE) -> None:
    """Put a record that a person may read at *path* (0600); `write` says what may be raised."""
    data = json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape")
    write(path, data, durability, point="json.rename")


def write_note(path: Path, content: Mapping[str, object]) -> None:
    """Put what one process tells the others at *path* (0600); not synced, since it is written anew after a crash."""
    write(path, json.dumps(content).encode(), Durability.PROCESS, point="note.rename")


def sync_folder(folder: Path) -> None:
    """Make renames and unlinks in *folder* durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fault_points.point("folder.sync")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
