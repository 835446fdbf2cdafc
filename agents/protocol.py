"""
The AgentCli protocol: what MAM must know of one agent CLI.

An adapter is a module with these names (or an object; the catalog does not
care). It describes and reads; it starts nothing and writes nothing.
"""

import enum
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class ScreenState(enum.Enum):
    """What a screen says that the agent is doing. A screen raises questions; it never decides."""

    STARTING = "starting"  # nothing that can be recognised yet
    READY = "ready"  # takes a prompt
    WORKING = "working"  # a turn is under way
    ASKING = "asking"  # a permission is waited for
    DIALOG = "dialog"  # trust, login or another question that only a person should answer
    ERROR = "error"  # the model or the account refused the last turn; takes a prompt
    GONE = "gone"  # a bare shell or an exit message


class Screen(NamedTuple):
    """The visible text of a pane, the pane's title, and whether the terminal brackets pastes."""

    text: str
    title: str = ""


class Seat(NamedTuple):
    """Where one agent session sits."""

    name: str
    cwd: Path
    home: Path
    program: str  # what to run; empty for the adapter's own default
    args: Sequence[str] = ()  # the user's own, appended
    conversation: str | None = None
    run_dir: Path = Path()  # the session's folder under .mam/run
    mam: str = "mam"  # the mam command, for adapters whose agent is part of MAM


class Permissions(NamedTuple):
    """Folders and files that an agent must reach so that its jobs can be done, whatever guards it."""

    # for the programs that it starts, MAM's verbs, git and tests among them
    write: Sequence[Path]
    read: Sequence[Path]
    # for its own hands and eyes: the reports that it writes; the commits that it reviews
    edit: Sequence[Path] = ()
    look: Sequence[Path] = ()


class Launch(NamedTuple):
    """A command to run in a pane, and what its environment needs beyond the session's own."""

    argv: Sequence[str]
    env: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}  # set only where the pane's environment, which is its user's, says nothing


class AgentCli(Protocol):
    # the catalog's name for it
    name: str
    # seconds from start to a screen that takes a prompt, on a slow machine
    ready_within_s: float
    # seconds between paste and Enter: some CLIs take an earlier Enter for a line break
    submit_pause_s: float

    # a conversation id to be given at launch, or None where the CLI draws its own
    def new_conversation(self) -> str | None: ...

    # the command for a fresh pane
    def launch(self, seat: Seat) -> Launch: ...

    # the command that continues seat.conversation, or None where there is nothing to continue
    def resume(self, seat: Seat) -> Launch | None: ...

    # the files and folders that hold the seat's conversation, for `agent stop --purge`; none where unsure
    def conversation_files(self, seat: Seat) -> Sequence[Path]: ...

    # what the visible screen says
    def read(self, screen: Screen) -> ScreenState: ...

    # whether text still waits in the composer: a paste that was not submitted, or a person's own draft
    def draft(self, screen: Screen) -> bool: ...

    # extra arguments that let a guarded agent reach what its jobs need, and no more of it than that
    def grants(self, grant: Permissions) -> Sequence[str]: ...

    # the instruction file that this CLI loads by itself
    instruction_file: str


def no_conversation_files(seat: Seat) -> Sequence[Path]:
    """For agents that keep no conversation, or not in files that could be removed one by one."""
    return ()


def no_grants(grant: Permissions) -> Sequence[str]:
    """For agents without a sandbox of their own: nothing has to be granted."""
    return ()


def no_draft(screen: Screen) -> bool:
    """For agents whose input line cannot be told from their output."""
    return False


def tail(screen: Screen, lines: int = 20) -> str:
    """The last *lines* non-empty lines: state is shown at the bottom, history above it lies."""
    shown = [line.rstrip() for line in screen.text.splitlines() if line.strip()]
    return "\n".join(shown[-lines:])


def first_match(text: str, rules: Sequence[tuple[ScreenState, re.Pattern[str]]], default: ScreenState) -> ScreenState:
    """The signal of the first rule that matches: the order of the rules is their priority."""
    for signal, pattern in rules:
        if pattern.search(text):
            return signal
    return default
