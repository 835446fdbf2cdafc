"""Waiting for something to become true, instead of sleeping for as long as it usually takes."""

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], what: str = "", *, within_s: float = 120.0) -> Any:
    """Wait until *true* returns something true and return that; fail where it does not."""
    deadline = time.monotonic() + within_s
    while True:
        found = true()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"did not become true within {within_s:g} s: {what or true}")
        time.sleep(0.02)
