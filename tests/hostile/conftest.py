"""A control root without processes, and multiplexer servers of a test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.panes import Desk as Panes
from tests.control_plane.conftest import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "root")


@pytest.fixture
def panes(tmp_path: Path, needs: Callable[[str], None]) -> Iterator[Panes]:
    """A tmux server of this test's own."""
    needs("tmux")
    folder = tmp_path / "desk"
    folder.mkdir()
    made = Panes("tmux", folder)
    yield made
    made.clear()
