"""A newer `mam` in a control root that an older one made and still runs."""

import sqlite3

import pytest

from mam.control_plane.registry import database, migrations
from tests.support import Root


def make_older(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a registry of the version before in the place of this one's, with what every registry says of its root."""
    path = root.parts.layout.database
    with sqlite3.connect(path) as now:
        facts = now.execute("SELECT name, value FROM meta").fetchall()
    with monkeypatch.context() as past:
        past.setattr(migrations, "VERSION", migrations.VERSION - 1)
        older = database.fresh(path.with_suffix(".older"))
        older.executemany("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", facts)
        older.commit()
        for leftover in path.parent.glob("registry.db-*"):
            leftover.unlink()
        database.install(older, path.with_suffix(".older"), path)


@pytest.mark.parametrize("running", [True, False], ids=["its monitor runs", "nothing runs"])
def test_up_brings_an_older_registry_to_this_version_and_replaces_its_monitor(
    running: bool, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = root.ok("up")["monitor_pid"]
    if not running:
        root.ok("down")
    make_older(root, monkeypatch)
    refused = root.mam("status", "--json")
    assert (refused.code, refused.error["code"]) == (75, "schema_mismatch") and "mam up" in refused.error["remedy"]

    after = root.ok("up")["monitor_pid"]

    assert after != before
    assert root.ok("status")["monitor"]["pid"] == after
    assert len(list((root.path / ".mam" / "backups").glob(f"registry-schema{migrations.VERSION - 1}-*.db"))) == 1
    assert root.ok("up")["monitor_pid"] == after
