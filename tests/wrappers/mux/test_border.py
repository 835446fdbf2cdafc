"""The border to multiplexers: a defect in one means that it could not look, never that a pane is gone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mam.wrappers.mux.border import MuxBorder
from mam.wrappers.mux.protocol import LookFailed, MuxFailed, MuxGone, PaneGone, PaneSpec

SPEC = PaneSpec("tag", "writer", Path("/"), {}, ["true"])
CALLS: dict[str, Callable[[MuxBorder], object]] = {
    "open": lambda mux: mux.open(SPEC),
    "panes": lambda mux: mux.panes(),
    "screen": lambda mux: mux.screen("%1"),
    "paste": lambda mux: mux.paste("%1", "text"),
    "press": lambda mux: mux.press("%1", "Enter"),
    "close": lambda mux: mux.close("%1", "tag"),
    "attach_command": lambda mux: mux.attach_command("%1"),
}


class Odd:
    """A multiplexer whose every call gives *answer*."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> object:
            if isinstance(self._answer, BaseException):
                raise self._answer
            return self._answer

        return call


def behind(answer: object) -> MuxBorder:
    return MuxBorder("odd", "one", lambda: Odd(answer))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "error", [IndexError("odd"), KeyError("odd"), SystemExit(1), UnicodeDecodeError("u", b"", 0, 0, "")]
)
def test_whatever_a_multiplexer_raises_means_that_it_could_not_look(call: str, error: BaseException) -> None:
    with pytest.raises(LookFailed, match=rf"odd \(one\) failed: {call}: {type(error).__name__}") as caught:
        CALLS[call](behind(error))
    assert not isinstance(caught.value, MuxGone)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [PaneGone(pane="%1", server="one"), MuxGone(server="one")])
def test_what_a_multiplexer_says_on_purpose_passes(call: str, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        CALLS[call](behind(error))
    assert caught.value is error


def test_a_machine_that_refuses_a_new_pane_is_said_in_its_own_words() -> None:
    with pytest.raises(OSError, match="No space left"):
        behind(OSError(28, "No space left on device")).open(SPEC)
    with pytest.raises(MuxFailed):
        behind(OSError(13, "Permission denied")).panes()


@pytest.mark.parametrize(
    ("call", "wrong"), [("open", "%1"), ("panes", None), ("panes", ["%1"]), ("screen", "text"), ("close", None)]
)
def test_a_result_of_another_type_means_that_it_could_not_look(call: str, wrong: object) -> None:
    with pytest.raises(MuxFailed, match=f"{call}: it returned"):
        CALLS[call](behind(wrong))


def test_a_multiplexer_that_cannot_be_made_means_the_same() -> None:
    def fail() -> Any:
        raise RuntimeError("no library")

    with pytest.raises(MuxFailed, match="its start: RuntimeError: no library"):
        MuxBorder("odd", "one", fail)
