"""Multiplexers under test, each with a server of its own that ends with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.panes import Desk


def _desk(kind: str, tmp_path: Path) -> Iterator[Desk]:
    folder = tmp_path / "desk"
    folder.mkdir()
    desk = Desk(kind, folder)
    yield desk
    desk.clear()


@pytest.fixture(params=["tmux", "headless"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, needs: Callable[[str], None]) -> Iterator[Desk]:
    """Each kind of multiplexer in turn."""
    if request.param == "tmux":
        needs("tmux")
    yield from _desk(request.param, tmp_path)


@pytest.fixture
def tmux_desk(tmp_path: Path, needs: Callable[[str], None]) -> Iterator[Desk]:
    needs("tmux")
    yield from _desk("tmux", tmp_path)


@pytest.fixture
def headless_desk(tmp_path: Path) -> Iterator[Desk]:
    yield from _desk("headless", tmp_path)
