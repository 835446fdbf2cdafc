"""Ending processes of ours: asked first, killed where they do not listen, and only where they are proven to be ours."""

import os
import signal
from pathlib import Path

from mam.broker.errors import MamError
from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId
from mam.broker.host.waiting import wait_until

EVERY_S = 0.01


class DoesNotEnd(MamError):
    pid: int

    code = "does_not_end"
    message = "process {pid} does not end, not even by SIGKILL"
    remedy_text = "see what holds it (`ps -o stat,wchan -p {pid}`), then give the same command again"


def end_process(process: ProcessId, *, wait_s: float = 5.0) -> bool:
    """
    End one process: SIGTERM, then SIGKILL after *wait_s* seconds; return when it has ended.

    True where it ran; False where pid, start time and boot prove that it had ended already.

    Raises:
        DoesNotEnd: It runs still, *wait_s* seconds after SIGKILL.
    """
    for name in (signal.SIGTERM, signal.SIGKILL):
        if not process_identity.alive(process):
            return name is signal.SIGKILL
        try:
            os.kill(process.pid, name)
        except (ProcessLookupError, PermissionError):
            pass  # it ended meanwhile, or became another user's: looking tells
        if wait_until(lambda: not process_identity.alive(process), wait_s, every_s=EVERY_S):
            return True
    raise DoesNotEnd(pid=process.pid)


def end_group(process: ProcessId, *, wait_s: float = 5.0) -> bool:
    """
    End the process group that *process* leads: SIGTERM, then SIGKILL after *wait_s* seconds.

    Only where pid, start time and boot prove that it is still the one that was started, or where it died and its
    group still holds children that it left. True where something was there to end.

    Raises:
        DoesNotEnd: A member that this user may end runs still, *wait_s* seconds after SIGKILL.
    """
    current = process_identity.start_time(process.pid)
    if process.boot != process_identity.boot_id() or current not in (None, process.start):
        return False  # the pid is that of another process now
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
        os.killpg(group, 0)  # cheap, and mostly the answer
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
