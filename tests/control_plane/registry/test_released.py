"""Each schema that was in use: its registry, migrated and rebuilt, has equal rows, and the verbs go on with it."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.config import layout as layouts
from mam.control_plane.config.layout import Layout
from mam.control_plane.config.settings import Settings
from mam.control_plane.registry import database, migrations, rebuild, schema
from mam.control_plane.registry.records import RECORDS
from tests.control_plane.registry import later
from tests.support import Root, released

SCHEMAS = range(1, len(released.released()) + 1)


def layout(folder: Path) -> Layout:
    """Where the files of a control root at *folder* lie; the folder is made."""
    (folder / ".mam").mkdir(parents=True)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return layouts.layout(Settings(environ, environ, folder), str(folder))


@pytest.fixture
def left(tmp_path: Path, request: pytest.FixtureRequest) -> Layout:
    """A control root as the schema that the test asks for left it."""
    found = layout(tmp_path / "root")
    released.write(found.mam, request.param)
    return found


def rows(path: Path) -> dict[str, list[Any]]:
    """Every row but those of the audit, each with the names of its columns."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        tables = schema.shapes(connection).keys() - {"audit"}
        found = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
        return {table: sorted((dict(row) for row in found[table]), key=repr) for table in tables}
    finally:
        connection.close()


def both_ways(left: Layout) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The rows that a migration leaves, and those of a rebuild from the log alone."""
    lost = layout(left.root.with_name("lost"))
    shutil.copytree(left.mam, lost.mam, dirs_exist_ok=True)
    lost.database.unlink()
    database.migrate(left.database, left.mam / "backups")
    rebuild.rebuild(lost)
    return rows(left.database), rows(lost.database)


def test_a_script_that_was_released_never_changes() -> None:
    scripts = released.released()

    assert tuple(migration.sql.split() for migration in migrations.MIGRATIONS[: len(scripts)]) == tuple(
        script.split() for script in scripts
    )
    assert len(scripts) == migrations.UNMARKED


@pytest.mark.parametrize("left", SCHEMAS, indirect=True)
def test_migrated_and_rebuilt_a_registry_has_equal_rows(left: Layout) -> None:
    before = rows(left.database)

    migrated, rebuilt = both_ways(left)

    if "schema" not in {row["name"] for row in migrated["meta"]}:  # it had this version already: nothing was migrated
        migrated["meta"] = sorted([*migrated["meta"], {"name": "schema", "value": str(migrations.VERSION)}], key=repr)
    assert rebuilt == migrated
    assert [job["id"] for job in migrated["jobs"]] == [job["id"] for job in before["jobs"]] and before["jobs"]
    assert all(migrated[record.table] for record in RECORDS if record.table in before), "a table without a row"


@pytest.mark.parametrize("left", SCHEMAS, indirect=True)
def test_what_a_later_migration_makes_of_rows_is_the_same_both_ways(
    left: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    later.install(monkeypatch)

    migrated, rebuilt = both_ways(left)

    assert rebuilt == migrated
    assert {row["name"] for row in migrated["projects"]} >= {"of-third", "of-away", "of-fallen"}
    assert all(job["heading"] == f"do {job['id']}" for job in migrated["jobs"])
    assert "away" not in {row["name"] for row in migrated["sessions"]}


@pytest.mark.parametrize("version", SCHEMAS)
def test_up_goes_on_in_a_control_root_that_a_schema_left(version: int, root: Root) -> None:
    mam = root.parts.layout.mam
    meta = {name: root.parts.meta(name) for name in ("fingerprint", "salt", "slug")}
    for path in mam.glob("registry.db*"):
        path.unlink()
    released.write(mam, version)
    with sqlite3.connect(mam / "registry.db") as connection:
        connection.executemany("UPDATE meta SET value = ? WHERE name = ?", [(v, n) for n, v in meta.items()])
    connection.close()

    root.ok("up")

    jobs = {job["id"]: job["state"] for job in root.ok("job", "list")}
    assert (jobs["job-lost"], jobs["job-late"]) == ("lost", "reported") and "job-archived" not in jobs
    with root.registry.view() as view:
        names = {session.name for session in view.sessions()}
    assert names == {"writer", "reader", "other", "third", "away", "fallen"}
    loops = {loop["id"]: loop["state"] for loop in root.ok("loop", "list")}
    working = {"loop-working": "working", "loop-reviewing": "reviewing", "loop-stuck": "stuck"}
    assert loops == (working if version > 1 else {})
    root.agent("newcomer")
    assert root.ok("job", "wait", root.delegate("newcomer"))["result"] == "done"
