"""The short version of soak.py: a minute of work while every part is killed −9, by a fixed seed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import Root, soak
from tests.support.soaking import scripts, strikes

pytestmark = pytest.mark.slow

SHORT = soak.Wish(seed=2058, length_s=18.0, agents=4, jobs=24, strikes_a_minute=45.0, drain_s=100.0)


@pytest.fixture
def busy_root(make_root: Callable[..., Root], needs: Callable[[str], str]) -> Iterator[Root]:
    needs("tmux")
    root = make_root()
    try:
        yield root
    finally:
        soak.clean(root)


@pytest.mark.timeout(400)  # one that fails says why before that
def test_a_soak_with_every_part_killed_loses_and_doubles_nothing_and_leaves_nothing_stuck(busy_root: Root) -> None:
    soaked = soak.soak(busy_root, SHORT)
    soak.note_figures(soaked)

    assert soaked.problems == [], soaked.text()
    assert soaked.jobs.total() > SHORT.agents, soaked.text()
    assert {"broker", "monitor"} <= soaked.strikes.keys(), soaked.text()
    for trend in soaked.trends:  # bounds that only a runaway passes; the long soak prints the trend itself
        assert trend.rss_mb[1] < trend.rss_mb[0] + 100, trend.text()
        assert trend.open_files[1] < trend.open_files[0] + 50, trend.text()


def test_the_same_seed_gives_the_same_jobs_and_the_same_strikes(tmp_path: Path) -> None:
    def planned(seed: int) -> list[object]:
        return [strikes.plan(seed, 600, 10, 8), [scripts.plan(seed, n, tmp_path).brief for n in range(50)]]

    assert planned(1) == planned(1)
    assert planned(1) != planned(2)


def test_the_short_soak_strikes_every_part() -> None:
    planned = strikes.plan(SHORT.seed, SHORT.length_s, SHORT.strikes_a_minute, SHORT.agents)

    assert {strike.what for strike in planned} == strikes.WEIGHTS.keys()
