"""A lost or damaged registry is made again from its audit log, and the damaged one is kept."""

import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mam.broker.errors import Busy, FileRefused
from mam.broker.host import locks
from mam.control_plane.control_root import create
from mam.control_plane.jobs import jobs
from mam.control_plane.jobs.verify import verify
from mam.control_plane.registry import audit, rebuild, transactions
from mam.control_plane.registry.audit import AuditLog
from mam.control_plane.registry.database import NoRegistry, RegistryUnusable
from mam.control_plane.registry.records import RECORDS
from tests.support import MAM
from tests.support.desk import Desk

TABLES = (*(record.table for record in RECORDS), "meta", "events", "audit")


def content(desk: Desk) -> dict[str, list[Any]]:
    with desk.mam.registry.view() as view:
        return {
            table: sorted(view.connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES
        }


def export(desk: Desk) -> None:
    with desk.mam.registry.view() as view:
        AuditLog(desk.mam.layout.audit).export(view)


@pytest.fixture
def busy(desk: Desk) -> Desk:
    """A registry with sessions, an open job, a reported one, an archived one, and dropped rows."""
    for name in ("writer", "second", "third"):
        desk.session(name)
    desk.job("writer", "job-00000001")
    done = desk.job("second", "job-00000002")
    desk.take(done.id, desk.wire(done.id, "started"), desk.report(done))
    away = desk.job("third", "job-00000003")
    desk.take(away.id, desk.wire(away.id, "started"), desk.report(away))
    export(desk)
    jobs.archive(desk.mam, away.id)
    return desk


def lose(desk: Desk) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{desk.mam.layout.database}{suffix}").unlink(missing_ok=True)


def test_a_lost_registry_comes_back_row_by_row_and_event_by_event(busy: Desk) -> None:
    export(busy)
    before = content(busy)
    lose(busy)

    rebuild.rebuild(busy.mam.layout)

    assert content(busy) == before


def test_what_only_the_old_database_held_is_taken_over(busy: Desk) -> None:
    busy.session("newest")
    before = content(busy)

    done = rebuild.rebuild(busy.mam.layout)

    assert done.salvaged > 0
    assert content(busy) == before


def test_signatures_still_verify_and_the_audit_goes_on_behind_a_rebuild(busy: Desk) -> None:
    export(busy)
    lose(busy)
    rebuild.rebuild(busy.mam.layout)

    busy.session("after")
    export(busy)

    with busy.mam.registry.view() as view:
        assert verify(busy.mam.layout, view, "job-00000002").ok
    lines = list(audit.read(busy.mam.layout.audit))
    assert not [line for line in lines if line.damage]
    numbers = [line.entry["a"] for line in lines if "a" in line.entry]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "emptied"])
def test_a_damaged_database_is_refused_then_set_aside_and_made_again(busy: Desk, damage: str) -> None:
    export(busy)
    before = content(busy)
    database = busy.mam.layout.database
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = database.read_bytes()
    kept = {"truncated": whole[: len(whole) // 2], "overwritten": b"\xff" * len(whole), "emptied": b""}[damage]
    database.write_bytes(kept)

    with pytest.raises((RegistryUnusable, NoRegistry)), busy.mam.registry.view() as view:
        view.connection.execute("SELECT count(*) FROM events, audit, jobs").fetchall()
    done = rebuild.rebuild(busy.mam.layout)

    assert [path for path in done.aside if path.read_bytes() == kept]
    assert content(busy) == before


def test_an_emptied_database_is_not_taken_for_one_to_migrate(desk: Desk) -> None:
    desk.mam.layout.database.write_bytes(b"")

    with pytest.raises(RegistryUnusable, match="empty"), desk.mam.registry.view():
        pass


def test_a_flipped_byte_is_named_by_its_line_and_passed_only_when_told(busy: Desk) -> None:
    export(busy)
    log = busy.mam.layout.audit
    lines = log.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"at":1', b'"at":2', 1)
    log.write_bytes(b"".join(lines))
    lose(busy)

    with pytest.raises(rebuild.AuditDamaged, match="line 5"):
        rebuild.rebuild(busy.mam.layout)
    assert not busy.mam.layout.database.exists()
    done = rebuild.rebuild(busy.mam.layout, past_damage=True)

    assert done.damaged_lines == [5]
    assert busy.row("job-00000002").state == "reported"


def test_a_torn_last_line_is_no_damage(busy: Desk) -> None:
    export(busy)
    before = content(busy)
    log = busy.mam.layout.audit
    with log.open("ab") as file:
        file.write(b"0123 {half of a li")
    lose(busy)

    assert rebuild.rebuild(busy.mam.layout).damaged_lines == []
    assert content(busy) == before


def test_nothing_is_rebuilt_under_a_running_monitor(busy: Desk) -> None:
    export(busy)
    before = busy.mam.layout.database.read_bytes()

    with locks.hold(busy.mam.layout.monitor_lock), pytest.raises(rebuild.RebuildRefused, match="monitor runs"):
        rebuild.rebuild(busy.mam.layout)

    assert busy.mam.layout.database.read_bytes() == before


def test_a_rebuild_that_is_killed_half_way_is_simply_done_again(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    export(busy)
    before = content(busy)

    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", full)
        with pytest.raises(OSError, match="no space"):
            rebuild.rebuild(busy.mam.layout)
    assert content(busy) == before

    rebuild.rebuild(busy.mam.layout)
    assert content(busy) == before
    assert not list(busy.mam.layout.mam.glob(".registry.db*"))


@pytest.mark.parametrize("fault", ["rebuild.move:1", "rebuild.move:2", "rebuild.move:3", "rebuild.install:1"])
def test_a_rebuild_that_dies_on_its_last_steps_loses_nothing_that_only_the_old_database_held(
    busy: Desk, fault: str
) -> None:
    with busy.mam.registry.watch().connection:  # keeps the log beside the database, as a killed process leaves it
        busy.session("fourth")
        before = content(busy)
        copy = {path: path.read_bytes() for path in busy.mam.layout.mam.glob("registry.db*")}
    for path, was in copy.items():
        path.write_bytes(was)
    assert {path.name for path in copy} >= {"registry.db", "registry.db-wal"}
    words = [MAM, "registry", "rebuild", "--root", str(busy.mam.layout.root)]

    died = subprocess.run(words, env={**os.environ, "MAM_FAULT": f"{fault}:crash"}, capture_output=True)
    assert died.returncode == -9, died.stderr
    again = subprocess.run(words, capture_output=True)

    assert again.returncode == 0, again.stderr
    assert content(busy) == before
    assert not list(busy.mam.layout.mam.glob(".registry.db*"))


def test_what_is_set_aside_is_the_whole_old_database_with_the_log_beside_it(busy: Desk) -> None:
    export(busy)
    with busy.mam.registry.watch().connection:
        busy.session("fourth")
        before = content(busy)
        copy = {path: path.read_bytes() for path in busy.mam.layout.mam.glob("registry.db*")}
    for path, was in copy.items():
        path.write_bytes(was)

    done = rebuild.rebuild(busy.mam.layout)

    (old,) = (path for path in done.aside if path.suffix == ".db")
    connection = sqlite3.connect(old)
    names = [row[0] for row in connection.execute("SELECT name FROM sessions ORDER BY name")]
    connection.close()
    assert names == sorted(row[0] for row in before["sessions"]) and "fourth" in names


def test_nothing_is_rebuilt_while_somebody_writes(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    export(busy)
    monkeypatch.setattr(transactions, "LOCK_WAIT_S", 0)

    with locks.hold(busy.mam.layout.registry_lock), pytest.raises(Busy):
        rebuild.rebuild(busy.mam.layout)

    assert not list(busy.mam.layout.mam.glob(".registry.db*"))


def test_without_a_log_there_is_nothing_to_rebuild_from(desk: Desk) -> None:
    with pytest.raises(rebuild.RebuildRefused, match="there is no"):
        rebuild.rebuild(desk.mam.layout)


def test_a_log_without_a_line_is_not_taken_for_a_registry(desk: Desk) -> None:
    desk.mam.layout.audit.write_text("", "utf-8")
    before = content(desk)

    with pytest.raises(rebuild.RebuildRefused, match="empty"):
        rebuild.rebuild(desk.mam.layout)
    assert content(desk) == before


def test_init_does_not_begin_anew_over_a_lost_registry(busy: Desk) -> None:
    export(busy)
    lose(busy)

    with pytest.raises(NoRegistry) as lost, busy.mam.registry.view():
        pass
    assert "mam registry rebuild" in lost.value.remedy and "mam init" not in lost.value.remedy
    with pytest.raises(FileRefused, match="lost its registry"):
        create.make(busy.mam.layout, busy.mam.settings.environ, in_git=False)
    assert not busy.mam.layout.database.exists()


def test_a_damaged_line_takes_no_other_job_away(desk: Desk) -> None:
    desk.session()
    done = desk.job("writer", "job-00000001")
    desk.take(done.id, desk.report(done))
    desk.job("writer", "job-00000002")
    export(desk)
    path = desk.mam.layout.audit
    ended = b'"k":"job-00000001"', b"reported"
    lines = [b"x\n" if all(words in line for words in ended) else line for line in path.read_bytes().splitlines(True)]
    path.write_bytes(b"".join(lines))
    lose(desk)

    rebuild.rebuild(desk.mam.layout, past_damage=True)

    with desk.mam.registry.view() as view:
        assert {job.id: job.state for job in view.jobs()} == {"job-00000001": "lost", "job-00000002": "queued"}
