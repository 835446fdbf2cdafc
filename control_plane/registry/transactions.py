"""
Transactions and views of the registry. Standard library only.

Each writer, in any process, takes one file lock around each short transaction: SQLite below 3.51.3 can corrupt a WAL
when two connections write and checkpoint at once. Readers open the file read-only, so that they never checkpoint.
"""

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import cast

from mam.broker.host import fault_points, locks
from mam.control_plane.registry import audit, database, migrations, schema
from mam.control_plane.registry.database import RegistryUnusable
from mam.control_plane.registry.queries import R, View
from mam.control_plane.registry.records import Row

LOCK_WAIT_S = 30.0


class Transaction(View):
    """Changes that happen all or not at all. Each changed record enters the audit in the same commit."""

    def __init__(self, connection: sqlite3.Connection, by: str) -> None:
        super().__init__(connection)
        self._by = by
        # The rows that were read in this transaction. No other process can change them while it holds the lock.
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
        audit.add_entry(self.connection, self._by, row.table, row.key_text(), content)

    def drop(self, row: Row) -> None:
        """Delete *row*; nothing happens where it is not there."""
        self._forget(row)
        where = " AND ".join(f"{name} = ?" for name in row.key)
        key = tuple(getattr(row, name) for name in row.key)
        if self.connection.execute(f"DELETE FROM {row.table} WHERE {where}", key).rowcount:
            audit.add_entry(self.connection, self._by, row.table, row.key_text(), None)

    def observe(self, row: Row, **seen: object) -> None:
        """Change columns that hold what was seen (times, screens). This is not audited, since the events are kept."""
        self._forget(row)
        where = " AND ".join(f"{name} = ?" for name in row.key)
        sets = ", ".join(f"{name} = ?" for name in seen)
        key = tuple(getattr(row, name) for name in row.key)
        self.connection.execute(f"UPDATE {row.table} SET {sets} WHERE {where}", (*seen.values(), *key))

    def set_meta(self, name: str, value: str) -> None:
        """Set a fact of the control root."""
        self.connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
        audit.add_entry(self.connection, self._by, "meta", name, {"name": name, "value": value})

    def add_event(self, **columns: object) -> bool:
        """Store one event with its exact wire bytes; False, with nothing stored, where its slot is taken."""
        return self.connection.execute(_insert_event(tuple(columns)), tuple(columns.values())).rowcount == 1

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Undo what happened inside where it raises. The rest of the transaction stays."""
        self.connection.execute("SAVEPOINT one")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK TO one")
            self._rows.clear()
            raise
        finally:
            self.connection.execute("RELEASE one")


@lru_cache(maxsize=4)
def _insert_event(columns: tuple[str, ...]) -> str:
    """The statement for these columns; the same text each time, so that SQLite prepares it once."""
    marks = ", ".join("?" * len(columns))
    slot = "ON CONFLICT (scope, attempt, producer, slot) DO NOTHING"
    return f"INSERT INTO events ({', '.join(columns)}) VALUES ({marks}) {slot}"


class Registry:
    """
    The registry of one control root. It opens no file before its first use.

    Any number of processes may use it at once. With *keep_open* it keeps its writing connection, as the monitor needs.
    """

    def __init__(self, path: Path, lock: Path, *, by: str, keep_open: bool = False) -> None:
        self.path = path
        self._lock = lock
        self._by = by
        self._keep_open = keep_open
        self._writer: sqlite3.Connection | None = None

    @contextmanager
    def view(self) -> Generator[View]:
        """
        Read from one consistent state, whatever is written meanwhile.

        Raises NoRegistry, SchemaMismatch, RegistryUnusable.
        """
        connection = database.open_at(self.path, read_only=True)
        try:
            connection.execute("BEGIN")
            yield View(connection)
        except sqlite3.DatabaseError as error:
            raise RegistryUnusable(path=str(self.path), why=str(error)) from error
        finally:
            connection.close()

    def watch(self) -> View:
        """Return a view that stays open and sees each later commit. The caller must close its connection."""
        return View(database.open_at(self.path, read_only=True))

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """
        Change the registry in one short transaction. Where the body raises, everything is as it was.

        Raises Busy after 30 s, NoRegistry, SchemaMismatch, RegistryUnusable, and sqlite3.IntegrityError where a rule of
        the schema forbids a change.
        """
        with self.locked():
            connection = self._writer or database.open_at(self.path, read_only=False)
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield Transaction(connection, self._by)
                fault_points.point("registry.commit")
                connection.execute("COMMIT")
                fault_points.point("registry.committed")
            except sqlite3.IntegrityError:
                raise  # a rule of the schema, which the caller knows
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
            descriptor = locks.open_file(self._lock)
        except FileNotFoundError as error:
            raise database.none_at(self.path) from error
        except OSError as error:
            raise RegistryUnusable(path=str(self.path), why=error.strerror or str(error)) from error
        try:
            locks.take(descriptor, self._lock, LOCK_WAIT_S)
            yield
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the writing connection that *keep_open* has kept."""
        if self._writer is not None:
            with self.locked():
                self._writer.close()
                self._writer = None

    def backup(self, target: Path) -> None:
        """Write a consistent copy to *target* while others go on. Raises RegistryUnusable, also if it exists."""
        connection = database.open_at(self.path, read_only=True)
        try:
            with self.locked():
                connection.execute("VACUUM INTO ?", (str(target),))
            target.chmod(0o600)
        except sqlite3.DatabaseError as error:
            raise RegistryUnusable(path=str(self.path), why=str(error)) from error
        finally:
            connection.close()

    def create(self, **meta: str) -> None:
        """Make the database where there is none. Two processes may call it at once: the second finds it made."""
        with self.locked():
            if self.path.exists():
                return
            for leftover in self.path.parent.glob(".registry.db.new*"):
                leftover.unlink()
            partial = self.path.with_name(".registry.db.new")
            connection = database.fresh(partial)
            connection.execute("BEGIN IMMEDIATE")
            schema.mark(connection, migrations.VERSION, self._by)
            first = Transaction(connection, self._by)
            for name, value in meta.items():
                first.set_meta(name, value)
            connection.execute("COMMIT")
            database.install(connection, partial, self.path)
