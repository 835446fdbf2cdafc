"""Scorecard 14: an audit log that was torn by a crash goes on, and one that was changed says in which line."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.control_plane.registry import audit
from mam.control_plane.registry.audit import AuditLog
from tests.support import size
from tests.support.desk import Desk

Figure = Callable[[str, float], None]
JOB = "job-00000001"


@pytest.fixture
def log(tmp_path: Path) -> tuple[Desk, Path]:
    """A desk with some history, and its audit log."""
    desk = Desk(tmp_path / "root")
    desk.session()
    job = desk.job()
    notes = [desk.wire(JOB, "progress", {"note": f"näher {n}"}) for n in range(10)]
    desk.take(JOB, desk.wire(JOB, "started"), *notes, desk.report(job))
    export(desk, tmp_path / "audit.jsonl")
    return desk, tmp_path / "audit.jsonl"


def export(desk: Desk, path: Path) -> None:
    with desk.mam.registry.view() as view:
        AuditLog(path).export(view)


@pytest.mark.scorecard(14)
def test_a_log_torn_at_any_byte_of_its_last_lines_is_made_whole(log: tuple[Desk, Path], figure: Figure) -> None:
    desk, path = log
    whole = path.read_bytes()
    last_two = sum(len(line) for line in whole.splitlines(keepends=True)[-2:])

    cuts = sorted({*range(len(whole) - last_two, len(whole), size(7, 1)), len(whole) - 1})  # the last line break alone
    for cut in cuts:
        path.write_bytes(whole[:cut])
        export(desk, path)
        assert path.read_bytes() == whole, f"torn after {cut} bytes"
    assert not list(path.parent.glob("audit.jsonl.damaged-*"))  # torn is not edited

    figure("torn", len(cuts))


@pytest.mark.scorecard(14)
def test_a_flipped_bit_is_found_in_its_line_wherever_it_is(
    log: tuple[Desk, Path], dice: random.Random, figure: Figure
) -> None:
    _, path = log
    whole = path.read_bytes()
    places = range(len(whole) - 1)  # without the last line break, the log is torn and not changed
    chosen = dice.sample(places, min(len(places), size(500, 5000)))

    for place in chosen:
        changed = bytearray(whole)
        changed[place] ^= 1 << dice.randrange(8)
        path.write_bytes(changed)
        damaged = [line.number for line in audit.read(path) if line.damage]
        assert damaged[:1] == [whole[:place].count(b"\n") + 1], f"byte {place}"

    figure("flips", len(chosen))
    figure("located", len(chosen))
