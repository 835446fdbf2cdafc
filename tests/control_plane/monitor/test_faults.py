"""Scorecard 12 and 13: the monitor dies, or its disk refuses, at each durable step; a job is done once all the same."""

import pytest

from tests.support import Root
from tests.support.faults import refusals

MONITOR = ["registry.commit", "registry.committed", "bus.publish", "audit.append", "projection.rename", "json.rename"]


@pytest.fixture(scope="module")
def manned(shared_root: Root) -> Root:
    """The module's control root with one agent that reports at once."""
    shared_root.agent()
    return shared_root


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", MONITOR)
def test_a_monitor_that_dies_anywhere_is_replaced_and_the_job_is_done_once(manned: Root, point: str, nth: int) -> None:
    manned.mam("down")
    manned.mam("up", env={"MAM_FAULT": f"monitor@{point}:{nth}:crash"})

    job = manned.delegate()
    done = manned.mam("job", "wait", job, "--timeout", "60", "--json")

    assert done.code == 0, done.err
    kinds = [event["kind"] for event in manned.events(f"jobs/{job}")]
    assert sorted(kinds) == ["progress", "report", "started"]


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(MONITOR))
def test_a_monitor_whose_disk_refuses_once_goes_on(manned: Root, point: str, action: str) -> None:
    manned.mam("down")
    manned.mam("up", env={"MAM_FAULT": f"monitor@{point}:2:{action}"})

    job = manned.delegate()

    assert manned.mam("job", "wait", job, "--timeout", "60").code == 0
