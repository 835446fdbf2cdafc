"""Foreign text as it may be shown in a terminal, and how many columns it takes. Standard library for ASCII alone."""

import re

# What could move the cursor, change colours or reorder the text of a terminal.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    """Return *text* as one line that a terminal may show. Control characters become dots."""
    return _UNSAFE.sub("·", text)


def width(text: str) -> int:
    """Columns that *text* takes in a terminal, once it is clean: emoji of several characters count as one sign."""
    if text.isascii():
        return len(text)
    import wcwidth  # noqa: PLC0415 (its tables take as long as all of a short command, and most text is ASCII)

    return wcwidth.wcswidth(clean(text))
