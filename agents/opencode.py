"""
opencode, as of 1.18.33.

Its screen is a transcript, a composer whose last line names agent and model,
and one line of hints below it. The composer gives way to a question, and a
menu is drawn over everything. Only opencode itself writes the hints, and only
it closes a turn: with `▣`, who it was, and how long it took unless it failed.

Its user decides what it may do without asking, so nothing is forced here. By
itself it runs every command, but asks for everything outside of its folder. The
briefs and reports of jobs lie outside where it works in a worktree, and no
argument lets it reach just those. A worker without a person beside it needs
`--auto`, or `permission.external_directory` for .mam in opencode's own settings.
Its user must also connect a provider once. Without one it takes a free model of
its maker, where it can reach that.

opencode draws its own conversation ids. They are found in its database, see
`resume`. A database that XDG_DATA_HOME or OPENCODE_DB puts elsewhere is not.

A plug-in of its terminal, named in the environment of this one session beside
those of its user, tells that it waits for a permission and that a turn has
ended. opencode notes in its own state, as of any plug-in, when it last loaded
it. A plug-in of its server would not do: opencode would fetch a package for it
before it starts. An OPENCODE_TUI_CONFIG of its user leaves MAM's plug-in out,
and `--pure` leaves all of them out.

Its conversations are rows of a database that all agents of a user share, so
there are no files to remove one by one.

After a resume, its screen shows the failure of the last turn again, so it is
ERROR until the next prompt.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import dropwhile, groupby, takewhile
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import east_asian_width
from urllib.parse import quote

from mam.agents import conversations
from mam.agents.conversations import KeptConversation
from mam.agents.protocol import Launch, Screen, ScreenState, Seat
from mam.agents.screen import ComposerBox, composer

name = "opencode"
ready_within_s = 60.0  # its first start in a home takes longest
submit_pause_s = 0.3
instruction_file = "AGENTS.md"

PLUGIN = Path(__file__).with_name("opencode_tui.json")  # opencode_tui.js beside it

_NAMED = ("--session", "-s", "--continue", "-c")
_SIDEBAR = 42
_BOTTOM = re.compile(r"^( *)╹(?=▀).*▀")
_MENU_KEY = re.compile(r"  esc(/enter)?(?=  |$)")
_MENU_TITLE = re.compile(r"  (\S(?: ?\S)*) *$")
_BUSY = re.compile(r"^ *([■⬝]{8}|\[⋯\])( |$)")
_PLACEHOLDER = re.compile(r'^Ask anything… ".*"$')
_NO_PROVIDER = "No provider selected"
_CLOSED = re.compile(r"^ *▣  ")
_TIMED = re.compile(r" · (interrupted|\d[\d.]*(ms|[smhd])( \d+[smh])?)$")
_NO_FAILURE = re.compile(r"[#$←\u2801-\u28ff] |\[MAM job ")  # what a tool did, or a prompt that was never answered
_BOXED = re.compile(r"^ *┃")
_QUESTION = re.compile(r"^ *┃ +△ (Permission required|Always allow|Reject permission)\b")
_EXIT = re.compile(r"^(  Continue  opencode -s ses_|Error: |Configuration is invalid at )")
_SHELL = re.compile(r"^[^ ┃│][^┃│]*[$#%>❯]$")


class _Bottom(NamedTuple):
    """Where the composer's lower edge is."""

    row: int
    left: int
    right: int


def new_conversation() -> str | None:
    """Return None: opencode draws the id itself."""
    return None


def launch(seat: Seat) -> Launch:
    """Return the command for a new conversation."""
    return _command(seat)


def resume(seat: Seat) -> Launch | None:
    """
    Return the command that continues the seat's conversation; None where a doubt is left.

    Where seat.conversation is None, `conversations.own` says which one it is. opencode's database is opened for reading
    only.
    """
    if any(word.partition("=")[0] in _NAMED for word in seat.args):
        return launch(seat)  # its user has named one already, and opencode ends at once for two
    found = conversations.own(seat, list(_kept(seat)), ("--session",), _holds)
    return None if found is None else _command(seat, "--session", found.id)


def read(screen: Screen) -> ScreenState:
    """Return what a menu, the composer, the hints below it, or the end of the last turn say."""
    lines = _lines(screen)
    if not any(lines):
        return ScreenState.STARTING
    bottom = _bottom(lines)
    if bottom is None:
        return _without_box(lines)
    if _menu(lines, bottom):
        return ScreenState.DIALOG
    box = _composer(lines, bottom)
    if _BUSY.match(box.below):
        return ScreenState.WORKING
    if not box.label:
        return ScreenState.STARTING  # it does not know yet with what it would answer
    if _NO_PROVIDER in box.label:
        return ScreenState.DIALOG
    return ScreenState.ERROR if _failed(box.above) else ScreenState.READY


def draft(screen: Screen) -> bool:
    """Whether the composer holds text or `[Pasted ~3 lines]`, or is in the shell mode of `!`."""
    lines = _lines(screen)
    bottom = _bottom(lines)
    if bottom is None or _menu(lines, bottom):
        return False
    box = _composer(lines, bottom)
    return box.label == "Shell" or not (box.text == "" or _PLACEHOLDER.match(" ".join(box.text.split())))


def _command(seat: Seat, *conversation: str) -> Launch:
    # An update would replace the program under running sessions.
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "MAM_COMMAND": seat.mam}
    return Launch([seat.program or "opencode", *conversation, *seat.args], env, {"OPENCODE_TUI_CONFIG": str(PLUGIN)})


def _lines(screen: Screen) -> list[str]:
    """The screen's lines with one sign a column: behind a wide one stands a blank."""
    return ["".join(map(_columns, line)).rstrip() for line in screen.text.splitlines()]


def _columns(sign: str) -> str:
    return sign + " " if east_asian_width(sign) in "WF" else sign


def _bottom(lines: Sequence[str]) -> _Bottom | None:
    """None where a box stands below: what looks like a composer is a picture of one in the transcript then."""
    for row in range(len(lines) - 1, -1, -1):
        edge = _BOTTOM.match(lines[row])
        if edge:
            return _Bottom(row, len(edge[1]), edge.end())
        if _BOXED.match(lines[row]):
            return None
    return None


def _composer(lines: Sequence[str], bottom: _Bottom) -> ComposerBox:
    row, left, right = bottom
    inside = [line[left:right].rstrip() for line in lines]
    top = row
    while top and inside[top - 1].startswith("┃"):
        top -= 1
    *text, agent = [line[1:].strip() for line in inside[top:row]] or [""]
    hints = inside[row + 1] if row + 1 < len(inside) else ""
    return composer(inside[:top], text, hints, signed=False, label=agent)


def _menu(lines: Sequence[str], bottom: _Bottom) -> bool:
    """
    Whether a menu is drawn over everything. It has no border, but its head lies in the middle of the pane and between
    blank lines, from the title to the key that closes it. Beside a sidebar the composer ends before the pane does.
    """
    middle = bottom.left + bottom.right
    for row, line in enumerate(lines[1 : bottom.row], start=1):
        for key in _MENU_KEY.finditer(line):
            title = _MENU_TITLE.search(line[: key.start()])
            start, end = title.start(1) if title else 0, key.end()
            around = lines[row - 1][start:end] + lines[row + 1][start:end]
            off = start + end - middle
            if title and not around.strip() and min(abs(off), abs(off - _SIDEBAR)) <= 1:
                return True
    return False


def _failed(above: Sequence[str]) -> bool:
    """
    Whether the last turn was closed without a time, below a box that is neither a tool's nor the prompt itself:
    a turn that was killed before its first answer looks like that, with nothing of its own above the box.
    """
    blocks = [list(block) for filled, block in groupby(above, key=bool) if filled]
    if len(blocks) < 3 or not _CLOSED.match(blocks[-1][0]) or _TIMED.search(blocks[-1][0]):
        return False
    said = next((line[1:].strip() for line in blocks[-2] if line.startswith("┃") and line[1:].strip()), "")
    return said != "" and not _NO_FAILURE.match(said) and not _CLOSED.match(blocks[-3][0])


def _without_box(lines: Sequence[str]) -> ScreenState:
    """A question stands in place of the composer, or what tells whose conversation a sub-agent's is."""
    shown = [line for line in lines if line]
    if any(map(_EXIT.match, shown[-6:])):
        return ScreenState.GONE
    lowest = list(takewhile(_BOXED.match, dropwhile(lambda line: not line, reversed(lines))))
    if lowest:
        return ScreenState.ASKING if any(map(_QUESTION.match, lowest)) else ScreenState.DIALOG
    return ScreenState.GONE if _SHELL.match(shown[-1]) else ScreenState.STARTING


def _kept(seat: Seat) -> Iterator[KeptConversation]:
    """Yield what was begun in the seat's folder, without the conversations of sub-agents."""
    database = seat.home / ".local" / "share" / "opencode" / "opencode.db"
    places = (str(seat.cwd), str(seat.cwd.resolve()))
    asked = "SELECT id, time_created FROM session WHERE directory IN (?, ?) AND parent_id IS NULL"
    for conversation, began_ms in _rows(database, asked, places):
        yield KeptConversation(str(conversation), began_ms / 1000, database)


def _holds(one: KeptConversation, prompts: Sequence[str]) -> bool:
    asked = "SELECT 1 FROM part WHERE session_id = ? AND instr(data, ?) LIMIT 1"
    return any(_rows(one.where, asked, (one.id, prompt)) for prompt in prompts)


def _rows(database: Path, asked: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows; none where there is no database, or one of another version."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as connection:
            return connection.execute(asked, values).fetchall()
    except sqlite3.Error:
        return []
