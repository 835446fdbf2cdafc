"""
Locks as files. A descriptor holds a lock, so the kernel frees it when its holder ends.

The kernel's own lock on a whole file (flock): it excludes every program that takes the same lock, whatever made it.
This is not built on the library filelock: that one asks again and again, so others overtake who waits; it names no
holder, and gives no descriptor that git or a server could inherit. The monitor's own lock, for which nothing waits and
which nothing inherits, is one of filelock.

Only its holder may remove a lock's file, and must do nothing with the lock afterwards. A process that waited for the
removed file notices that, and asks for the new one.
"""

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from mam.broker.errors import Busy
from mam.broker.host import process_identity

_PROC = Path("/proc")
_LISTED = _PROC / "locks"
COMMAND_CHARS = 120


@contextmanager
def hold(path: Path, *, wait_s: float = 30.0) -> Generator[int]:
    """Hold the lock at *path* and yield its descriptor. Raises Busy after *wait_s*, and OSError for a bad *path*."""
    while True:
        descriptor = open_file(path)
        try:
            take(descriptor, path, wait_s)
            if _is_at(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def open_file(path: Path) -> int:
    """A descriptor of the lock's file, made where it is missing (0600); nothing is locked yet. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def try_take(descriptor: int) -> bool:
    """Take the lock of an open file where it is free now; False where it is held."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether *path* still is the file that *descriptor* opened. The holder before may have removed that."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def is_held(path: Path) -> bool:
    """Whether a process holds the lock at *path* now. Two processes that only ask do not see each other as holders."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def take(descriptor: int, path: Path, wait_s: float) -> None:
    """
    Take the lock of an open file, roughly in the order of the requests. Raises Busy after *wait_s*.

    The kernel wakes the process that waits. A process that polled instead could be overtaken for many seconds by
    others that come back at once.
    """
    if try_take(descriptor):
        return
    if wait_s <= 0:  # the caller only asks, so no thread must be left behind that waits
        raise _busy(descriptor, path, wait_s)
    held = threading.Event()
    same = os.dup(descriptor)

    def wait() -> None:
        fcntl.flock(same, fcntl.LOCK_EX)
        os.close(same)  # the caller's descriptor keeps the lock; where the caller gave up, this frees it
        held.set()

    threading.Thread(target=wait, daemon=True).start()  # flock itself has no time limit
    if not held.wait(wait_s):
        raise _busy(descriptor, path, wait_s)


def _busy(descriptor: int, path: Path, wait_s: float) -> Busy:
    return Busy(what=str(path), holder=holder(descriptor), waited_s=wait_s)


def holder(lock: int | Path) -> str:
    """
    Return who holds a lock now: pid, command, and whether the process is stopped; "somebody" where the system does not
    tell.

    Linux lists the locks of all processes with the inodes of their files. A file on another disk may have the same
    inode number, so the open files of the process are compared as well.
    """
    try:
        there = os.stat(lock)
        listed = [line.split() for line in _LISTED.read_text("ascii").splitlines()]
        for words in listed:
            if words[1] != "FLOCK" or words[5].rpartition(":")[2] != str(there.st_ino):
                continue
            pid = int(words[4])
            if any(_is_same(there, opened) for opened in (_PROC / str(pid) / "fd").iterdir()):
                command = " ".join(process_identity.command_line(pid))[:COMMAND_CHARS]
                return f"pid {pid} ({'stopped: ' if process_identity.is_stopped(pid) else ''}{command})"
    except (OSError, IndexError, ValueError):
        pass
    return "somebody"


def _is_same(there: os.stat_result, opened: Path) -> bool:
    try:
        return os.path.samestat(there, opened.stat())
    except OSError:
        return False
