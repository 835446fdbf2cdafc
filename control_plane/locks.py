"""Locks as files: held by a descriptor, so the kernel frees them with their holder. Lock files are never deleted."""

import fcntl
import os
import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from mam.broker.errors import Busy


@contextmanager
def hold(path: Path, *, wait_s: float = 30.0) -> Generator[None]:
    """Hold the lock at *path*. Raises Busy after *wait_s*, and OSError where it cannot be opened."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        take(descriptor, path, wait_s)
        yield
    finally:
        os.close(descriptor)


def take(descriptor: int, path: Path, wait_s: float) -> None:
    """Take the lock of an open file. Raises Busy after *wait_s*."""
    deadline = time.monotonic() + wait_s
    pause_s = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise Busy(what=str(path), waited_s=wait_s) from error
        time.sleep(pause_s * (0.5 + random.random()))
        pause_s = min(0.01, pause_s * 1.5)
