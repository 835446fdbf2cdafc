"""The Multiplexer protocol: panes that hold agents, addressed by exact id and never by name."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from mam.agents.protocol import Screen
from mam.broker.errors import MamError

COLUMNS, ROWS = 200, 50


class PaneGone(MamError):
    pane: str
    server: str

    code = "pane_gone"
    message = "pane {pane} of {server} is not there any more"
    remedy_text = "`mam agent resume` opens a new one and continues the conversation"


class LookFailed(MamError):
    """The root of what keeps a multiplexer from answering. This says nothing about its panes: unknown is not dead."""

    server: str

    code = "look_failed"
    message = "{server} did not answer"
    remedy_text = "`mam doctor` looks again"


class MuxSilent(LookFailed):
    """The multiplexer, or the host of a pane, gave no answer that can be used."""

    why: str

    message = "{server} did not answer: {why}"


class MuxGone(LookFailed):
    code = "mux_gone"
    message = "{server} is not running"
    remedy_text = "`mam agent resume NAME` starts it again with that agent"


class MuxMissing(MamError):
    name: str
    why: str

    code = "mux_missing"
    exit_code = 2
    message = "the multiplexer {name!r} cannot be used here: {why}"
    remedy_text = "install it, or use --mux headless"


class PaneSpec(NamedTuple):
    """A pane to open. *tag* is unique in the world and is asked for again before anything destructive."""

    tag: str
    name: str
    cwd: Path
    env: Mapping[str, str]
    argv: Sequence[str]


class Pane(NamedTuple):
    id: str
    tag: str
    pid: int
    dead: bool
    exit_code: int | None


class Multiplexer(Protocol):
    kind: str
    server: str  # as recorded in the session's row: enough to find the same server again

    def open(self, spec: PaneSpec) -> Pane:
        """Open a pane that runs *spec.argv*, starting the server where there is none. A dead pane stays readable."""
        ...

    def panes(self) -> list[Pane]:
        """All panes of this server that carry a tag, in one call. Raises LookFailed, MuxGone."""
        ...

    def screen(self, pane_id: str) -> Screen:
        """What a pane shows. Raises PaneGone, LookFailed."""
        ...

    def paste(self, pane_id: str, text: str) -> None:
        """Paste *text* as one piece, bracketed where the program asked for that, without Enter. Raises PaneGone."""
        ...

    def press(self, pane_id: str, key: str) -> None:
        """Press one key: Enter, Escape, C-c. Raises PaneGone."""
        ...

    def close(self, pane_id: str, tag: str) -> bool:
        """Close a pane if it still carries *tag*; False where it was gone. Twice is harmless."""
        ...

    def attach_command(self, pane_id: str) -> Sequence[str] | None:
        """The command that shows the pane to a person, or None."""
        ...


# ESC could end a bracketed paste early and act as keys; the other controls have no place in a prompt.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """*text* as it may be pasted: line ends are LF, no control characters but LF and TAB."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
