"""Waiting for what nothing announces, and how long to pause between tries. Standard library only."""

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def wait_until(condition: Callable[[], _Found], wait_s: float, *, every_s: float = 0.02) -> _Found | None:
    """
    The first true answer of *condition*, asked now and then every *every_s* seconds; None after *wait_s* seconds.

    It is asked at least once, and a last time when the time is over. What it raises ends the waiting.
    """
    deadline = time.monotonic() + wait_s
    while not (found := condition()):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(every_s, left_s))
    return found


def pause_s(tries: int, *, first_s: float, last_s: float) -> float:
    """Seconds to wait after *tries* tries in vain (1 or more): *first_s*, doubled each time, at most *last_s*."""
    doublings = min(max(tries, 1) - 1, 60)  # more than any pause needs; a float ends at 1023 of them
    return min(last_s, first_s * 2.0**doublings)
