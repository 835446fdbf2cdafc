"""What is known of the terminal that a text is written to. Standard library only."""

import os
from collections.abc import Mapping
from typing import TextIO

LEAST_COLUMNS = 40


def may_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether *stream* is a terminal that shows colours, and its user did not say NO_COLOR (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def alarming(text: str, *, colour: bool) -> str:
    """Return *text*, which a person must look at, in the terminal's colour for warnings where *colour* is on."""
    return f"\x1b[1;33m{text}\x1b[0m" if colour else text


def columns(stream: TextIO) -> int | None:
    """Return how many columns the terminal behind *stream* has, at least 40; None where it is none."""
    try:
        return max(LEAST_COLUMNS, os.get_terminal_size(stream.fileno()).columns) if stream.isatty() else None
    except (OSError, ValueError):  # a closed stream, or one without a file
        return None
