"""What adapters read screens with: their last lines, rules in the order of their priority, and the composer."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mam.agents.protocol import Screen, ScreenState


class ComposerBox(NamedTuple):
    """Where a person or MAM types. An adapter finds its edges; `composer` makes this of them."""

    above: Sequence[str]  # the transcript
    sign: str  # the first sign of its first line: the prompt's, or that of another mode
    text: str  # what stands in it, without margins
    below: str  # footer and key hints
    label: str = ""  # a line of the box that names agent and model


def composer(
    above: Sequence[str], inner: Sequence[str], below: str, *, signed: bool = True, label: str = ""
) -> ComposerBox:
    """
    The composer whose own lines are *inner*, between *above* and *below*.

    Args:
        inner: Its lines from the left edge on, without the frame.
        signed: Whether the first line begins with a sign that is not part of the text.
    """
    first, *rest = inner or [""]
    own = [first[1:], *rest] if signed else [first, *rest]
    text = "\n".join(line.strip() for line in own).strip()
    return ComposerBox(above, first[:1] if signed else "", text, below, label)


def trimmed(screen: Screen) -> list[str]:
    """The screen's lines without trailing blanks."""
    return [line.rstrip() for line in screen.text.splitlines()]


def indented(lines: Sequence[str]) -> bool:
    """Whether no line begins in the first column."""
    return all(line[:1] in ("", " ") for line in lines)


def last_at(lines: Sequence[str], matches: Callable[[str], object]) -> int | None:
    """The index of the lowest line that *matches*, or None."""
    return max((at for at, line in enumerate(lines) if matches(line)), default=None)


def tail(screen: Screen, lines: int = 20) -> str:
    """The last *lines* non-empty lines: state is shown at the bottom, history above it lies."""
    shown = [line.rstrip() for line in screen.text.splitlines() if line.strip()]
    return "\n".join(shown[-lines:])


def first_match(text: str, rules: Sequence[tuple[ScreenState, re.Pattern[str]]], default: ScreenState) -> ScreenState:
    """The state of the first rule that matches: the order of the rules is their priority."""
    for state, pattern in rules:
        if pattern.search(text):
            return state
    return default
