"""Foreign text as it may be shown in a terminal, and how many columns it takes. Standard library for ASCII alone."""

import re

# What could move the cursor, change colours or reorder the text of a terminal.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    """Return *text* as one line that a terminal may show. Control characters become dots."""
    return _UNSAFE.sub("·", text)


def clean_lines(text: str, *, lines: int, columns: int = 400) -> list[str]:
    """
    Return *text* as at most *lines* lines that a terminal may show, each of at most *columns* characters.

    Empty lines at its end are dropped. Where lines are left out, a last line says how many.
    """
    shown = text.rstrip().splitlines()
    cut = [clean(line.expandtabs(4))[:columns] for line in shown[:lines]]
    return cut if len(shown) <= lines else [*cut, f"… {len(shown) - lines} more lines"]


def fold(text: str, columns: int | None, *, indent: str = "") -> str:
    """
    Return *text* broken between words into lines of at most *columns*; all lines but the first begin with *indent*.

    A longer word keeps a line of its own. None as *columns* breaks nothing: the reader is no terminal.
    """
    if columns is None:
        return text
    lines: list[str] = []
    line, *words = text.split(" ")
    for word in words:
        if line.strip() and width(line) + 1 + width(word) > columns:
            lines.append(line)
            line = indent + word
        else:
            line = f"{line} {word}"
    return "\n".join([*lines, line])


def cut(text: str, columns: int, *, keep_end: bool = False) -> str:
    """Return *text* in at most *columns* columns: an ellipsis stands for its end, or with *keep_end* its beginning."""
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[1:] if keep_end else text[:-1]
    return f"…{text}" if keep_end else f"{text}…"


def width(text: str) -> int:
    """Columns that *text* takes in a terminal, once it is clean: emoji of several characters count as one sign."""
    if text.isascii():
        return len(text)
    import wcwidth  # noqa: PLC0415 (its tables take as long as all of a short command, and most text is ASCII)

    return wcwidth.wcswidth(clean(text))
