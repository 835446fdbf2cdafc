"""
The one border to agent adapters: whatever an adapter raises or returns wrongly becomes AdapterFailed.

Every adapter is called through it, MAM's own as well as a package's.
"""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, cast

from mam.agents.protocol import (
    AgentCli,
    KeepsConversations,
    Launch,
    Permissions,
    Screen,
    ScreenState,
    Seat,
    SeesDrafts,
    TakesPermissions,
)
from mam.broker.errors import MamError, Usage, described

UNREADABLE = "unreadable"  # the state of a screen whose adapter failed: none of ScreenState's
_Result = TypeVar("_Result")


class AdapterFailed(MamError):
    """An adapter raised, or returned what its protocol does not allow. It says nothing about the agent."""

    agent: str
    member: str
    why: str

    code = "adapter_failed"
    message = "the adapter of agent kind {agent!r} failed in {member}: {why}"
    remedy_text = "`mam agent check {agent}` tries the adapter; repair or update its package"


def required() -> list[str]:
    """The members that every adapter must have: those of the AgentCli protocol."""
    return [*inspect.get_annotations(AgentCli), *_functions(AgentCli)]


def _functions(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]


def _has(foreign: object, capability: type) -> bool:
    """Asked by name: `isinstance` finds members that `__getattr__` gives up to Python 3.11 alone."""
    return all(getattr(foreign, name, None) is not None for name in _functions(capability))


def lacks(found: object) -> list[str]:
    """The required members that *found* does not have."""
    return [member for member in required() if getattr(found, member, None) is None]


class Adapter:
    """
    An agent adapter behind its border.

    Each method is the protocol's function of that name. It returns what the protocol promises or raises AdapterFailed.
    A capability that the adapter does not have gives the empty answer. Usage that launch and resume raise passes.
    """

    def __init__(self, kind: str, foreign: AgentCli) -> None:
        """Raises AdapterFailed where a required member is missing or is of another type."""
        self.kind = kind
        self._foreign = foreign
        missing = lacks(foreign)
        if missing:
            raise AdapterFailed(agent=kind, member="its module", why=f"it lacks {', '.join(missing)}")
        self.name = self._checked("name", lambda: foreign.name, _text)
        self.ready_within_s = self._checked("ready_within_s", lambda: foreign.ready_within_s, _seconds)
        self.submit_pause_s = self._checked("submit_pause_s", lambda: foreign.submit_pause_s, _seconds)
        self.instruction_file = self._checked("instruction_file", lambda: foreign.instruction_file, _text)
        # The capabilities that it has.
        self.sees_drafts = self._checked("draft", lambda: _has(foreign, SeesDrafts), _truth)
        self.keeps_conversations = self._checked(
            "conversation_files", lambda: _has(foreign, KeepsConversations), _truth
        )
        self.takes_permissions = self._checked("grants", lambda: _has(foreign, TakesPermissions), _truth)

    def __repr__(self) -> str:
        return f"Adapter({self.kind})"

    def new_conversation(self) -> str | None:
        return self._checked("new_conversation", lambda: self._foreign.new_conversation(), _text_or_none)

    def launch(self, seat: Seat) -> Launch:
        return self._checked("launch", lambda: self._foreign.launch(seat), _launch, passing=Usage)

    def resume(self, seat: Seat) -> Launch | None:
        return self._checked("resume", lambda: self._foreign.resume(seat), _launch_or_none, passing=Usage)

    def read(self, screen: Screen) -> ScreenState:
        return self._checked("read", lambda: self._foreign.read(screen), _state)

    def draft(self, screen: Screen) -> bool:
        if not self.sees_drafts:
            return False
        return self._checked("draft", lambda: cast(SeesDrafts, self._foreign).draft(screen), _truth)

    def conversation_files(self, seat: Seat) -> list[Path]:
        if not self.keeps_conversations:
            return []
        foreign = cast(KeepsConversations, self._foreign)
        return self._checked("conversation_files", lambda: foreign.conversation_files(seat), _paths)

    def grants(self, permissions: Permissions) -> list[str]:
        if not self.takes_permissions:
            return []
        return self._checked("grants", lambda: cast(TakesPermissions, self._foreign).grants(permissions), _texts)

    def _checked(
        self,
        member: str,
        call: Callable[[], object],
        check: Callable[[object], _Result],
        passing: type[MamError] | tuple[()] = (),
    ) -> _Result:
        try:
            return check(call())
        except passing:
            raise
        except (Exception, SystemExit) as error:  # the border to foreign code
            why = str(error) if isinstance(error, _Unfit) else described(error)
            raise AdapterFailed(agent=self.kind, member=member, why=why) from error


class _Unfit(Exception):
    """A value that the protocol does not allow there."""


def _unfit(value: object, wanted: str) -> _Unfit:
    return _Unfit(f"it is {value!r:.80}, and must be {wanted}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _unfit(value, "text")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise _unfit(value, "seconds")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise _unfit(value, "True or False")
    return value


def _state(value: object) -> ScreenState:
    if not isinstance(value, ScreenState):
        raise _unfit(value, "a ScreenState")
    return value


def _texts(value: object) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _unfit(value, "a sequence of texts")
    return [_text(one) for one in value]


def _paths(value: object) -> list[Path]:
    found = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else None
    if found is None or not all(isinstance(one, Path) for one in found):
        raise _unfit(value, "a sequence of paths")
    return found


def _launch(value: object) -> Launch:
    if not isinstance(value, Launch):
        raise _unfit(value, "a Launch")
    argv = _texts(value.argv)
    if not argv:
        raise _unfit(value, "a Launch with a program to run")
    for variables in (value.env, value.defaults):
        _texts([*variables.keys(), *variables.values()])
    return value._replace(argv=argv)


def _launch_or_none(value: object) -> Launch | None:
    return None if value is None else _launch(value)
