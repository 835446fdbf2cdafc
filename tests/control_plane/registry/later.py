"""Two migrations of a version to come: what the mechanism must carry, before a real one needs it."""

from typing import Any

import pytest

from mam.control_plane.registry import migrations
from mam.control_plane.registry.migrations import Migration


def convert(table: str, row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each job makes a project, a column changes its name, findings go, questions get a column that must be there."""
    match table:
        case "jobs":
            project = f"of-{row['session']}"
            job = {name: value for name, value in row.items() if name != "title"}
            made = {"name": project, "root": row["folder"].rpartition("/")[0]}
            return [("jobs", {**job, "heading": row["title"], "project": project}), ("projects", made)]
        case "questions":
            return [("questions", {"id": row["id"], "project": f"of-{row['job']}", "words": row["question"]})]
        case "sessions" if row["status"] == "stopped":
            return []
        case "findings":
            return []
        case _:
            return [(table, row)]


LATER = (
    Migration(
        """
        CREATE TABLE projects (name TEXT PRIMARY KEY, root TEXT NOT NULL) STRICT;
        ALTER TABLE jobs RENAME COLUMN title TO heading;
        ALTER TABLE jobs ADD COLUMN project TEXT;
        DROP TABLE findings;
        DROP TABLE questions;
        CREATE TABLE questions (id TEXT PRIMARY KEY, project TEXT NOT NULL, words TEXT NOT NULL) STRICT;
        ALTER TABLE events ADD COLUMN project TEXT;
        """,
        convert,
    ),
    Migration("ALTER TABLE projects ADD COLUMN size INTEGER NOT NULL DEFAULT 1; -- with a comment behind it\n"),
)


def install(monkeypatch: pytest.MonkeyPatch, *later: Migration) -> None:
    """Be the version that knows *later* as well, or without any the one with both migrations of above."""
    known = (*migrations.MIGRATIONS, *(later or LATER))
    monkeypatch.setattr(migrations, "MIGRATIONS", known)
    monkeypatch.setattr(migrations, "VERSION", len(known))
