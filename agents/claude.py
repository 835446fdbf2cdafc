"""
claude, Anthropic's coding agent, as of 2.1.332; 2.1.197 is read as well.

Its screen is a transcript, a composer between two rules and a footer below
them. Only claude itself writes in the first column, after a sign that tells
what the line is. The words of an agent or a tool are indented, or begin with a
bullet. So the last line in the first column above the composer decides.

Its user decides what it may do without asking, so no permission mode is forced
here. A worker without a person beside it needs a mode that does not ask, given
behind `--` when the agent is created: `--dangerously-skip-permissions` where
the machine is expendable (as root with IS_SANDBOX=1 in the environment, or it
ends at once; its warning must have been accepted once), or
`--permission-mode acceptEdits` with `--allowedTools` for the commands that the
job needs. A question that comes all the same is shown as ASKING.

MAM lets claude itself write reports, and read briefs and the commits that it
reviews, by permission rules for those folders alone (see `grants`). Programs it
asks for as before: a reviewer that is to try commits unasked needs
`--allowedTools` for `Bash(env:*)`, which the line in its brief begins with, for
`Bash(git -C:*)`, and for MAM's verbs. `--add-dir` would be no narrow grant:
claude takes skills and commands from such a folder, and 2.1.332 asks at every
start whether it is trusted.

Its user must answer some questions once: theme, login, API key, trust in the
folder, and sometimes after an update whether to try something new.

Until 2.1.197 a failure cannot be told from an agent whose whole last words are
`API Error: …`; since 2.1.332 the closing line of a turn tells them apart.
"""

import json
import re
import shlex
import uuid
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from mam.agents.protocol import Launch, Permissions, Screen, ScreenState, Seat
from mam.agents.screen import ComposerBox, composer, indented, last_at, trimmed

name = "claude"
ready_within_s = 30.0
submit_pause_s = 0.3
instruction_file = "CLAUDE.md"

_ENV = {
    "DISABLE_AUTOUPDATER": "1",  # an update would replace the program under running sessions
    "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false",  # a suggestion in the composer looks like a draft
    "CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY": "1",  # it takes the first digit that is typed for an answer
}

_INTERRUPT = re.compile(r"(^ *|· )esc to interrupt")
_RULE = re.compile(r"^─{8,}(?: [^─]+ ─+)?$")
_MENU = re.compile(r"^[─▔]{8,}")
_BUSY = re.compile(r"^[·✢✳✶✻✽*] .*(…|[Rr]etrying)")
_TURN_ENDED = re.compile(r"^[✻✳*] \S+ for [\dhms ]+(?P<stamped> · done .*)?$")
_FAILED = re.compile(r"^[●⏺] (Please run /login · )?API Error: |^❯ .*\n  ⎿  Not logged in · Please run /login$", re.S)
_FAILED_HINTS = ("Once fixed, resend your message", "Resend your message to try again")
_QUEUE_HINT = re.compile(r"^Press up to (edit|select) .*queued message")
_EXAMPLE = re.compile(r'^Try ".*"$')
_EMPTY_FOOTER = re.compile(r"\? for shortcuts|← for agents")
_QUESTION = re.compile(r"^ (Do you want|Would you like) to .*\?$")
_EXIT = re.compile(
    r"^(Resume this session with:|Error: |No conversation found|--dangerously-skip-permissions cannot be used"
    r"| Unable to connect to Anthropic)"
)
_SHELL = re.compile(r"^\S[^│❯]*[$#%>❯]$")
_MEANT_OTHERWISE = re.compile(r"[*?!#\[\]{}\\\n]")  # by a rule


def new_conversation() -> str | None:
    """Return a new id, which claude takes at its launch."""
    return str(uuid.uuid4())


def launch(seat: Seat) -> Launch:
    """Return the command for a new conversation under seat.conversation, or under claude's own id where it is None."""
    return _command(seat, ["--session-id", seat.conversation] if seat.conversation else [])


def resume(seat: Seat) -> Launch | None:
    """
    Return the command that continues seat.conversation; None where claude has kept nothing of it for this folder.

    Claude keeps a file from the first prompt on. It ends at once for an unknown id, and for a known id of a new
    conversation. Folders under CLAUDE_CONFIG_DIR are not searched.
    """
    if not seat.conversation or not conversation_files(seat):
        return None
    return _command(seat, ["--resume", seat.conversation])


def conversation_files(seat: Seat) -> Sequence[Path]:
    """Return the conversation's file, if it was begun in this folder. The keys of folders are not unique."""
    cwd = seat.cwd.resolve()
    kept = seat.home / ".claude" / "projects" / _key(str(cwd)) / f"{seat.conversation}.jsonl"
    return [kept] if _began_in(kept) in (str(cwd), str(seat.cwd)) else []


def grants(permissions: Permissions) -> Sequence[str]:
    """
    Return rules for claude's own reading and editing. They add to its user's rules; what those deny stays denied.

    A folder gets no rule where its name holds a character with a meaning in rules, since the rule could match another
    folder. Claude asks there.
    """
    rules = [f"Edit(/{path}/**)" for path in _places(permissions.edit)]
    rules += [f"Read(/{path}/**)" for path in _places([*permissions.edit, *permissions.look])]
    # As one word, since claude would read the words behind a blank as rules as well.
    return [f"--allowedTools={','.join(rules)}"] if rules else []


def read(screen: Screen) -> ScreenState:
    """Return what the composer, its footer and the last line in the first column say."""
    lines = trimmed(screen)
    shown = [line for line in lines if line]
    if not shown:
        return ScreenState.STARTING
    box = _composer(lines)
    if box is None:
        return _without_box(shown)
    last = _last_block(box.above)
    if _BUSY.match(last) or _INTERRUPT.search(box.below):
        return ScreenState.WORKING
    if "Not logged in · Run /login" in box.below:
        return ScreenState.DIALOG
    if box.text in _FAILED_HINTS:
        return ScreenState.ERROR
    ended = _TURN_ENDED.match(last)
    if ended and not ended["stamped"]:
        # Before 2.1.3xx this line stands below a failure as well.
        last = _last_block(box.above[: len(box.above) - box.above[::-1].index(last) - 1])
    return ScreenState.ERROR if _FAILED.match(last) else ScreenState.READY


def draft(screen: Screen) -> bool:
    """Whether the composer holds text or `[Pasted text #1 +30 lines]`, or is in the shell mode of `!`."""
    box = _composer(trimmed(screen))
    if box is None or (box.sign == "❯" and not box.text):
        return False
    own = box.text in _FAILED_HINTS or _QUEUE_HINT.match(box.text)
    example = _EXAMPLE.match(box.text) and _EMPTY_FOOTER.search(box.below)
    return not (own or example)


def _command(seat: Seat, conversation: Sequence[str]) -> Launch:
    return Launch([seat.program or "claude", *conversation, *_hooks(seat), *seat.args], _ENV)


def _hooks(seat: Seat) -> Sequence[str]:
    """
    Return hooks for this one session, beside its user's: claude tells by them sooner than its screen does.

    They are left out where the user gives a `--settings`, since claude takes only one.
    """
    if any(arg == "--settings" or arg.startswith("--settings=") for arg in seat.args):
        return []

    def say(what: str, matcher: str = "") -> list[dict[str, object]]:
        command = {"type": "command", "command": f"{shlex.quote(seat.mam)} agent-signal {what}", "timeout": 10}
        return [{"matcher": matcher, "hooks": [command]}]

    hooks = {"Notification": say("permission", "permission_prompt"), "Stop": say("turn_ended")}
    return ["--settings", json.dumps({"hooks": hooks})]


def _places(folders: Sequence[Path]) -> Sequence[str]:
    """Return the folders that a rule can name, a linked one under both of its names, since claude checks both."""
    names = [str(name) for folder in folders for name in dict.fromkeys([folder, folder.resolve()])]
    return [name for name in names if not _MEANT_OTHERWISE.search(name) and name.count("(") == name.count(")")]


def _key(cwd: str) -> str:
    """Return claude's name for a folder's sessions. A long one is cut, and gets a hash of 32 bits."""
    raw = cwd.encode("utf-16-le", "surrogatepass")
    units = [int.from_bytes(raw[at : at + 2], "little") for at in range(0, len(raw), 2)]
    plain = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(plain) <= 200:
        return plain
    total = 0
    for unit in units:
        total = (total * 31 + unit) & 0xFFFFFFFF
    return f"{plain[:200]}-{_base36(min(total, 0x100000000 - total))}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def _began_in(kept: Path) -> str | None:
    """Return the folder in which a kept conversation was begun; None where there is none or it cannot be read."""
    try:
        with kept.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                if isinstance(record, dict) and record.get("cwd"):
                    return str(record["cwd"])
    except (OSError, ValueError):
        pass  # never prompted, being removed, or not claude's
    return None


def _composer(lines: Sequence[str]) -> ComposerBox | None:
    """What stands between the two lowest rules, if it begins with a composer's sign and claude still runs."""
    rules = [at for at, line in enumerate(lines) if _RULE.match(line)]
    if len(rules) < 2:
        return None
    top, bottom = rules[-2:]
    if any(map(_EXIT.match, lines[bottom:])):
        return None  # the last frame stays above the parting words
    inner = lines[top + 1 : bottom]
    if not inner or inner[0][:1] not in ("❯", "!") or not indented(inner[1:]):
        return None
    return composer(lines[:top], inner, "\n".join(lines[bottom + 1 :]))


def _last_block(above: Sequence[str]) -> str:
    """The last line in the first column, with the indented ones directly below it."""
    start = last_at(above, lambda line: line[:1] not in ("", " "))
    return "" if start is None else "\n".join(takewhile(bool, above[start:]))


def _without_box(shown: Sequence[str]) -> ScreenState:
    if any(map(_EXIT.match, shown[-6:])):
        return ScreenState.GONE
    if any(map(_MENU.match, shown)):
        asks = shown[-1].startswith(" Esc to cancel") and any(map(_QUESTION.match, shown[-12:]))
        return ScreenState.ASKING if asks else ScreenState.DIALOG
    return ScreenState.GONE if _SHELL.match(shown[-1]) else ScreenState.STARTING
