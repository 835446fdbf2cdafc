"""The database file: how it is opened, made, and brought to this version. Standard library only."""

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host import fault_points
from mam.control_plane.registry import migrations, schema


class NoRegistry(MamError):
    """The database file does not exist. Where the audit log does, it was lost and can be made again."""

    path: str
    hint: str

    code = "no_registry"
    exit_code = 2
    message = "there is no registry at {path}"
    remedy_text = "{hint}"


def none_at(path: Path) -> NoRegistry:
    """Return the error for a registry that does not exist. Its audit log tells whether it was lost."""
    lost = path.with_name("audit.jsonl").exists()
    hint = "`mam registry rebuild` makes it again from its log" if lost else "`mam init` in the repository makes one"
    return NoRegistry(path=str(path), hint=hint)


class SchemaMismatch(MamError):
    """The registry was made by an older or a newer version. It was not touched."""

    found: int
    known: int
    hint: str

    code = "schema_mismatch"
    exit_code = 75
    message = "the registry has schema {found}, this mam reads {known}"
    remedy_text = "{hint}"


class RegistryUnusable(MamError):
    """SQLite cannot read or write the registry: it is damaged, or the disk refuses."""

    path: str
    why: str

    code = "registry_unusable"
    message = "the registry at {path} cannot be used: {why}"
    remedy_text = "see `mam doctor`; `mam down`, then `mam registry rebuild` makes it again from audit.jsonl"


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Return a connection with the settings that every user of the registry needs. The caller must close it."""
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=30, isolation_level=None)
    if not read_only:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    return connection


def open_at(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Return a connection to a registry of this schema. Raises NoRegistry, RegistryUnusable, SchemaMismatch."""
    if not path.exists():
        raise none_at(path)
    try:
        connection = connect(path, read_only=read_only)
        found = version(connection, path)
    except sqlite3.DatabaseError as error:
        raise RegistryUnusable(path=str(path), why=str(error)) from error
    if found != migrations.VERSION:
        connection.close()
        newer = found > migrations.VERSION
        hint = "upgrade mam on this PATH" if newer else "`mam up` migrates it, after a backup"
        raise SchemaMismatch(found=found, known=migrations.VERSION, hint=hint)
    return connection


def version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema of an open database. Raises RegistryUnusable for an empty file, which SQLite takes for new."""
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found < 1:
        connection.close()
        raise RegistryUnusable(path=str(path), why="it is empty")
    return found


def is_older(path: Path) -> bool:
    """Whether there is a registry of an older version. False where it cannot be read, since other calls raise."""
    try:
        connection = connect(path, read_only=True)
        try:
            return version(connection, path) < migrations.VERSION
        finally:
            connection.close()
    except (sqlite3.DatabaseError, RegistryUnusable):
        return False


def fact(path: Path, name: str) -> str | None:
    """
    Return a fact of the control root from a registry of any version; None where it does not say it.

    Raises RegistryUnusable.
    """
    try:
        connection = connect(path, read_only=True)
        try:
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise RegistryUnusable(path=str(path), why=str(error)) from error
    return str(row[0]) if row is not None else None


def migrate(path: Path, backups: Path) -> bool:
    """
    Bring an older database to this version, after a backup. Returns whether it was older.

    Each step is one transaction. A step that raises leaves the schema that it began with.

    Only `monitor_process.upgrade` may call it, under the writers' lock. Raises RegistryUnusable.
    """
    connection = connect(path, read_only=False)
    try:
        found = version(connection, path)
        if found >= migrations.VERSION:
            return False
        backups.mkdir(mode=0o700, exist_ok=True)
        connection.execute("VACUUM INTO ?", (str(backups / f"registry-schema{found}-{now_ms()}.db"),))
        bring(connection, found, migrations.VERSION, audited=True)
        return True
    finally:
        connection.close()


def fresh(partial: Path, version: int | None = None) -> sqlite3.Connection:
    """A new, empty registry at *partial* (0600), of this version or an older one, for `install` to put in place."""
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection = connect(partial, read_only=False)
    bring(connection, 0, migrations.VERSION if version is None else version, audited=False)
    return connection


def install(connection: sqlite3.Connection, partial: Path, target: Path) -> None:
    """Close the database that `fresh` made, and put it in its place in one step."""
    connection.execute("PRAGMA journal_mode = DELETE")  # so that no part of it lies in a log beside it
    connection.close()
    fault_points.point("database.install")
    partial.replace(target)
    connect(target, read_only=False).close()


def bring(connection: sqlite3.Connection, found: int, version: int, *, audited: bool) -> None:
    """Bring a database from schema *found* to *version*, each step in a transaction of its own."""
    for number in range(found, version):
        connection.execute("BEGIN IMMEDIATE")
        schema.step(connection, number, audited=audited)
        connection.execute("COMMIT")
