"""
The identity of a process: pid, start time and boot. A pid alone proves nothing, since the system reuses pids.

Standard library only on Linux; psutil elsewhere.
"""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
LINUX = _BOOT_ID.exists()


class ProcessId(NamedTuple):
    """One process on one boot of one machine. No other process ever has the same."""

    pid: int
    start: str
    boot: str


@cache
def boot_id() -> str:
    """Return what is the same for all processes of one boot, and different after a restart of the machine."""
    if LINUX:
        return _BOOT_ID.read_text("ascii").strip()
    import psutil  # noqa: PLC0415 (a third of a short command's time, and Linux does without it)

    return f"{int(psutil.boot_time())}"


def start_time(pid: int) -> str | None:
    """Return when *pid* was started, in the system's own form; None where it does not run. A zombie does not run."""
    if LINUX:
        fields = _stat(pid)
        return None if not fields or fields[0] in (b"Z", b"X") else fields[19].decode()
    import psutil  # noqa: PLC0415

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; an empty list where there is no such file."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # the monitor asks for everybody, every second
            stat = file.read(4096)
    except OSError:
        return []
    return stat[stat.rindex(b")") + 2 :].split()  # the name in parentheses may hold anything: count from its end


def command_line(pid: int) -> list[str]:
    """Return the command line of *pid* as it is now; empty where it is unknown. A process may replace its program."""
    if LINUX:
        try:
            words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return []
        return [os.fsdecode(word) for word in words[:-1]]
    import psutil  # noqa: PLC0415

    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def is_stopped(pid: int) -> bool:
    """Whether *pid* is stopped and waits for SIGCONT; False where the system does not tell."""
    return _stat(pid)[:1] in ([b"T"], [b"t"])


def of(pid: int) -> ProcessId | None:
    """Return the identity of *pid*, or None where it does not run."""
    start = start_time(pid)
    return None if start is None else ProcessId(pid, start, boot_id())


def me() -> ProcessId:
    """Return the identity of this process."""
    own = of(os.getpid())
    assert own is not None
    return own


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs. Another boot or start time means another process."""
    return process.boot == boot_id() and start_time(process.pid) == process.start
