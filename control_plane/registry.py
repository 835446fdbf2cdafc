"""
The database and its transactions; the only module that writes state. Standard library only.

Writers, from any process, take one file lock around each short transaction:
SQLite below 3.51.3 can corrupt a WAL when two connections write and checkpoint
at once. Readers open read-only, so that they never checkpoint.
"""

import json
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from urllib.parse import quote

from mam.broker import faults
from mam.broker.bodies import now_ms
from mam.broker.errors import MamError
from mam.control_plane import locks, schema
from mam.control_plane.rows import Row
from mam.control_plane.view import R, View

LOCK_WAIT_S = 30.0


class NoRegistry(MamError):
    code = "no_registry"
    exit_code = 2
    message = "there is no registry at {path}"
    remedy_text = "`mam init` in the repository makes one"


class SchemaMismatch(MamError):
    code = "schema_mismatch"
    exit_code = 75
    message = "the registry has schema {found}, this mam reads {known}"
    remedy_text = "{hint}"


class RegistryUnusable(MamError):
    code = "registry_unusable"
    message = "the registry at {path} cannot be used: {why}"
    remedy_text = "`mam down`, then copy the newest file of .mam/backups over it; audit.jsonl holds what came later"


class Transaction(View):
    """Changes that all happen or none; each is written to the audit in the same commit."""

    def __init__(self, connection: sqlite3.Connection, by: str) -> None:
        super().__init__(connection)
        self._by = by
        # Rows read or put in this transaction: nobody else can change them while it holds the lock.
        self._rows: dict[tuple[str, tuple[object, ...]], Row | None] = {}

    def _one(self, kind: type[R], *key: object) -> R | None:
        place = (kind.table, key)
        if place not in self._rows:
            self._rows[place] = super()._one(kind, *key)
        return cast("R | None", self._rows[place])

    def _forget(self, row: Row) -> None:
        self._rows.pop((row.table, tuple(getattr(row, name) for name in row.key)), None)

    def put(self, row: Row) -> None:
        """Insert or replace *row*. Raises sqlite3.IntegrityError where a rule of the schema forbids it."""
        self._forget(row)
        columns = row.columns()
        updates = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in row.key)
        self.connection.execute(
            f"INSERT INTO {row.table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
            f"ON CONFLICT ({', '.join(row.key)}) DO UPDATE SET {updates}",
            row.values(),
        )
        content = dict(zip(columns, row.values(), strict=True))
        self._audit(row.table, row.key_text(), json.dumps(content, ensure_ascii=False))

    def drop(self, row: Row) -> None:
        self._forget(row)
        where = " AND ".join(f"{name} = ?" for name in row.key)
        key = tuple(getattr(row, name) for name in row.key)
        if self.connection.execute(f"DELETE FROM {row.table} WHERE {where}", key).rowcount:
            self._audit(row.table, row.key_text(), None)

    def observe(self, row: Row, **seen: object) -> None:
        """Note what was merely seen (times, screens): not audited, since the events themselves are kept."""
        self._forget(row)
        where = " AND ".join(f"{name} = ?" for name in row.key)
        sets = ", ".join(f"{name} = ?" for name in seen)
        key = tuple(getattr(row, name) for name in row.key)
        self.connection.execute(f"UPDATE {row.table} SET {sets} WHERE {where}", (*seen.values(), *key))

    def set_meta(self, name: str, value: str) -> None:
        self.connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
        self._audit("meta", name, json.dumps({"name": name, "value": value}, ensure_ascii=False))

    def add_event(self, **columns: object) -> None:
        """Store one event with its exact wire bytes. Raises sqlite3.IntegrityError where its slot is taken."""
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        self.connection.execute(f"INSERT INTO events ({names}) VALUES ({marks})", tuple(columns.values()))

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """What happens inside is undone on a raise; the rest of the transaction stays."""
        self.connection.execute("SAVEPOINT one")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK TO one")
            self._rows.clear()
            raise
        finally:
            self.connection.execute("RELEASE one")

    def _audit(self, table: str, key: str, row: str | None) -> None:
        self.connection.execute(
            "INSERT INTO audit (at, by, tbl, key, row) VALUES (?, ?, ?, ?, ?)", (now_ms(), self._by, table, key, row)
        )


class Registry:
    """The registry of one control root. Cheap to make; opens nothing until asked."""

    def __init__(self, database: Path, lock: Path, *, by: str, keep_open: bool = False) -> None:
        self.path = database
        self._lock = lock
        self._by = by
        self._keep_open = keep_open
        self._writer: sqlite3.Connection | None = None

    @contextmanager
    def view(self) -> Generator[View]:
        """
        A consistent read-only view.

        Raises NoRegistry, SchemaMismatch, RegistryUnusable.
        """
        connection = self._open(read_only=True)
        try:
            connection.execute("BEGIN")
            yield View(connection)
        except sqlite3.DatabaseError as error:
            raise RegistryUnusable(path=str(self.path), why=str(error)) from error
        finally:
            connection.close()

    def watch(self) -> View:
        """A view that stays open and sees each later commit; the caller closes its connection."""
        return View(self._open(read_only=True))

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """
        One short write transaction; a raise inside leaves everything as it was.

        Raises Busy after 30 s, NoRegistry, SchemaMismatch, RegistryUnusable.
        """
        with self.locked():
            connection = self._writer or self._open(read_only=False)
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield Transaction(connection, self._by)
                faults.point("registry.commit")
                connection.execute("COMMIT")
                faults.point("registry.committed")
            except sqlite3.IntegrityError:
                raise  # a rule of the schema: the caller knows which
            except sqlite3.DatabaseError as error:
                raise RegistryUnusable(path=str(self.path), why=str(error)) from error
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if self._keep_open:
                    self._writer = connection
                else:
                    connection.close()  # may checkpoint, so it happens under the lock

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock that every writer takes. Raises Busy after 30 s."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError as error:
            raise NoRegistry(path=str(self.path)) from error
        except OSError as error:
            raise RegistryUnusable(path=str(self.path), why=error.strerror or str(error)) from error
        try:
            locks.take(descriptor, self._lock, LOCK_WAIT_S)
            yield
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if self._writer is not None:
            with self.locked():
                self._writer.close()
                self._writer = None

    def backup(self, target: Path) -> None:
        """A consistent copy in one file, while others go on. Raises RegistryUnusable, also where *target* exists."""
        connection = self._open(read_only=True)
        try:
            with self.locked():
                connection.execute("VACUUM INTO ?", (str(target),))
            target.chmod(0o600)
        except sqlite3.DatabaseError as error:
            raise RegistryUnusable(path=str(self.path), why=str(error)) from error
        finally:
            connection.close()

    def create(self, **meta: str) -> None:
        """Make the database where there is none. Safe when two do it at once: the second finds it made."""
        with self.locked():
            if self.path.exists():
                return
            partial = self.path.with_name(".registry.db.new")
            for leftover in self.path.parent.glob(".registry.db.new*"):
                leftover.unlink()
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            connection = _connect(partial, read_only=False)
            _migrate(connection)
            connection.execute("BEGIN IMMEDIATE")
            fresh = Transaction(connection, self._by)
            for name, value in meta.items():
                fresh.set_meta(name, value)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.close()
            partial.replace(self.path)
            opened = _connect(self.path, read_only=False)
            opened.execute("PRAGMA journal_mode = WAL")
            opened.close()

    def _open(self, *, read_only: bool) -> sqlite3.Connection:
        if not self.path.exists():
            raise NoRegistry(path=str(self.path))
        try:
            connection = _connect(self.path, read_only=read_only)
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.DatabaseError as error:
            raise RegistryUnusable(path=str(self.path), why=str(error)) from error
        if found != schema.VERSION:
            connection.close()
            newer = found > schema.VERSION
            hint = "upgrade mam on this PATH" if newer else "`mam up` migrates it, after a backup"
            raise SchemaMismatch(found=found, known=schema.VERSION, hint=hint)
        return connection


def migrate(database: Path, lock: Path, backups: Path) -> bool:
    """Bring an older database to this version, after a backup; True where something was done. The monitor's task."""
    registry = Registry(database, lock, by="migration")
    with registry.locked():
        connection = _connect(database, read_only=False)
        try:
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if found >= schema.VERSION:
                return False
            backups.mkdir(mode=0o700, exist_ok=True)
            connection.execute("VACUUM INTO ?", (str(backups / f"registry-schema{found}-{now_ms()}.db"),))
            _migrate(connection)
            return True
        finally:
            connection.close()


def _migrate(connection: sqlite3.Connection) -> None:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    for number in range(found, schema.VERSION):
        connection.executescript(f"BEGIN; {schema.MIGRATIONS[number]} PRAGMA user_version = {number + 1}; COMMIT;")


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=30, isolation_level=None)
    if not read_only:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    return connection
