"""Logs of bounded size: each is at most two files, the current one and the one before it (`.1`)."""

import os
from pathlib import Path

from mam.broker.host import fault_points

LIMIT_BYTES = 10 * 1024 * 1024


def set_aside(log: Path, *, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Begin *log* anew and return True where it is over the limit. The file that was set aside before is dropped."""
    try:
        if log.stat().st_size <= limit_bytes:
            return False
        fault_points.point("log.aside")
        log.replace(_before(log))
    except FileNotFoundError:
        return False
    return True


def renew_own_output(log: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
    """Do the same for this process, whose output goes to *log*, and go on in the new file. Other output stays."""
    own = os.fstat(2)
    if not any(path.exists() and os.path.samestat(own, path.stat()) for path in (log, _before(log))):
        return
    if own.st_size <= limit_bytes:
        return
    set_aside(log, limit_bytes=limit_bytes)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _before(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")
