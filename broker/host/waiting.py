"""Waiting for something that nothing announces, and the pauses between tries. Standard library only."""

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def wait_until(condition: Callable[[], _Found], wait_s: float, *, every_s: float = 0.02) -> _Found | None:
    """
    Return the first true answer of *condition*; None where there is none within *wait_s* seconds.

    It is called at once, then every *every_s* seconds, and a last time at the end. What it raises ends the wait.
    """
    deadline = time.monotonic() + wait_s
    while not (found := condition()):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(every_s, left_s))
    return found


def pause_s(tries: int, *, first_s: float, last_s: float) -> float:
    """Return the seconds to wait after *tries* failed tries: *first_s*, doubled with each try, at most *last_s*."""
    doublings = min(max(tries, 1) - 1, 60)  # more than any pause needs; a float overflows at 1024
    return min(last_s, first_s * 2.0**doublings)
