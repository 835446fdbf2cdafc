"""Foreign text as it may be shown in a terminal, and how many columns it takes. Standard library only."""

import re
import unicodedata

# What could move the cursor, change colours or reorder the text of a terminal.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    """One line of foreign text as it may be shown in a terminal."""
    return _UNSAFE.sub("·", text)


def width(text: str) -> int:
    """Columns that *text* takes in a terminal."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(1 for char in text if unicodedata.combining(char))
