"""How long work tells a person what it does at the moment. Standard library only."""

from collections.abc import Callable

# Gets one line of text a step; never part of a result.
Progress = Callable[[str], None]


def silent(text: str) -> None:
    """The Progress of callers that tell nobody."""
