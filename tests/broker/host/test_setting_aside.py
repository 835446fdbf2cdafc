"""What cannot be set aside stays where it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.broker import spool
from mam.broker.host import fault_points, rotated_log


@pytest.fixture
def armed() -> Iterator[None]:
    """Faults of this process, gone afterwards."""
    yield
    fault_points.arm("", "test")


def test_what_cannot_be_set_aside_stays_where_it_is(tmp_path: Path, armed: None) -> None:
    item, log = tmp_path / "outbox" / "1-a.event", tmp_path / "log"
    item.parent.mkdir()
    item.write_bytes(b"x")
    log.write_bytes(b"x" * 10)
    entry = spool.SpoolEntry(item, "a", beat=False)

    for name, what, where, act in (
        ("spool.bury", item, tmp_path / "dead" / item.name, lambda: spool.bury(entry, tmp_path / "dead")),
        ("log.aside", log, tmp_path / "log.1", lambda: rotated_log.set_aside(log, limit_bytes=1)),
    ):
        fault_points.arm(f"{name}:1:ENOSPC", "test")
        with pytest.raises(OSError, match="No space"):
            act()
        assert what.exists() and not where.exists()
        act()
        assert where.exists() and not what.exists()
