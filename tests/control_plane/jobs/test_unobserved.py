"""Time in which nobody looked: what is one, what survives a restart, and what a clock that was set does to it."""

from pathlib import Path

import pytest

from mam.control_plane.jobs.unobserved import LATE_MS, UnobservedTime, lasted

HOUR = 3_600_000


def test_only_looks_that_lie_too_far_apart_have_a_gap_between_them(tmp_path: Path) -> None:
    gaps = UnobservedTime(tmp_path / "gaps.json")

    assert [gaps.look(at) for at in (0, 1000, 1000 + LATE_MS)] == [None, None, None], "a first look has none before it"
    assert gaps.look(1000 + 2 * LATE_MS + 1) == (1000 + LATE_MS, 1000 + 2 * LATE_MS + 1)


def test_gaps_are_known_to_the_next_monitor(tmp_path: Path) -> None:
    first = UnobservedTime(tmp_path / "gaps.json")
    first.look(0)
    first.look(HOUR)

    assert UnobservedTime(tmp_path / "gaps.json").found == [(0, HOUR)]


@pytest.mark.parametrize("torn", ["", "{", '{"gaps": [[1]]}', '{"gaps": [["a", "b"]]}', '{"gaps": 1}'])
def test_a_torn_file_holds_no_monitor_up(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "gaps.json"
    path.write_text(torn, "utf-8")

    assert UnobservedTime(path).found == []


def test_a_clock_that_is_set_back_takes_the_gap_along_that_it_had_made(tmp_path: Path) -> None:
    gaps = UnobservedTime(tmp_path / "gaps.json")
    for at in (0, HOUR, 1000):  # an hour ahead by mistake, and back
        gaps.look(at)

    assert gaps.found == [] == UnobservedTime(tmp_path / "gaps.json").found
    assert lasted(0, HOUR, gaps.found) == HOUR, "that hour counts when it comes"


def test_only_what_lies_within_the_time_is_taken_off() -> None:
    gaps = [(0, 10), (20, 30), (45, 90)]

    assert lasted(5, 50, gaps) == 45 - 5 - 10 - 5
