"""The Multiplexer protocol: panes that hold agents. A pane is addressed by its exact id, never by a name."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from mam.agents.protocol import Screen
from mam.broker.errors import MamError

COLUMNS, ROWS = 200, 50


class PaneGone(MamError):
    """The pane does not exist any more, or its program has ended. Its server did answer."""

    pane: str
    server: str

    code = "pane_gone"
    message = "pane {pane} of {server} does not exist any more"
    remedy_text = "`mam agent resume` opens a new one and continues the conversation"


class LookFailed(MamError):
    """The root of the errors of a multiplexer that did not answer. Its panes are then unknown, and not dead."""

    server: str

    code = "look_failed"
    message = "{server} did not answer"
    remedy_text = "`mam doctor` looks again"


class MuxSilent(LookFailed):
    """The multiplexer, or the host of a pane, gave no answer that can be used."""

    why: str

    message = "{server} did not answer: {why}"


class MuxGone(LookFailed):
    """The server of the multiplexer does not run, so it has no panes."""

    code = "mux_gone"
    message = "{server} is not running"
    remedy_text = "`mam agent resume NAME` starts it again with that agent"


class MuxFailed(LookFailed):
    """The multiplexer's own code failed: it raised what its protocol does not name, or returned something else."""

    why: str

    code = "mux_failed"
    message = "{server} failed: {why}"
    remedy_text = "`mam doctor` looks again; repair the multiplexer, or use --mux headless for new agents"


class MuxMissing(MamError):
    """The multiplexer is unknown or not installed."""

    name: str
    why: str

    code = "mux_missing"
    exit_code = 2
    message = "the multiplexer {name!r} cannot be used here: {why}"
    remedy_text = "install it, or use --mux headless"


class PaneSpec(NamedTuple):
    """A pane to open. *tag* is unique in the world. Who closes a pane must name it, so that no other pane is hit."""

    tag: str
    name: str
    cwd: Path
    env: Mapping[str, str]
    argv: Sequence[str]


class Pane(NamedTuple):
    """A pane as its multiplexer shows it. *exit_code* is None while the program runs, and where it is unknown."""

    id: str
    tag: str
    pid: int
    dead: bool
    exit_code: int | None


class Multiplexer(Protocol):
    """One server that holds panes. Each method may raise LookFailed, which says nothing about a pane."""

    kind: str
    server: str  # a session's record keeps it: it must be enough to find the same server again

    def open(self, spec: PaneSpec) -> Pane:
        """Open a pane that runs *spec.argv*. Starts the server if needed. The pane stays readable after its program."""
        ...

    def panes(self) -> list[Pane]:
        """Return all panes of this server that carry a tag, by one call. Raises LookFailed, MuxGone."""
        ...

    def screen(self, pane_id: str) -> Screen:
        """Return what a pane shows. Raises PaneGone, LookFailed."""
        ...

    def paste(self, pane_id: str, text: str) -> None:
        """Paste *text* as one piece without Enter; bracketed where the program asked for that. Raises PaneGone."""
        ...

    def press(self, pane_id: str, key: str) -> None:
        """Press one key: Enter, Escape, C-c. Raises PaneGone."""
        ...

    def close(self, pane_id: str, tag: str) -> bool:
        """Close the pane if it carries *tag*. Returns False where there is no such pane; closing twice is harmless."""
        ...

    def attach_command(self, pane_id: str) -> Sequence[str] | None:
        """Return the command that shows the pane to a person; None where there is none."""
        ...


# ESC could end a bracketed paste early and act as a key. The other control characters do not belong in a prompt.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return *text* as it may be pasted: with LF as line ends, and without control characters but LF and TAB."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
