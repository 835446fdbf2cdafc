"""A monitor that dies between the files of its broker is followed by one that runs."""

import pytest

from tests.support import Root


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_monitor_that_dies_between_the_files_of_its_broker_is_followed_by_one_that_runs(root: Root, nth: int) -> None:
    root.mam("up", env={"MAM_FAULT": f"monitor@private.rename:{nth}:crash"})

    assert root.mam("up").code == 0
    root.agent()
    assert root.mam("job", "wait", root.delegate()).code == 0
