"""How much of an attack runs: a small size in `make test`, the full one in `make reliability`."""

import os

FULL = bool(os.environ.get("MAM_TEST_FULL"))
FIGURES = os.environ.get("MAM_TEST_FIGURES")


def size(usual: int, full: int) -> int:
    """How much of something: *usual* in `make test`, *full* in `make reliability` (MAM_TEST_FULL=1)."""
    return full if FULL else usual
