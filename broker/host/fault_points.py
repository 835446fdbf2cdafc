"""
Fault points: named places around every durable step, at which a test ends the process or makes the disk refuse.

``MAM_FAULT=[role@]name:n:crash|ENOSPC|EIO`` (several with commas) strikes at the n-th pass of *name*, only in processes
of that role (cli, verb, monitor, runner, pane-host). While nothing is armed, a point costs one look at a variable.
"""

import errno
import os
import signal
from typing import NamedTuple

from mam.broker.errors import Usage

ACTIONS = ("crash", "ENOSPC", "EIO")


class _Fault(NamedTuple):
    name: str
    strike_at: int
    action: str


_armed: list[_Fault] = []
_passes: dict[str, int] = {}


def arm(spec: str, role: str) -> None:
    """Arm the faults of *spec* that are meant for processes of *role*. Raises Usage for a *spec* of another form."""
    _armed.clear()
    _passes.clear()
    for part in filter(None, spec.split(",")):
        wanted, at, rest = part.rpartition("@")
        fields = rest.split(":")
        if len(fields) != 3 or not fields[1].isdigit() or fields[2] not in ACTIONS:
            raise Usage(what=f"MAM_FAULT={part!r} cannot be read", hint="[role@]name:n:crash|ENOSPC|EIO")
        if not at or wanted == role:
            _armed.append(_Fault(fields[0], int(fields[1]), fields[2]))


def point(name: str) -> None:
    """Mark a place. A fault that is armed for it kills this process or raises OSError; else nothing happens."""
    if _armed:
        _strike(name)


def _strike(name: str) -> None:
    _passes[name] = _passes.get(name, 0) + 1
    for fault in _armed:
        if fault.name == name and fault.strike_at == _passes[name]:
            if fault.action == "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            number = getattr(errno, fault.action)
            raise OSError(number, os.strerror(number), f"fault point {name}")
