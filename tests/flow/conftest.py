"""One control root with three reviewers for all loop tests of a module: what a test does is its loop's alone."""

from collections.abc import Iterator

import pytest

from tests.conftest import scrub
from tests.flow.stage import REVIEWERS, Stage
from tests.support import Root


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with pytest.MonkeyPatch.context() as patch:
        scrub(patch, folder / "home")
        root = Root(folder / "repo", mux="headless")
        root.env["HOME"] = str(folder / "home")
        try:
            root.make()
            made = Stage(root)
            for name in REVIEWERS:
                made.agent(name)
            yield made
        finally:
            root.clean()


@pytest.fixture
def stage(built: Stage) -> Iterator[Stage]:
    """The module's stage, with everybody ready."""
    yield built
    built.quiet()
