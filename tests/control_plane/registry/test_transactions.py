import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from mam.broker.errors import Busy
from mam.broker.host import locks
from mam.control_plane.registry import database, migrations, transactions
from mam.control_plane.registry.database import NoRegistry, RegistryUnusable, SchemaMismatch
from mam.control_plane.registry.records import Job, Session
from mam.control_plane.registry.transactions import Registry
from tests.support import until
from tests.support.desk import Desk

WRITER = """
import sys
import threading
from pathlib import Path
from mam.control_plane.registry.transactions import Registry
folder, name, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
registry = Registry(folder / "registry.db", folder / "registry.lock", by=name)
for n in range(times):
    with registry.transaction() as tx:
        seen = int(tx.meta("counter") or 0)
        tx.set_meta("counter", str(seen + 1))
        tx.set_meta(f"{name}-{n}", "x")
    print(n, flush=True)
"""


def writer(desk: Desk, name: str, times: int) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", WRITER, str(desk.mam.layout.mam), name, str(times)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_twelve_writers_at_once_lose_no_update(desk: Desk) -> None:
    children = [writer(desk, f"w{n}", 20) for n in range(12)]

    assert [child.wait(120) for child in children] == [0] * 12
    with desk.mam.registry.view() as view:
        assert view.meta("counter") == "240"


@pytest.mark.scorecard(12)
def test_a_killed_writer_loses_nothing_that_it_was_told_is_kept(desk: Desk) -> None:
    acknowledged = 0
    for n in range(5):
        child = writer(desk, f"k{n}", 10_000)
        assert child.stdout is not None
        for _ in range(7):
            acknowledged = acknowledged + 1 if child.stdout.readline() else acknowledged
        child.send_signal(signal.SIGKILL)
        acknowledged += len(child.stdout.read().splitlines())
        child.wait()

    with desk.mam.registry.view() as view:
        kept = int(view.meta("counter") or 0)
        assert view.connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert acknowledged <= kept <= acknowledged + 5


def test_a_raise_inside_a_transaction_leaves_everything_as_it_was(desk: Desk) -> None:
    with pytest.raises(ValueError, match="stop"), desk.mam.registry.transaction() as tx:
        tx.set_meta("a", "1")
        raise ValueError("stop")

    with desk.mam.registry.view() as view:
        assert view.meta("a") is None
        assert view.connection.execute("SELECT count(*) FROM audit WHERE key = 'a'").fetchone() == (0,)


def test_the_database_itself_refuses_a_second_open_job_of_a_session(desk: Desk) -> None:
    desk.session()
    job = desk.job()

    with pytest.raises(sqlite3.IntegrityError), desk.mam.registry.transaction() as tx:
        tx.connection.execute(
            "INSERT INTO jobs SELECT 'job-copy0001', " + _columns() + " FROM jobs WHERE id = ?", (job.id,)
        )


def _columns() -> str:
    return ", ".join(name for name in Job.columns() if name != "id")


def test_a_reader_cannot_write(desk: Desk) -> None:
    with pytest.raises(RegistryUnusable, match="readonly"), desk.mam.registry.view() as view:
        view.connection.execute("INSERT INTO meta VALUES ('a', 'b')")


def test_the_audit_replayed_gives_the_same_rows(desk: Desk) -> None:
    desk.session()
    desk.session("second")
    desk.job()
    with desk.mam.registry.transaction() as tx:
        gone = tx.session("second")
        assert gone is not None
        tx.drop(gone)

    with desk.mam.registry.view() as view:
        replayed: dict[str, dict[str, object]] = {}
        for key, row in view.connection.execute("SELECT key, row FROM audit WHERE tbl = 'sessions' ORDER BY seq"):
            if row is None:
                del replayed[key]
            else:
                replayed[key] = json.loads(row)
        assert {name: Session(**row) for name, row in replayed.items()} == {s.name: s for s in view.sessions()}  # type: ignore[arg-type]


def test_a_savepoint_that_fails_takes_nothing_with_it(desk: Desk) -> None:
    with desk.mam.registry.transaction() as tx:
        tx.set_meta("before", "1")
        with pytest.raises(ValueError, match="bad"), tx.savepoint():
            tx.set_meta("inside", "1")
            raise ValueError("bad")
        tx.set_meta("behind", "1")

    with desk.mam.registry.view() as view:
        assert [view.meta(name) for name in ("before", "inside", "behind")] == ["1", None, "1"]


def test_a_row_that_a_savepoint_took_back_is_read_as_it_was(desk: Desk) -> None:
    desk.session("writer", role="creator")
    with desk.mam.registry.transaction() as tx:
        before = tx.session("writer")
        assert before is not None
        with pytest.raises(ValueError, match="bad"), tx.savepoint():
            tx.put(replace(before, role="reviewer"))
            assert tx.session("writer") != before
            raise ValueError("bad")
        assert tx.session("writer") == before


def test_a_lock_that_is_held_for_too_long_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "LOCK_WAIT_S", 0.05)

    with desk.mam.registry.locked(), pytest.raises(Busy) as caught, desk.mam.registry.transaction():
        pass
    assert caught.value.exit_code == 75


def test_a_registry_of_a_newer_version_is_refused_with_the_way_out(desk: Desk) -> None:
    with sqlite3.connect(desk.mam.layout.database) as connection:
        connection.execute(f"PRAGMA user_version = {migrations.VERSION + 1}")

    with pytest.raises(SchemaMismatch) as caught, desk.mam.registry.view():
        pass
    assert caught.value.exit_code == 75 and "upgrade" in caught.value.remedy


def test_an_older_registry_is_brought_up_after_a_backup(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.session()
    path, backups = desk.mam.layout.database, desk.mam.layout.mam / "backups"
    newer = (*migrations.MIGRATIONS, migrations.Migration("CREATE TABLE added (name TEXT PRIMARY KEY) STRICT;"))
    monkeypatch.setattr(migrations, "MIGRATIONS", newer)
    monkeypatch.setattr(migrations, "VERSION", len(newer))

    assert database.migrate(path, backups)
    assert not database.migrate(path, backups)
    assert len(list(backups.glob(f"registry-schema{len(newer) - 1}-*.db"))) == 1
    with desk.mam.registry.view() as view:
        assert [session.name for session in view.sessions()] == ["writer"]
        assert view.connection.execute("SELECT * FROM added").fetchall() == []


def test_garbage_in_place_of_the_database_is_a_typed_error(desk: Desk) -> None:
    desk.mam.layout.database.write_bytes(b"not a database at all" * 100)

    with pytest.raises(RegistryUnusable), desk.mam.registry.view():
        pass
    with pytest.raises(RegistryUnusable), desk.mam.registry.transaction():
        pass


def test_no_registry_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(NoRegistry), Registry(tmp_path / "registry.db", tmp_path / "lock", by="test").view():
        pass


def test_a_backup_is_whole_private_and_never_replaces_a_file(desk: Desk, tmp_path: Path) -> None:
    desk.session()
    target = tmp_path / "copy.db"

    desk.mam.registry.backup(target)

    assert target.stat().st_mode & 0o777 == 0o600
    with Registry(target, tmp_path / "lock", by="test").view() as view:
        assert [session.name for session in view.sessions()] == ["writer"]
    with pytest.raises(RegistryUnusable):
        desk.mam.registry.backup(target)


def test_two_inits_at_once_agree_on_one_fingerprint(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    program = (
        "import sys; from pathlib import Path; from mam.control_plane.control_root import create as root;"
        "from mam.control_plane.config import layout as layouts; from mam.control_plane.config import settings as c;"
        "p = Path(sys.argv[1]); s = c.Settings({}, {}, p); root.make(layouts.layout(s, str(p)), {}, in_git=False)"
    )
    children = [subprocess.Popen([sys.executable, "-c", program, str(folder)]) for _ in range(6)]

    assert [child.wait(120) for child in children] == [0] * 6
    connection = sqlite3.connect(folder / ".mam" / "registry.db")
    assert connection.execute("SELECT count(*) FROM meta WHERE name = 'fingerprint'").fetchone() == (1,)
    connection.close()


def test_a_watching_view_sees_what_others_commit(desk: Desk) -> None:
    watch = desk.mam.registry.watch()
    before = watch.data_version()

    desk.session()

    until(lambda: watch.data_version() != before)
    assert [session.name for session in watch.sessions()] == ["writer"]
    watch.connection.close()


def test_files_of_the_control_root_are_private(desk: Desk) -> None:
    assert desk.mam.layout.mam.stat().st_mode & 0o777 == 0o700
    for name in ("registry.db", "secrets/control.key"):
        assert os.stat(desk.mam.layout.mam / name).st_mode & 0o077 == 0


def test_asking_for_a_lock_that_is_held_leaves_no_thread_behind(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locks.hold(path):
        before = threading.active_count()
        for _ in range(3):
            with pytest.raises(Busy), locks.hold(path, wait_s=0):
                pass
        assert threading.active_count() == before
