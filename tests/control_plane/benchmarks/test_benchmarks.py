"""
Every benchmark at a small size: it still runs, and what it measures still happens.

No time is judged here; a benchmark itself raises NotMeasured where its figure would stand for nothing.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mam.control_plane.benchmarks import delivery, events, look, loop, suite, verbs, writers
from mam.control_plane.benchmarks.suite import Figure, NotMeasured
from mam.control_plane.cli import bench

IDLE_S = 0.2


SMALL: dict[str, Callable[[], list[Figure]]] = {
    "cli": lambda: verbs.verbs(runs=2, agents=3, jobs=20),
    "events": lambda: events.events(count=300),
    "deliver": lambda: delivery.delivery(count=2, mux="headless", idle_s=IDLE_S),
    "registry": lambda: writers.writers(count=3, updates=5),
    "look": lambda: look.look(agents=3, jobs=20, mux="headless", idle_s=IDLE_S),
    "loop": lambda: loop.loop(commits=3, reviewers=2, rounds=1),
}
LINES = {"cli": 3, "events": 1, "deliver": 3, "registry": 1, "look": 2, "loop": 4}


def test_every_benchmark_has_a_small_size_here() -> None:
    assert list(SMALL) == list(bench.BENCHMARKS)


@pytest.mark.live
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_measures_something_and_says_all_of_its_lines(name: str) -> None:
    figures = SMALL[name]()

    assert len(figures) == LINES[name]
    assert all(figure.what and figure.budget and any(digit.isdigit() for digit in figure.value) for figure in figures)


@pytest.mark.live
def test_a_look_over_real_panes_finds_each_agent_in_its_own(needs: Callable[[str], str]) -> None:
    needs("tmux")
    (one_look, _) = look.look(agents=3, jobs=20, mux="tmux", idle_s=IDLE_S)

    assert ", 0 differences, " in one_look.value


def test_agents_whose_panes_are_not_their_own_are_no_measurement() -> None:
    with suite.place() as mam:
        suite.fill(mam, 2, 0)
        with look._panes(mam, 2, "headless"):
            with mam.registry.transaction() as tx:
                first, second = tx.sessions()
                tx.put(replace(second, pane=first.pane))

            with pytest.raises(NotMeasured, match="1 panes of 2"):
                look._one_look(mam, 2, 0)
