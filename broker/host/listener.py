"""A process of ours that listens on a port of this machine, and the proof that it still does. Standard library only."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId

_LISTENS = "0A"  # the state of a listening socket in /proc/net/tcp
_TABLE = Path("/proc/net/tcp")


class Listener(NamedTuple):
    """A process that was seen to listen on *port* of 127.0.0.1."""

    process: ProcessId
    port: int

    def proven(self) -> bool:
        """
        Whether the process still runs, and the port is this user's.

        After a connection was made, this proves who accepted it, since a server keeps its port for all its life. The
        owner of the port is looked up where the system tells it (Linux): a server that begins or ends may have no port.
        """
        return process_identity.alive(self.process) and _owner(self.port) in (os.geteuid(), None)


def _owner(port: int) -> int | None:
    """The user whose socket listens on *port* of 127.0.0.1, -1 where none does; None where the system does not tell."""
    try:
        lines = _TABLE.read_text("ascii").splitlines()[1:]
    except (OSError, UnicodeDecodeError):
        return None
    here = f"0100007F:{port:04X}" if sys.byteorder == "little" else f"7F000001:{port:04X}"
    for line in lines:
        fields = line.split()
        if fields[1:2] == [here] and fields[3] == _LISTENS:
            return int(fields[7])
    return -1
