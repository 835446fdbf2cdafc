"""Multiplexers under test, each with a server of its own that ends with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.panes import Panes


def _panes(kind: str, tmp_path: Path) -> Iterator[Panes]:
    folder = tmp_path / "panes"
    folder.mkdir()
    panes = Panes(kind, folder)
    yield panes
    panes.clear()


@pytest.fixture(params=["tmux", "headless"])
def panes(request: pytest.FixtureRequest, tmp_path: Path, needs: Callable[[str], str]) -> Iterator[Panes]:
    """Each kind of multiplexer in turn."""
    if request.param == "tmux":
        needs("tmux")
    yield from _panes(request.param, tmp_path)


@pytest.fixture
def tmux_panes(tmp_path: Path, needs: Callable[[str], str]) -> Iterator[Panes]:
    needs("tmux")
    yield from _panes("tmux", tmp_path)


@pytest.fixture
def headless_panes(tmp_path: Path) -> Iterator[Panes]:
    yield from _panes("headless", tmp_path)
