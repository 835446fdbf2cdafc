"""
The one border to multiplexers: whatever one raises or returns wrongly is a MuxFailed, which is a LookFailed.

"Could not look" says nothing about the panes, so a defect in a multiplexer never ends a session.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from mam.agents.protocol import Screen
from mam.broker.errors import MamError, described
from mam.wrappers.mux.protocol import Multiplexer, MuxFailed, Pane, PaneSpec

_Result = TypeVar("_Result")


class MuxBorder:
    """
    A multiplexer behind its border, itself a Multiplexer.

    Typed errors pass (PaneGone, MuxGone, LookFailed), and so does the OSError of an `open` that the machine refused:
    a full disk is said in its own words. Everything else becomes MuxFailed.
    """

    def __init__(self, kind: str, server: str, make: Callable[[], Multiplexer]) -> None:
        """Raises MuxFailed where *make* fails."""
        self.kind, self.server = kind, server
        self._foreign: Multiplexer = self._checked("its start", make, object)

    def __repr__(self) -> str:
        return f"MuxBorder({self.kind}, {self.server})"

    def open(self, spec: PaneSpec) -> Pane:
        return self._checked("open", lambda: self._foreign.open(spec), Pane, passing=(MamError, OSError))

    def panes(self) -> list[Pane]:
        found: list[Pane] = self._checked("panes", self._foreign.panes, list)
        if not all(isinstance(pane, Pane) for pane in found):
            raise self._failed("panes", "it returned what is not a pane")
        return found

    def screen(self, pane_id: str) -> Screen:
        return self._checked("screen", lambda: self._foreign.screen(pane_id), Screen)

    def paste(self, pane_id: str, text: str) -> None:
        self._checked("paste", lambda: self._foreign.paste(pane_id, text), object)

    def press(self, pane_id: str, key: str) -> None:
        self._checked("press", lambda: self._foreign.press(pane_id, key), object)

    def close(self, pane_id: str, tag: str) -> bool:
        return self._checked("close", lambda: self._foreign.close(pane_id, tag), bool)

    def attach_command(self, pane_id: str) -> Sequence[str] | None:
        return self._checked("attach_command", lambda: self._foreign.attach_command(pane_id), object)

    def _checked(
        self,
        member: str,
        call: Callable[[], _Result],
        kind: type,
        passing: tuple[type[Exception], ...] = (MamError,),
    ) -> _Result:
        try:
            found = call()
        except passing:
            raise
        except (Exception, SystemExit) as error:  # the border to foreign code
            raise self._failed(member, described(error)) from error
        if not isinstance(found, kind):
            raise self._failed(member, f"it returned a {type(found).__name__}")
        return found

    def _failed(self, member: str, why: str) -> MuxFailed:
        return MuxFailed(server=f"{self.kind} ({self.server})", why=f"{member}: {why}")
