"""The fixtures of these rooms are in tests/conftest.py; `Desk` and `Stage` in tests/support."""

from tests.support.desk import Desk

__all__ = ["Desk"]
