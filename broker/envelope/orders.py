"""
What a runner reads: the messages of its inbox, and its own presence. Standard library only.

A runner lives as long as its agent, and reads nothing but what its own monitor signed; so it goes without pydantic,
which would be a third of its memory. The rules are as strict as those of events.py: exact members of the body, no
conversion of types, limits of texts; unknown members of ``data`` are ignored and an unknown kind has no effect.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from mam.broker.envelope.signing import refuse
from mam.broker.envelope.topics import JOB_ID, NAME

MAX_SEQ = 2**53
TEXT_CHARS = 4000
PROMPT_CHARS = 60_000

_EVENT_ID = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KIND = re.compile(r"[a-z_]{1,32}")
_PRODUCER = re.compile(r"[a-z0-9-]{1,64}")
_MEMBERS = {"id", "session", "job", "kind", "attempt", "seq", "ts", "producer", "data"}


@dataclass(frozen=True, kw_only=True)
class FreeText:
    """Free text for an agent's composer, outside of any job."""

    prompt: str
    deliver_within_s: int
    expires_at: int | None = None  # by the clock of the host that both ends share; then its sender has given up


@dataclass(frozen=True, kw_only=True)
class Dispatch(FreeText):
    """The prompt of one attempt; the runner hands it over only while the brief is the one that was signed."""

    brief_path: str
    brief_sha256: str
    key_file: str


@dataclass(frozen=True)
class Cancel:
    """Forget a delivery, or stop the heartbeats of an attempt."""

    reason: str = ""


@dataclass(frozen=True)
class Settled:
    """Events that are recorded: the ids under which they lie in the spool."""

    ids: frozenset[str]


@dataclass(frozen=True)
class SeenPresence:
    """What the broker keeps of a runner: which life of the session said it, and whether it was there."""

    online: bool
    incarnation: str


class Received(NamedTuple):
    """A checked message: what it concerns, and what it wants; None for a kind of a newer version."""

    job: str | None
    attempt: int
    kind: str
    data: FreeText | Cancel | Settled | SeenPresence | None


def read_inbox(body: Mapping[str, object]) -> Received:
    """A message from the monitor. Raises EventRefused("schema")."""
    return _read(body, _INBOX)


def read_presence(body: Mapping[str, object]) -> Received:
    """What was said on a runner's topic of presence. Raises EventRefused("schema")."""
    return _read(body, {"presence": _presence})


_Reader = Callable[["_Members"], FreeText | Cancel | Settled | SeenPresence]


def _read(body: Mapping[str, object], kinds: Mapping[str, _Reader]) -> Received:
    if body.keys() != _MEMBERS:
        refuse("schema", "members")
    frame = _Members(body)
    frame.text("id", pattern=_EVENT_ID)
    frame.text("session", pattern=NAME)
    frame.text("producer", pattern=_PRODUCER)
    for name in ("seq", "ts"):
        frame.number(name)
    job = None if body["job"] is None else frame.text("job", pattern=JOB_ID)
    kind, attempt, data = frame.text("kind", pattern=_KIND), frame.number("attempt"), body["data"]
    if not isinstance(data, dict):
        _wrong("data")
    reader = kinds.get(kind)
    return Received(job, attempt, kind, None if reader is None else reader(_Members(data)))


class _Members:
    """The members of an object, each of exactly the type that is asked for. Raises EventRefused("schema")."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def text(self, name: str, *, at_most: int | None = None, pattern: re.Pattern[str] | None = None) -> str:
        value = self._members.get(name)
        if not isinstance(value, str) or (at_most is not None and len(value) > at_most):
            _wrong(name)
        if pattern is not None and not pattern.fullmatch(value):
            _wrong(name)
        return value

    def number(self, name: str, least: int = 0) -> int:
        value = self._members.get(name)
        if type(value) is not int or not least <= value < MAX_SEQ:  # True is an int, and no number
            _wrong(name)
        return value

    def flag(self, name: str) -> bool:
        value = self._members.get(name)
        if not isinstance(value, bool):
            _wrong(name)
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._members.get(name) is None else self.text(name)

    def optional_number(self, name: str) -> int | None:
        return None if self._members.get(name) is None else self.number(name)

    def items(self, name: str) -> list["_Members"]:
        value = self._members.get(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            _wrong(name)
        return [_Members(each) for each in value]

    def has(self, name: str) -> bool:
        return name in self._members


def _wrong(name: str) -> NoReturn:
    refuse("schema", name)


def _say(data: _Members) -> FreeText:
    return FreeText(
        prompt=data.text("prompt", at_most=PROMPT_CHARS),
        deliver_within_s=data.number("deliver_within_s", least=1),
        expires_at=data.optional_number("expires_at"),
    )


def _dispatch(data: _Members) -> Dispatch:
    said = _say(data)
    return Dispatch(
        prompt=said.prompt,
        deliver_within_s=said.deliver_within_s,
        expires_at=said.expires_at,
        brief_path=data.text("brief_path"),
        brief_sha256=data.text("brief_sha256", pattern=_SHA256),
        key_file=data.text("key_file"),
    )


def _cancel(data: _Members) -> Cancel:
    return Cancel(data.text("reason", at_most=TEXT_CHARS) if data.has("reason") else "")


def _settled(data: _Members) -> Settled:
    ids = []
    for item in data.items("items"):
        item.text("outcome")
        ids.append(item.text("id", pattern=_EVENT_ID))
    return Settled(frozenset(ids))


def _presence(data: _Members) -> SeenPresence:
    for name in ("start_time", "boot_id", "version"):
        data.text(name)
    data.number("pid")
    data.optional_number("agent_pid")
    data.optional_text("agent_start")
    return SeenPresence(data.flag("online"), data.text("incarnation"))


_INBOX: Mapping[str, _Reader] = {"dispatch": _dispatch, "say": _say, "cancel": _cancel, "settled": _settled}
