"""
The AgentCli protocol: what MAM must know of one agent CLI.

An adapter is a module or an object with these names. It describes and reads; it
must start nothing and write nothing. AgentCli holds what every adapter must
have. The capabilities below it are optional: an adapter has one if it has that
function, and MAM asks whether it is there. What is added later becomes a capability,
so that an older package still fits.
"""

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable


class ScreenState(enum.Enum):
    """What the agent is doing, as its screen shows it. A screen may be wrong, so it decides nothing alone."""

    STARTING = "starting"  # nothing on it can be recognised yet
    READY = "ready"  # takes a prompt
    WORKING = "working"  # a turn is under way
    ASKING = "asking"  # a permission is waited for
    DIALOG = "dialog"  # trust, login or another question that only a person should answer
    ERROR = "error"  # the model or the account refused the last turn; takes a prompt
    GONE = "gone"  # a bare shell or an exit message


class Screen(NamedTuple):
    """The visible text of a pane, and the pane's title."""

    text: str
    title: str = ""


class Seat(NamedTuple):
    """Everything that an adapter may need to know of one agent."""

    name: str
    cwd: Path
    home: Path
    program: str  # what to run; empty for the adapter's own default
    args: Sequence[str] = ()  # the user's own, appended
    conversation: str | None = None
    run_dir: Path = Path()  # the session's folder under .mam/run
    mam: str = "mam"  # the mam command, for adapters whose agent is part of MAM


class Permissions(NamedTuple):
    """Folders and files that an agent must be able to reach for its jobs, whatever sandbox it has."""

    # for the programs that it starts, MAM's verbs, git and tests among them
    write: Sequence[Path]
    # for its own hands and eyes: the reports that it writes; the commits that it reviews
    edit: Sequence[Path] = ()
    look: Sequence[Path] = ()


class Launch(NamedTuple):
    """A command to run in a pane, and what its environment needs beyond the session's own."""

    argv: Sequence[str]
    env: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}  # set only where the pane's environment, which is its user's, says nothing


class AgentCli(Protocol):
    """
    What every adapter must have.

    Its functions may read the files of the CLI, and must change nothing. border.py turns what they raise into a typed
    error.
    """

    # the catalog's name for it
    name: str
    # seconds from start to a screen that takes a prompt, on a slow machine
    ready_within_s: float
    # seconds between paste and Enter: some CLIs take an earlier Enter for a line break
    submit_pause_s: float
    # the instruction file that this CLI loads by itself
    instruction_file: str

    # a conversation id to be given at launch, or None where the CLI draws its own
    def new_conversation(self) -> str | None: ...

    # the command for a fresh pane; raises Usage where the user's own words cannot make one
    def launch(self, seat: Seat) -> Launch: ...

    # the command that continues seat.conversation, or None where there is nothing to continue
    def resume(self, seat: Seat) -> Launch | None: ...

    # what the visible screen says
    def read(self, screen: Screen) -> ScreenState: ...


@runtime_checkable
class SeesDrafts(Protocol):
    """An agent whose input line can be told from its output. Of any other one, no draft is ever seen."""

    # whether text still waits in the composer: a paste that was not submitted, or a person's own draft
    def draft(self, screen: Screen) -> bool: ...


@runtime_checkable
class KeepsConversations(Protocol):
    """An agent that keeps each conversation in files of its own, which could be removed one by one."""

    # the files and folders that hold the seat's conversation, for `agent stop --purge`; none where unsure
    def conversation_files(self, seat: Seat) -> Sequence[Path]: ...


@runtime_checkable
class TakesPermissions(Protocol):
    """An agent with a sandbox or permissions of its own. Any other one needs nothing granted."""

    # extra arguments that let a guarded agent reach what its jobs need, and no more of it than that
    def grants(self, permissions: Permissions) -> Sequence[str]: ...
