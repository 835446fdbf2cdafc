"""What later versions make of rows is audited, and a rebuild makes the same of older lines of the log."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.jobs import jobs
from mam.control_plane.registry import audit, database, migrations, rebuild, schema
from mam.control_plane.registry.audit import AuditLog
from mam.control_plane.registry.database import SchemaMismatch
from mam.control_plane.registry.migrations import Migration
from mam.control_plane.registry.records import RECORDS, Finding, Question
from tests.control_plane.registry import later
from tests.support.desk import Desk

Content = dict[str, list[Any]]
NOW = migrations.VERSION


@pytest.fixture
def busy(desk: Desk) -> Desk:
    """A registry of this version with jobs in each state, a question, a finding, and rows that were dropped."""
    for name in ("writer", "second", "third", "gone"):
        desk.session(name)
    desk.session("stopped", status="stopped")
    desk.job("writer", "job-00000001")
    done = desk.job("second", "job-00000002")
    desk.take(done.id, desk.wire(done.id, "started"), desk.report(done))
    away = desk.job("third", "job-00000003")
    desk.take(away.id, desk.wire(away.id, "started"), desk.report(away))
    jobs.archive(desk.mam, away.id)
    with desk.mam.registry.transaction() as tx:
        tx.put(Question("q-1", "job-00000001", 1, "which one?", "[]", 1))
        tx.put(Finding("drift", "writer", 1, "it moved"))
        gone = tx.session("gone")
        assert gone is not None
        tx.drop(gone)
    return desk


def content(database_file: Path) -> Content:
    """Every row of every table; of the audit what was changed, since when it was differs."""
    connection = sqlite3.connect(database_file)
    try:
        tables = {
            table: connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in schema.shapes(connection)
            if table != "audit"
        }
        tables["audit"] = connection.execute("SELECT seq, tbl, key, row FROM audit").fetchall()
        return {table: sorted(rows, key=repr) for table, rows in tables.items()}
    finally:
        connection.close()


def export(desk: Desk) -> None:
    with desk.mam.registry.view() as view:
        AuditLog(desk.mam.layout.audit).export(view)


def migrate(desk: Desk) -> None:
    assert database.migrate(desk.mam.layout.database, desk.mam.layout.mam / "backups")


def lose(desk: Desk) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{desk.mam.layout.database}{suffix}").unlink(missing_ok=True)


def test_the_function_makes_rows_of_rows_and_what_it_changed_is_audited_behind_a_mark(
    busy: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(content(busy.mam.layout.database)["audit"])
    later.install(monkeypatch)

    migrate(busy)

    after = content(busy.mam.layout.database)
    assert [row[0] for row in after["projects"]] == ["of-second", "of-third", "of-writer"]
    assert after["questions"] == [("q-1", "of-job-00000001", "which one?")]
    assert "stopped" not in {row[0] for row in after["sessions"]} and "findings" not in after
    with sqlite3.connect(busy.mam.layout.database) as connection:
        audited = connection.execute("SELECT by, tbl, key, row FROM audit WHERE seq > ?", (before,)).fetchall()
        jobs_now = [json.loads(row) for _, table, _, row in audited if table == "jobs"]
        names = [name for _, name, *_ in connection.execute("PRAGMA table_info(jobs)")]
    connection.close()
    assert {by for by, *_ in audited} == {"migrate"}
    assert audited[0][1:3] == audited[-1][1:3] == ("meta", "schema")
    assert [json.loads(row)["value"] for _, table, _, row in audited if table == "meta"] == [str(NOW + 1), str(NOW + 2)]
    assert dict(after["meta"])["schema"] == str(NOW + 2)
    assert ("migrate", "sessions", "stopped", None) in audited
    assert {key for _, table, key, _ in audited if table == "sessions"} == {"stopped"}, "what stays is not audited"
    assert {job["heading"] for job in jobs_now} == {"do it"} and all(set(job) == set(names) for job in jobs_now)


@pytest.mark.parametrize("exported", [True, False], ids=["exported before it", "exported after it"])
def test_a_registry_that_was_migrated_comes_back_from_its_log(
    busy: Desk, monkeypatch: pytest.MonkeyPatch, exported: bool
) -> None:
    if exported:
        export(busy)
    later.install(monkeypatch)
    migrate(busy)
    with busy.mam.registry.transaction() as tx:
        tx.set_meta("after", "the migration")
    before = content(busy.mam.layout.database)
    export(busy)
    lose(busy)

    rebuild.rebuild(busy.mam.layout)

    assert content(busy.mam.layout.database) == before


def test_what_only_an_older_database_held_is_migrated_as_well(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    export(busy)
    busy.inbox.close()  # so that the next writer has the last connection, and leaves one file
    busy.session("newest")
    older = busy.mam.layout.database.read_bytes()
    later.install(monkeypatch)
    migrate(busy)
    expected = content(busy.mam.layout.database)
    lose(busy)
    busy.mam.layout.database.write_bytes(older)

    assert rebuild.rebuild(busy.mam.layout).salvaged > 0

    assert content(busy.mam.layout.database) == expected


def test_a_log_of_before_is_rebuilt_as_the_migration_would_have_left_it_and_goes_on_from_there(
    busy: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(busy)
    later.install(monkeypatch)
    migrate(busy)
    expected = content(busy.mam.layout.database)
    lose(busy)

    rebuild.rebuild(busy.mam.layout)
    assert content(busy.mam.layout.database) == expected
    export(busy)
    assert not [line for line in audit.read(busy.mam.layout.audit) if line.damage]
    lose(busy)
    rebuild.rebuild(busy.mam.layout)

    assert content(busy.mam.layout.database) == expected


def test_a_log_that_names_no_schema_begins_with_the_one_of_the_first_release(busy: Desk) -> None:
    export(busy)
    lines = [line.entry for line in audit.read(busy.mam.layout.audit)]
    assert (lines[0]["t"], lines[0]["k"]) == ("meta", "schema"), "a new log says it first"
    expected = content(busy.mam.layout.database)
    rewrite(busy, [entry for entry in lines if entry.get("k") != "schema"])
    lose(busy)

    rebuild.rebuild(busy.mam.layout)

    with busy.mam.registry.view() as view:
        assert view.meta("schema") == str(migrations.VERSION)
    tables = expected.keys() - {"audit"}
    assert {name: content(busy.mam.layout.database)[name] for name in tables} == {
        name: expected[name] for name in tables
    }


def rewrite(desk: Desk, entries: list[dict[str, Any]]) -> None:
    """Write a log anew, each line chained to the one before."""
    chain, lines = "0" * 64, []
    for entry in entries:
        text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
        chain = audit.link(chain, text)
        lines.append(f"{chain} {text}\n")
    desk.mam.layout.audit.write_text("".join(lines), "utf-8")


def test_a_log_of_a_newer_version_is_refused_and_nothing_is_changed(
    busy: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        later.install(newer)
        migrate(busy)
        export(busy)
    before = busy.mam.layout.database.read_bytes()

    for past_damage in (False, True):
        with pytest.raises(SchemaMismatch) as caught:
            rebuild.rebuild(busy.mam.layout, past_damage=past_damage)

    assert (caught.value.exit_code, caught.value.data["found"]) == (75, NOW + 1) and "upgrade" in caught.value.remedy
    assert busy.mam.layout.database.read_bytes() == before


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("projects", {"name": "x"}),
        ("meta", {"name": "x", "value": "y", "colour": "red"}),
        ("meta", {"name": "without its value"}),
    ],
    ids=["a table", "a column", "without a column that must be there"],
)
def test_a_row_that_fits_no_schema_is_refused_by_its_line(busy: Desk, table: str, row: dict[str, Any]) -> None:
    export(busy)
    entries = [line.entry for line in audit.read(busy.mam.layout.audit)]
    last = max(entry["a"] for entry in entries if "a" in entry)
    foreign = {"a": last + 1, "at": 1, "by": "x", "t": table, "k": "x", "row": json.dumps(row)}
    rewrite(busy, [*entries, foreign])
    before = busy.mam.layout.database.read_bytes()

    with pytest.raises(rebuild.RebuildRefused, match=f"line {len(entries) + 1} .*{table}"):
        rebuild.rebuild(busy.mam.layout)

    assert busy.mam.layout.database.read_bytes() == before


def test_where_the_mark_is_in_a_damaged_line_the_rows_behind_it_say_the_schema(
    busy: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    later.install(monkeypatch)
    migrate(busy)
    export(busy)
    expected = content(busy.mam.layout.database)
    log = busy.mam.layout.audit
    lines = log.read_bytes().splitlines(keepends=True)
    marks = [n for n, line in enumerate(lines) if b'"by":"migrate"' in line and b'"k":"schema"' in line]
    lines[marks[0]] = b"x\n"
    log.write_bytes(b"".join(lines))
    lose(busy)

    done = rebuild.rebuild(busy.mam.layout, past_damage=True)

    assert marks[0] + 1 in done.damaged_lines
    after = content(busy.mam.layout.database)
    assert {name: after[name] for name in after if name != "audit"} == {
        name: expected[name] for name in expected if name != "audit"
    }


def test_a_migration_that_raises_leaves_the_schema_and_the_rows_of_before(
    busy: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(table: str, row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if table == "sessions":
            raise ValueError("no such thing")
        return later.convert(table, row)

    before = content(busy.mam.layout.database)
    with monkeypatch.context() as newer:
        later.install(newer, later.LATER[0]._replace(convert=breaks))
        with pytest.raises(ValueError, match="no such thing"):
            migrate(busy)

    assert content(busy.mam.layout.database) == before
    with busy.mam.registry.view() as view:
        assert view.meta("schema") == str(NOW)


def test_rows_of_one_key_become_one_and_what_sql_gave_a_column_stays_where_the_function_leaves_it_out(
    busy: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(table: str, row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [(table, row), ("added", {"name": "all"})] if table == "sessions" else [(table, row)]

    script = """
    CREATE TABLE added (name TEXT PRIMARY KEY, size INTEGER NOT NULL DEFAULT 7) STRICT;
    INSERT INTO added VALUES ('by sql', 1);
    """
    later.install(monkeypatch, Migration(script, one))

    migrate(busy)

    assert content(busy.mam.layout.database)["added"] == [("all", 7), ("by sql", 1)]


def test_every_record_names_the_columns_and_the_key_of_its_table(desk: Desk) -> None:
    with desk.mam.registry.view() as view:
        shapes = schema.shapes(view.connection)

    assert {record.table for record in RECORDS} == shapes.keys() - {"meta", *schema.LOGS}
    for record in RECORDS:
        assert frozenset(record.columns()) == shapes[record.table].columns
        assert record.key == shapes[record.table].key
