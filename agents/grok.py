"""
grok, xAI's coding agent, as of 0.2.111.

Its screen is a transcript, a composer box and one line of key hints below the
box. The hints change with the state at once, and hold no words of an agent or a
user, so they decide. The box and the line above it come second. The title comes
last, since it still shows a spinner after a failed turn.
"""

import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from mam.agents.protocol import Launch, Screen, ScreenState, Seat
from mam.agents.screen import ComposerBox, composer, first_match, last_at, trimmed

name = "grok"
ready_within_s = 30.0
submit_pause_s = 0.3
instruction_file = "AGENTS.md"

# An update would replace the program under running sessions.
_ENV = {"GROK_DISABLE_AUTOUPDATER": "1"}
# Sub-agents would work on after the turn that MAM watches.
_UNATTENDED = ("--always-approve", "--no-subagents")

_HINTS = (
    (ScreenState.ASKING, re.compile(r"Ctrl\+o:always-approve|^\s*\d/\d+:select|Enter:send  │  Esc:back")),
    (ScreenState.DIALOG, re.compile(r"Shift\+x:dismiss|\ba:approve\b.*\bq:quit plan")),
    (ScreenState.WORKING, re.compile(r"Esc:cancel|Enter:queue|Ctrl\+b:send to bg|Ctrl\+(Enter:send now|;:queue)")),
)
# The keys go to a typed prompt. Pasting while the transcript has the focus loses the text without a sign.
_TAKES_TEXT = re.compile(r"Shift\+Tab:mode|^\s*Enter:send\b|press again to (quit|clear)")
_WELCOME = re.compile(r"Grok Build\s+\d|ctrl\+q\s+quit|^\s*(Quit|No, quit)\s+\S+$")
# A passing remark over the composer; the transcript's own lines are marked or indented further.
_TOAST = re.compile(r"( {2})?[^\s┃❙│┌└╭╰]")
# The transcript ends in grok's own notice: not stamped with a time, as an agent's words are.
_FAILED = re.compile(
    r"^(?!.*\d [AP]M$)(   Retry failed: .*(\n   \S.*)*|┃  Authentication required .*(\n┃  .*)*)\Z", re.M
)
_EXIT = re.compile(r"^(Error: |Pane is dead|Resume this session with:)", re.M)
_SHELL = re.compile(r"^[^│┃❙]*[$#%>❯]$")
_TOP = re.compile(r"^( *)╭─+╮$")
_BOTTOM = re.compile(r"^( *)╰.*╯$")
_SPINNER = re.compile(r"  [\u2801-\u28ff] \S")
_PLACEHOLDERS = ("Build anything", "Type a message...")


def new_conversation() -> str | None:
    """Return a new id, which grok takes at its launch."""
    return str(uuid.uuid4())


def launch(seat: Seat) -> Launch:
    """Return the command for a new conversation under seat.conversation, or under grok's own id where it is None."""
    chosen = ["--session-id", seat.conversation] if seat.conversation else []
    return _command(seat, chosen)


def resume(seat: Seat) -> Launch | None:
    """
    Return the command that continues seat.conversation; None where grok has kept nothing of it for this folder.

    Grok keeps it from the first prompt on. For an unknown id it asks a server instead of failing at once.
    """
    if not seat.conversation or not conversation_files(seat):
        return None
    return _command(seat, ["--resume", seat.conversation])


def conversation_files(seat: Seat) -> Sequence[Path]:
    """Return the conversation's folder, in either of the two forms in which grok keeps those of this directory."""
    if not seat.conversation:
        return []
    return [kept / seat.conversation for kept in _kept(seat) if (kept / seat.conversation).is_dir()]


def read(screen: Screen) -> ScreenState:
    """Return what the hints say; else what the box, the line above it and the title say."""
    lines = _lines(screen)
    shown = [line for line in lines if line]
    if not shown:
        return ScreenState.STARTING
    hinted = first_match(shown[-1], _HINTS, ScreenState.STARTING)
    if hinted is not ScreenState.STARTING:
        return hinted
    box = _composer(lines)
    if box is None:
        return _without_box(shown, screen.title)
    # A narrow pane cuts the hint, but never the spinner in the status line's column.
    if any(_SPINNER.match(line) for line in [line for line in box.above if line][-3:]):
        return ScreenState.WORKING
    if _placeholder(box) or not _TAKES_TEXT.search(box.below):
        return ScreenState.DIALOG  # a menu, a welcome screen or the transcript has the focus
    told = "\n".join(line for line in box.above if not _TOAST.match(line)).rstrip()
    return ScreenState.ERROR if _FAILED.search(told) else ScreenState.READY


def draft(screen: Screen) -> bool:
    """Whether the composer holds text or `[Pasted: N lines]`, or is in the shell mode of `!`."""
    box = _composer(_lines(screen))
    return box is not None and (box.sign != "❯" or (box.text != "" and not _placeholder(box)))


def _command(seat: Seat, conversation: Sequence[str]) -> Launch:
    return Launch([seat.program or "grok", *conversation, *_UNATTENDED, *seat.args], _ENV)


def _kept(seat: Seat) -> list[Path]:
    """Return where grok may keep this folder's sessions: under its encoded path, or beside a note for a long path."""
    sessions = seat.home / ".grok" / "sessions"
    cwd = os.fsencode(seat.cwd.resolve())
    encoded = quote(cwd, safe="")
    found = [sessions / encoded] if len(encoded) <= 255 else []
    for note in sessions.glob("*/.cwd"):
        try:
            if note.read_bytes().strip() == cwd:
                found.append(note.parent)
        except OSError:
            continue  # the note is being removed
    return found


def _lines(screen: Screen) -> list[str]:
    """The screen's lines without trailing blanks and without the scroll bar."""
    return [line.removesuffix("█").rstrip() for line in trimmed(screen)]


def _placeholder(box: ComposerBox) -> bool:
    """Whether the text is grok's own; over a typed one the hints begin with what Enter does."""
    return box.text in _PLACEHOLDERS and not box.below.startswith("Enter:")


def _composer(lines: Sequence[str]) -> ComposerBox | None:
    """The lowest box, if only the hints stand below it and every line of it is intact."""
    bottom = last_at(lines, _BOTTOM.match)
    hints = [line.strip() for line in lines[(bottom or 0) + 1 :] if line]
    if bottom is None or len(hints) > 1:
        return None
    top = last_at(lines[:bottom], _TOP.match)
    if top is None:
        return None
    margin = len(lines[top]) - len(lines[top].lstrip())
    inner = [line[margin:] for line in lines[top + 1 : bottom]]
    if not inner or not all(line.startswith("│") and line.endswith("│") for line in inner):
        return None
    above = [line[margin:] for line in lines[:top]]
    return composer(above, [line.strip("│").strip() for line in inner], "".join(hints))


def _without_box(shown: Sequence[str], title: str) -> ScreenState:
    if any(map(_WELCOME.search, shown[-3:])):
        return ScreenState.DIALOG  # trust, login
    if title.startswith("⚠ Action Required"):
        return ScreenState.ASKING
    if _BOTTOM.match(shown[-1]):
        return ScreenState.DIALOG  # an overlay that covers part of the composer
    if _EXIT.search("\n".join(shown[-4:])) or _SHELL.match(shown[-1]):
        return ScreenState.GONE
    return ScreenState.STARTING
