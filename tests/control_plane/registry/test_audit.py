import json
import resource
from pathlib import Path

import pytest

from mam.control_plane.registry import audit
from mam.control_plane.registry.audit import AuditLog
from tests.support.desk import Desk


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def export(desk: Desk, path: Path) -> AuditLog:
    log = AuditLog(path)
    with desk.mam.registry.view() as view:
        log.export(view)
    return log


def chain_holds(path: Path) -> bool:
    before = "0" * 64
    for line in lines(path):
        chain, _, text = line.partition(" ")
        if audit.link(before, text) != chain:
            return False
        before = chain
    return True


def test_every_change_and_every_event_is_one_chained_line(desk: Desk, tmp_path: Path) -> None:
    desk.session()
    desk.job()
    desk.take("job-00000001", desk.wire("job-00000001", "started"))
    path = tmp_path / "audit.jsonl"

    export(desk, path)

    entries = [json.loads(line.partition(" ")[2]) for line in lines(path)]
    assert {"sessions", "jobs", "attempts", "outbox", "meta"} <= {e["t"] for e in entries if "t" in e}
    assert [e["event"]["kind"] for e in entries if "event" in e] == ["started"]
    assert chain_holds(path)
    assert path.stat().st_mode & 0o077 == 0


def test_an_export_goes_on_where_the_last_one_ended(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    export(desk, path)
    before = lines(path)
    desk.session()

    export(desk, path)

    assert lines(path)[: len(before)] == before
    assert len(lines(path)) == len(before) + 1
    assert chain_holds(path)


def test_a_torn_last_line_is_cut_off_and_written_anew(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    desk.session()
    export(desk, path)
    whole = lines(path)
    path.write_bytes(path.read_bytes()[:-17])

    export(desk, path)

    assert lines(path) == whole


def test_a_changed_byte_breaks_the_chain_from_its_line_on(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    desk.session()
    export(desk, path)
    text = path.read_text("utf-8")

    path.write_text(text.replace('"creator', '"creatar', 1), "utf-8")

    assert text != path.read_text("utf-8") and not chain_holds(path)


def test_a_line_that_is_none_is_kept_aside_before_the_log_goes_on(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    desk.session()
    export(desk, path)
    whole = lines(path)
    path.write_text("\n".join([whole[0], "somebody was here", *whole[1:]]) + "\n", "utf-8")

    export(desk, path)

    assert lines(path) == whole
    assert "somebody was here" in next(tmp_path.glob("audit.jsonl.damaged-*")).read_text("utf-8")


def test_a_disk_that_takes_half_a_line_leaves_none_and_the_next_export_goes_on(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = export(desk, path)
    before = path.read_bytes()
    desk.session()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)

    with desk.mam.registry.view() as view:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, usual[1]))
        try:
            with pytest.raises(OSError, match="could not be written whole"):
                log.export(view)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert path.read_bytes() == before
        log.export(view)

    assert len(lines(path)) == before.count(b"\n") + 1 and chain_holds(path)


def test_a_noted_position_that_is_not_this_logs_own_is_not_believed(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    export(desk, path)
    known = lines(path)
    noted = {"a": 10**6, "e": 0, "chain": "f" * 64, "end": path.stat().st_size}
    audit.position_file(path).write_text(json.dumps(noted), "utf-8")
    desk.session()

    export(desk, path)

    assert len(lines(path)) == len(known) + 1 and chain_holds(path)
