"""The end of processes: they are asked first, and killed where they do not listen. Each must be proven to be MAM's."""

import os
import signal
from pathlib import Path

from mam.broker.errors import MamError
from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId
from mam.broker.host.waiting import wait_until

EVERY_S = 0.01


class DoesNotEnd(MamError):
    """A process still runs after SIGKILL. It hangs in the kernel, for example in a dead file system."""

    pid: int

    code = "does_not_end"
    message = "process {pid} does not end, not even by SIGKILL"
    remedy_text = "see what holds it (`ps -o stat,wchan -p {pid}`), then give the same command again"


def end_process(process: ProcessId, *, wait_s: float = 5.0) -> bool:
    """
    End one process and wait for its end: SIGTERM, then SIGKILL after *wait_s* seconds.

    Returns whether it ran. Nothing is signalled where pid, start time and boot prove that it had ended already.

    Raises:
        DoesNotEnd: It still runs *wait_s* seconds after SIGKILL.
    """
    for name in (signal.SIGTERM, signal.SIGKILL):
        if not process_identity.alive(process):
            return name is signal.SIGKILL
        try:
            os.kill(process.pid, name)
        except (ProcessLookupError, PermissionError):
            pass  # it has ended meanwhile, or another user owns the pid now; the wait below tells
        if wait_until(lambda: not process_identity.alive(process), wait_s, every_s=EVERY_S):
            return True
    raise DoesNotEnd(pid=process.pid)


def end_group(process: ProcessId, *, wait_s: float = 5.0) -> bool:
    """
    End the process group that *process* leads: SIGTERM, then SIGKILL after *wait_s* seconds.

    Nothing is signalled unless pid, start time and boot prove that *process* still runs, or it has died and its group
    holds children that it left. Returns whether there was something to end.

    Raises:
        DoesNotEnd: A member that this user may end still runs *wait_s* seconds after SIGKILL.
    """
    current = process_identity.start_time(process.pid)
    if process.boot != process_identity.boot_id() or current not in (None, process.start):
        return False  # another process has the pid now
    for name in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, name)
        except (ProcessLookupError, PermissionError):
            return name is signal.SIGKILL
        if wait_until(lambda: not _group_lives(process.pid), wait_s, every_s=EVERY_S):
            return True
    raise DoesNotEnd(pid=process.pid)


def _group_lives(group: int) -> bool:
    """Whether a member of *group* runs that this user may end; a zombie that its parent has not reaped yet does not."""
    try:
        os.killpg(group, 0)  # cheap, and in most cases the answer
    except (ProcessLookupError, PermissionError):
        return False
    return any(_is_member(pid, group) for pid in _processes())


def _processes() -> list[int]:
    proc = Path("/proc")
    if proc.is_dir():
        return [int(name) for name in os.listdir(proc) if name.isdigit()]
    import psutil  # noqa: PLC0415 (a third of a short command's time, and Linux does without it)

    return psutil.pids()


def _is_member(pid: int, group: int) -> bool:
    try:
        if os.getpgid(pid) != group:
            return False
        os.kill(pid, 0)
        return process_identity.start_time(pid) is not None
    except (ProcessLookupError, PermissionError):
        return False
