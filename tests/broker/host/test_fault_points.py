import pytest

from mam.broker.errors import Usage
from mam.broker.host import fault_points


@pytest.mark.parametrize("spec", ["x", "a:b:crash", "a:1:explode", "a:1"])
def test_a_fault_that_cannot_be_read_is_refused(spec: str) -> None:
    with pytest.raises(Usage):
        fault_points.arm(spec, "cli")


def test_a_point_strikes_once_at_its_pass_and_only_in_its_role() -> None:
    fault_points.arm("cli@a:2:EIO,monitor@b:1:EIO", "cli")
    fault_points.point("a")
    fault_points.point("b")
    with pytest.raises(OSError, match="fault point a"):
        fault_points.point("a")
    fault_points.point("a")
    fault_points.arm("", "cli")
