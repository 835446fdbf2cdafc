"""
codex, OpenAI's coding agent, as of 0.171.0.

Its screen is a transcript, a composer that begins with `›` and a paragraph
below it with the model, the folder and key hints. Every entry of the
transcript begins in the first column with a sign: `›` is the user's, `•` the
agent's or a tool's, `■` codex's own trouble. A turn that ended closes with an
indented `Worked for`, so that a working line can be told from a quoted one.

It always runs without its background server. That server would give all
sessions the environment of the first one, and work on after its pane is closed.
`-c features.daemon_auto_start=false` is not enough, since codex then ends
where its user's own server is running.

Its user decides what it may do without asking, so nothing is forced here. A
worker without a person beside it needs a policy that does not ask:
`-s workspace-write -a never` keeps codex's sandbox, and `grants` lets MAM's
verbs out of it; `--dangerously-bypass-approvals-and-sandbox` has no sandbox.
Its user must answer some questions once: login, trust in the folder, hooks.

Hooks of this one session tell that it asks for a permission and that a turn has
ended, see `_hooks`. Another version may know hooks by other hashes. It then
asks at its start for a review of MAM's hooks, and runs none before that; behind
`--`, `-c hooks.Stop=[]` leaves them out.

codex draws its own conversation ids. They are found in its files, see
`resume`. Sessions under another CODEX_HOME than ~/.codex are not found.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from mam.agents import conversations
from mam.agents.conversations import KeptConversation
from mam.agents.protocol import Launch, Permissions, Screen, ScreenState, Seat
from mam.agents.screen import ComposerBox, composer, indented, last_at, trimmed

name = "codex"
ready_within_s = 30.0
submit_pause_s = 0.3
instruction_file = "AGENTS.md"

_PLACEHOLDER = "Ask Codex to do anything"
_FIRST_FOOTER = "? for shortcuts"  # alone: it does not know yet whether to ask for a login or for trust
_MENU = re.compile(r"^ +(press )?enter (to )?(continue|confirm|select|submit)\b", re.I)
_QUESTION = re.compile(r"^  (Would you like|Do you want) to .*\?$")
_BUSY = re.compile(r"^[•◦] .*\(\d+[hms][^()]* • esc")
_QUEUE = re.compile(r"^• (Messages to be submitted|Queued )")
_TURN_ENDED = re.compile(r"^  Worked for ", re.M)
_FAILED = re.compile(r"^■ (?!Conversation interrupted)")
_EXIT = re.compile(r"^(To continue this session, run:|Session ID: |Error[: ]|ERROR: )")
_SHELL = re.compile(r"^[^ ›│][^›│]*[$#%>❯]$")
_OWN_HOOKS = re.compile(r"(-c|--config=)?(features\.)?hooks\b")


def new_conversation() -> str | None:
    """Return None: codex draws the id itself."""
    return None


def launch(seat: Seat) -> Launch:
    """Return the command for a new conversation."""
    return _command(seat)


def resume(seat: Seat) -> Launch | None:
    """
    Return the command that continues the seat's conversation; None where a doubt is left.

    Where seat.conversation is None, `conversations.own` says which one it is.
    """
    found = _own(seat)
    return None if found is None else _command(seat, "resume", found.id)


def conversation_files(seat: Seat) -> Sequence[Path]:
    """Return the file of the seat's conversation; nothing where a doubt is left."""
    found = _own(seat)
    return [] if found is None else [found.where]


def grants(permissions: Permissions) -> Sequence[str]:
    """
    Return the writable folders of the sandbox, which lets everything be read.

    They replace `writable_roots` in the user's own settings, who can add others by `--add-dir`. MAM itself cannot use
    that option: codex ends at it where nothing may be written, as with `-s read-only` or in an untrusted folder.

    A folder counts as soon as it exists. Within a writable folder, codex keeps the git directory of a linked worktree
    read-only, unless that is named itself. In a main checkout it stays read-only, so `git commit` is refused there.
    """
    roots = ", ".join(json.dumps(str(path), ensure_ascii=False) for path in permissions.write)
    return ["-c", f"sandbox_workspace_write.writable_roots=[{roots}]"]


def read(screen: Screen) -> ScreenState:
    """Return what the menu, the composer, or the last entries of the transcript say."""
    lines = trimmed(screen)
    shown = [line for line in lines if line]
    if not shown:
        return ScreenState.STARTING
    if any(map(_EXIT.match, shown[-5:])):
        return ScreenState.GONE
    if _MENU.match(shown[-1]):
        return ScreenState.ASKING if any(map(_QUESTION.match, shown)) else ScreenState.DIALOG
    box = _composer(lines)
    if box is None:
        return _without_box(shown)
    if box.text == _PLACEHOLDER and box.below == _FIRST_FOOTER:
        return ScreenState.STARTING
    for block in _blocks_upwards(box.above):
        if _TURN_ENDED.search(block):
            return ScreenState.READY
        if _QUEUE.match(block):
            continue
        if _BUSY.match(block):
            return ScreenState.WORKING
        return ScreenState.ERROR if _FAILED.match(block) else ScreenState.READY
    return ScreenState.READY


def draft(screen: Screen) -> bool:
    """Whether the composer holds text or `[Pasted Content 1539 chars]`, or is in the shell mode of `!`."""
    lines = trimmed(screen)
    shown = [line for line in lines if line]
    box = _composer(lines)
    if box is None or _MENU.match(shown[-1]):
        return False
    return box.sign != "›" or box.text not in ("", _PLACEHOLDER)


def _command(seat: Seat, *conversation: str) -> Launch:
    return Launch([seat.program or "codex", "--no-daemon", *conversation, *_hooks(seat), *seat.args])


def _hooks(seat: Seat) -> Sequence[str]:
    """
    Return hooks for this one session, beside its user's. Codex runs the hooks of each layer of its settings.

    The session's flags are one layer. They also say that exactly these commands, by their hashes, are trusted; codex
    still reviews the user's hooks. Where the user's own flags name hooks, MAM's are left out, since later flags replace
    earlier ones.
    """
    if any(map(_OWN_HOOKS.match, seat.args)):
        return []
    events = [("Stop", "stop", "turn_ended")]
    if not _answers_by_itself(seat):
        events.append(("PermissionRequest", "permission_request", "permission"))
    words, trusted = [], []
    for event, label, what in events:
        command = f"{shlex.quote(seat.mam)} agent-signal {what}"
        hook = {"type": "command", "command": command, "timeout": 10, "async": False}
        words += ["-c", f"hooks.{event}=[{{hooks=[{_toml(hook)}]}}]"]
        trusted.append(f'"/<session-flags>/config.toml:{label}:0:0"={{trusted_hash="{_hash(label, hook)}"}}')
    return [*words, "-c", f"hooks.state={{{','.join(trusted)}}}"]


def _answers_by_itself(seat: Seat) -> bool:
    """Whether something other than the user may answer a request. A request does not mean then that codex waits."""
    try:
        settings = (seat.home / ".codex" / "config.toml").read_text("utf-8", "replace")
    except OSError:
        settings = ""
    return any("approvals_reviewer" in text for text in (settings, *seat.args))


def _toml(table: Mapping[str, object]) -> str:
    return "{" + ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in table.items()) + "}"


def _hash(label: str, hook: Mapping[str, object]) -> str:
    """Return the hash by which codex knows a hook: of its event and command, as JSON in a fixed form."""
    known = json.dumps(
        {"event_name": label, "hooks": [hook]}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return "sha256:" + hashlib.sha256(known.encode("utf-8", "surrogateescape")).hexdigest()


def _composer(lines: Sequence[str]) -> ComposerBox | None:
    """The lowest entry with a prompt's sign, if nothing but the closing paragraph follows its text."""
    start = last_at(lines, lambda line: line[:1] in ("›", "!"))
    if start is None:
        return None
    below = "\n".join(lines[start + 1 :]).rstrip().split("\n")
    if not indented(below) or "" not in below:
        return None
    gap = len(below) - below[::-1].index("") - 1
    return composer(lines[:start], [lines[start], *below[:gap]], "\n".join(below[gap:]).strip())


def _blocks_upwards(above: Sequence[str]) -> Iterator[str]:
    """Yield the transcript's entries, the last one first. An entry begins in the first column, after a blank line."""
    end = len(above)
    for at in range(len(above) - 1, -1, -1):
        if above[at][:1] not in ("", " ") and (at == 0 or not above[at - 1]):
            yield "\n".join(above[at:end])
            end = at


def _without_box(shown: Sequence[str]) -> ScreenState:
    return ScreenState.GONE if _SHELL.match(shown[-1]) else ScreenState.STARTING


def _own(seat: Seat) -> KeptConversation | None:
    return conversations.own(seat, list(_kept(seat)), ("resume",), _holds)


def _kept(seat: Seat) -> Iterator[KeptConversation]:
    """Yield what a person or MAM has begun in the seat's folder, without what codex itself did beside it."""
    places = (str(seat.cwd), str(seat.cwd.resolve()))
    for path in (seat.home / ".codex" / "sessions").glob("*/*/*/rollout-*.jsonl"):
        try:
            with path.open(encoding="utf-8") as lines:
                about = json.loads(lines.readline())["payload"]
            if about["cwd"] in places and about["source"] == "cli":
                yield KeptConversation(str(about["id"]), datetime.fromisoformat(about["timestamp"]).timestamp(), path)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # of another version, half written, or being removed


def _holds(one: KeptConversation, prompts: Sequence[str]) -> bool:
    try:
        with one.where.open(encoding="utf-8", errors="replace") as lines:
            return any(prompt in line for line in lines for prompt in prompts)
    except OSError:
        return False
