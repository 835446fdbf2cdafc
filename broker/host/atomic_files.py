"""
Files that appear or change in one step, however a process or the machine ends. Standard library only.

A reader sees the whole old content or the whole new one. The caller chooses what else must survive: a Durability.
"""

import enum
import json
import os
from collections.abc import Mapping
from pathlib import Path

from mam.broker.host import fault_points


class Durability(enum.Enum):
    """What a written file survives. Each member includes those above it."""

    PROCESS = "process"  # the end of every process; a crash of the machine may bring back the old content, or empty it
    FILE = "file"  # a crash of the machine leaves the whole old content or the whole new one
    NAME = "name"  # after a crash of the machine the new content is there


def read(path: Path) -> dict[str, object]:
    """Return the JSON object in a file; an empty one where the file is missing, torn, or holds something else."""
    try:
        value = json.loads(path.read_text("utf-8", "surrogateescape"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write(
    path: Path, content: bytes, durability: Durability, *, point: str, mode: int = 0o600, exclusive: bool = False
) -> None:
    """
    Put *content* at *path* in one step. Several processes may write at once: the last one wins.

    A symbolic link at *path* is replaced and never followed. At no moment has the file more rights than *mode*. A
    writer that is killed may leave a hidden file beside *path*, which no reader opens.

    Args:
        point: The fault point before the file gets its name. The fault point before its sync has the same first word,
            and ends in `.fsync`.
        mode: The rights of the file. The umask does not change them.
        exclusive: Raise FileExistsError instead of replacing a file.

    Raises:
        OSError: Nothing was changed. Where only the sync of the folder failed, the new content is in place.
        FileExistsError: *path* exists, and *exclusive* was asked for.
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
    """Put *content* at *path* (0600) as JSON that a person can read. Raises what `write` raises."""
    data = json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape")
    write(path, data, durability, point="json.rename")


def write_note(path: Path, content: Mapping[str, object]) -> None:
    """Put a process's note to others at *path* (0600). It is not synced, since it is written anew after a crash."""
    write(path, json.dumps(content).encode(), Durability.PROCESS, point="note.rename")


def sync_folder(folder: Path) -> None:
    """Make renames and unlinks in *folder* durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fault_points.point("folder.sync")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
