"""
Every test starts in an empty home, without a trace of the control plane that it may itself be run by.

The fixtures below begin what many rooms need; the classes that they return are in tests/support.
"""

import json
import os
import random
import secrets
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mam.broker.errors import MamError
from mam.control_plane.sessions import lifecycle
from tests.proof import pytest_configure as pytest_configure
from tests.support import FIGURES, Root, until
from tests.support.desk import Desk
from tests.support.panes import Panes
from tests.support.road import Road
from tests.support.services import need
from tests.support.stage import REVIEWERS, Stage

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # started in the background of a script: what we start inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)

MamError.strict = True  # an error that is raised with a missing or an unknown keyword is a TypeError here

AMBIENT = ("WORKSPACE_ROOT", "AGENT_SESSIONS_YAML", "DELEGATE_JOB_LOGS_DIR", "TMUX", "TMUX_PANE", "CLAUDECODE")


STARTS_PROCESSES = {"make_root", "shared_root", "built", "embedded", "panes", "tmux_panes", "headless_panes"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for a fixture which starts processes is marked `end_to_end`; others say so themselves."""
    for item in items:
        if STARTS_PROCESSES & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("live"):
            item.add_marker(pytest.mark.end_to_end)


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


@pytest.fixture
def needs() -> Callable[[str], str]:
    """Asks for a program: a skip at home where it is missing, a failure in CI."""
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


@pytest.fixture
def tmux_root(make_root: Callable[..., Root], needs: Callable[[str], str]) -> Root:
    """One control root whose agents live in a real tmux."""
    needs("tmux")
    return make_root(mux="tmux")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A control root without processes, and a hand that writes messages."""
    return Desk(tmp_path / "root")


@pytest.fixture
def panes(tmp_path: Path, needs: Callable[[str], str]) -> Iterator[Panes]:
    """A tmux server of this test's own."""
    needs("tmux")
    folder = tmp_path / "panes"
    folder.mkdir()
    made = Panes("tmux", folder)
    yield made
    made.clear()


@contextmanager
def kept_root(folder: Path) -> Generator[Root]:
    """A headless control root, made below *folder* with a home of its own, that several tests use; ended at the end."""
    with pytest.MonkeyPatch.context() as patch:
        scrub(patch, folder / "home")
        root = Root(folder / "repo", mux="headless")
        root.env["HOME"] = str(folder / "home")
        try:
            root.make()
            yield root
        finally:
            root.clean()


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """One control root, with its monitor running, for all tests of a module that have agents of their own."""
    with kept_root(tmp_path_factory.mktemp("shared")) as root:
        assert root.mam("up").code == 0
        yield root


@pytest.fixture
def agent_name(shared_root: Root) -> Iterator[str]:
    """The name of an agent that this test alone makes in the shared control root; it is ended afterwards."""
    name = f"agent-{secrets.token_hex(3)}"
    yield name
    if shared_root.session(name) is not None:
        lifecycle.stop(shared_root.parts, name, force=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One control root with three reviewers for all loop tests of a module: what a test does is its loop's alone."""
    with kept_root(tmp_path_factory.mktemp("stage")) as root:
        made = Stage(root)
        for name in REVIEWERS:
            made.agent(name)
        yield made


@pytest.fixture
def stage(built: Stage) -> Iterator[Stage]:
    """The module's stage, with all of its reviewers ready."""
    yield built
    built.quiet()


@pytest.fixture
def road(root: Root) -> Iterator[Road]:
    """One job whose producer, carrier, broker and monitor run, each a process that can be killed."""
    assert root.mam("up").code == 0
    made = Road(root)
    until(lambda: made.root.session("writer").presence == "online", what="the carrier is connected")
    try:
        yield made
    finally:
        made.end()
        with root.registry.transaction() as tx:
            row = tx.session("writer")
            assert row is not None
            tx.put(replace(row, status="stopped", pid=None))


@pytest.fixture
def dice() -> random.Random:
    """The same throws in every run."""
    return random.Random(20261130)


@pytest.fixture(autouse=True)
def figure(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """
    Notes what a test measured for the row of the scorecard that it is marked with, in the file MAM_TEST_FIGURES.

    Each test of a row counts as one `cases` by itself. `tests/scorecard.py` makes the table of it.
    """
    mark = request.node.get_closest_marker("scorecard")

    def note(name: str, value: float) -> None:
        if FIGURES and mark is not None:
            line = json.dumps({"row": mark.args[0], "name": name, "value": value}) + "\n"
            with open(FIGURES, "a", encoding="utf-8") as file:
                file.write(line)

    note("cases", 1)
    return note
