"""What a mistyped word may have meant; imported where one was mistyped alone."""

import difflib
from collections.abc import Iterable


def meant(word: str, known: Iterable[str], before: str = "") -> str:
    """The nearest of *known*, as the beginning of a hint; empty where none is near. *before* is what precedes it."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean `{before}{near[0]}`? " if near else ""
