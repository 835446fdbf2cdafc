"""Every test starts in an empty home, without a trace of the control plane that it may itself be run by."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.support import FIGURES, Root

AMBIENT = ("WORKSPACE_ROOT", "AGENT_SESSIONS_YAML", "DELEGATE_JOB_LOGS_DIR", "TMUX", "TMUX_PANE", "CLAUDECODE")


@pytest.fixture(autouse=True)
def scrubbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No override, session or home of the caller's reaches a test (M105, M106)."""
    scrub(monkeypatch, tmp_path / "home")


def scrub(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """What every test begins with; fixtures that live longer than one test call it themselves."""
    for name in list(os.environ):
        if name in AMBIENT or name.startswith(("MAM_", "GIT_", "GROK_", "XAI_")):
            monkeypatch.delenv(name)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


def need(program: str) -> None:
    """Skip at home where *program* is missing; in CI it is a failure."""
    if shutil.which(program) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is missing in CI")
        pytest.skip(f"{program} is not installed")


@pytest.fixture
def needs() -> Callable[[str], None]:
    return need


@pytest.fixture
def make_root(tmp_path: Path) -> Generator[Callable[..., Root]]:
    """Makes control roots in real repositories, and ends everything of theirs afterwards."""
    made: list[Root] = []

    def make(name: str = "repo", *, mux: str = "headless") -> Root:
        root = Root(tmp_path / name, mux=mux)
        made.append(root)
        root.make()
        return root

    yield make
    for root in made:
        root.clean()


@pytest.fixture
def root(make_root: Callable[..., Root]) -> Iterator[Root]:
    """One control root whose agents run headless."""
    yield make_root()


@pytest.fixture(autouse=True)
def figure(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """
    Notes what a test measured for the row of the scorecard that it is marked with, in the file MAM_TEST_FIGURES.

    Each test of a row counts as one `cases` by itself. `tests/reliability/table.py` makes the table of it.
    """
    mark = request.node.get_closest_marker("scorecard")

    def note(name: str, value: float) -> None:
        if FIGURES and mark is not None:
            line = json.dumps({"row": mark.args[0], "name": name, "value": value}) + "\n"
            with open(FIGURES, "a", encoding="utf-8") as file:
                file.write(line)

    note("cases", 1)
    return note
