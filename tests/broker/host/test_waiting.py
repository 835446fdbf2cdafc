"""Waiting for a condition, and the pauses between tries."""

from collections.abc import Iterator

import pytest

from mam.broker.host import waiting
from mam.broker.host.waiting import pause_s, wait_until


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    yield clock


def test_the_first_true_answer_comes_back_and_nothing_is_asked_after_it(clock: Clock) -> None:
    answers = iter([None, 0, "", "there", "later"])

    assert wait_until(lambda: next(answers), 10, every_s=0.5) == "there"
    assert (clock.slept, next(answers)) == ([0.5, 0.5, 0.5], "later")


def test_what_is_true_already_is_not_waited_for(clock: Clock) -> None:
    assert wait_until(lambda: True, 10) is True
    assert clock.slept == []


@pytest.mark.parametrize("wait_s", [0, -1])
def test_without_time_the_condition_is_asked_once(clock: Clock, wait_s: float) -> None:
    asked: list[float] = []

    assert wait_until(lambda: asked.append(clock.now), wait_s) is None
    assert (len(asked), clock.slept) == (1, [])


def test_it_is_asked_a_last_time_when_the_time_is_over_and_no_later(clock: Clock) -> None:
    asked: list[float] = []

    assert wait_until(lambda: asked.append(clock.now), 1.0, every_s=0.4) is None
    assert asked == pytest.approx([1000.0, 1000.4, 1000.8, 1001.0])


def test_what_the_condition_raises_ends_the_waiting(clock: Clock) -> None:
    def fails() -> bool:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        wait_until(fails, 10)
    assert clock.slept == []


def test_pauses_double_up_to_the_longest_one_however_many_tries_there_were() -> None:
    assert [pause_s(tries, first_s=1.0, last_s=15.0) for tries in range(1, 7)] == [1, 2, 4, 8, 15, 15]
    assert pause_s(100_000, first_s=1.0, last_s=15.0) == 15.0
    assert pause_s(0, first_s=1.0, last_s=15.0) == 1.0
