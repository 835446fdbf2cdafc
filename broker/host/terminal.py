"""What is known of the terminal that a text is written to. Standard library only."""

import os
from typing import TextIO

LEAST_COLUMNS = 40


def columns(stream: TextIO) -> int | None:
    """Return how many columns the terminal behind *stream* has, at least 40; None where it is none."""
    try:
        return max(LEAST_COLUMNS, os.get_terminal_size(stream.fileno()).columns) if stream.isatty() else None
    except (OSError, ValueError):  # a closed stream, or one without a file
        return None
