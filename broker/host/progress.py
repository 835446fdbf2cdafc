"""How a function that takes long tells a person what it is doing. Standard library only."""

from collections.abc import Callable

# Gets one line of text a step; never part of a result.
Progress = Callable[[str], None]


def silent(text: str) -> None:
    """Drop the text: the Progress of callers that have no person to tell."""
