"""What a database consists of (tables, keys, columns), and one migration carried out on it. Standard library only."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from mam.control_plane.registry import audit, migrations

MARK = "schema"  # the row of `meta` that says in the audit log which schema the lines behind it have
BY = "migrate"  # who changed a row, in the audit of a migration
LOGS = ("audit", "events")  # tables of what happened: a migration's function is not asked about them

Values = Mapping[str, Any]
Key = tuple[Any, ...]


class Shape(NamedTuple):
    """A table: its key, its columns, and those of them that a row must name."""

    key: tuple[str, ...]
    columns: frozenset[str]
    required: frozenset[str]

    def fits(self, row: Values) -> bool:
        """Whether *row* can be put into the table as it is."""
        return self.required <= row.keys() <= self.columns

    def key_of(self, row: Values) -> Key:
        return tuple(row.get(name) for name in self.key)


def shapes(connection: sqlite3.Connection) -> dict[str, Shape]:
    """Every table of a database, by name."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
    return {name: _shape(connection, name) for (name,) in connection.execute(query).fetchall()}


def _shape(connection: sqlite3.Connection, table: str) -> Shape:
    found = connection.execute(f"PRAGMA table_info({table})").fetchall()
    key = sorted((place, name) for _, name, _, _, _, place in found if place)
    required = {name for _, name, _, needed, default, place in found if (needed or place) and default is None}
    return Shape(tuple(name for _, name in key), frozenset(each[1] for each in found), frozenset(required))


def shapes_of(version: int) -> dict[str, Shape]:
    """Every table of schema *version*."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for migration in migrations.MIGRATIONS[:version]:
            connection.executescript(migration.sql)
        return shapes(connection)
    finally:
        connection.close()


def step(connection: sqlite3.Connection, version: int, *, audited: bool) -> None:
    """
    Bring a database from schema *version* to the next, inside the transaction that the caller began.

    With *audited* a mark and every row that the migration's function changed enter the audit. A replay of the log
    needs neither: the lines that follow hold them.
    """
    migration = migrations.MIGRATIONS[version]
    if audited:
        mark(connection, version + 1, BY)
    before = _contents(connection) if migration.convert else {}
    for statement in _statements(migration.sql):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version + 1}")
    if migration.convert:
        _convert(connection, before, migration.convert, audited)


def mark(connection: sqlite3.Connection, version: int, by: str) -> None:
    """Say in the audit that what follows has schema *version*."""
    row = {"name": MARK, "value": str(version)}
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (:name, :value)", row)
    audit.add_entry(connection, by, "meta", MARK, row)


def _statements(sql: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would end the transaction that they belong to."""
    text = ""
    for line in sql.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""


def _contents(connection: sqlite3.Connection) -> dict[str, list[dict[str, Any]]]:
    return {table: list(_rows(connection, table)) for table in shapes(connection) if table not in LOGS}


def _rows(connection: sqlite3.Connection, table: str, where: str = "", values: Key = ()) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(f"SELECT * FROM {table} {where}", values)
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor.fetchall())


def _convert(
    connection: sqlite3.Connection,
    before: Mapping[str, Iterable[dict[str, Any]]],
    convert: migrations.Convert,
    audited: bool,
) -> None:
    """Put what *convert* makes of the rows from *before* in their place."""
    now = shapes(connection)
    wanted: dict[tuple[str, Key], dict[str, Any]] = {}
    old: list[tuple[str, Key]] = []
    for table, rows in before.items():
        for row in rows:
            if table in now:
                old.append((table, now[table].key_of(row)))
            for new_table, made in convert(table, dict(row)):
                wanted[new_table, now[new_table].key_of(made)] = made
    for table, key in old:
        if (table, key) not in wanted and _delete(connection, table, now[table], key) and audited:
            audit.add_entry(connection, BY, table, key_text(key), None)
    for (table, key), made in wanted.items():
        changed = _put(connection, table, now[table], key, made)
        if changed is not None and audited:
            audit.add_entry(connection, BY, table, key_text(key), changed)


def _delete(connection: sqlite3.Connection, table: str, shape: Shape, key: Key) -> bool:
    return connection.execute(f"DELETE FROM {table} {_where(shape)}", key).rowcount > 0


def _put(connection: sqlite3.Connection, table: str, shape: Shape, key: Key, row: Values) -> dict[str, Any] | None:
    """Insert or change a row; the whole row as it stands now, or None where it stood there before."""
    present = next(_rows(connection, table, _where(shape), key), None)
    if present is not None and present == {**present, **row}:
        return None
    upsert(connection, table, shape, row)
    return next(_rows(connection, table, _where(shape), key))


def upsert(connection: sqlite3.Connection, table: str, shape: Shape, row: Values) -> None:
    """Insert *row* or change the one with its key. REPLACE would also remove other rows that a rule has in its way."""
    names = ", ".join(row)
    updates = ", ".join(f"{name} = excluded.{name}" for name in row if name not in shape.key)
    also = f"DO UPDATE SET {updates}" if updates else "DO NOTHING"
    query = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})"
    connection.execute(f"{query} ON CONFLICT ({', '.join(shape.key)}) {also}", tuple(row.values()))


def _where(shape: Shape) -> str:
    return "WHERE " + " AND ".join(f"{name} IS ?" for name in shape.key)


def key_text(key: Key) -> str:
    """A key as the audit names it."""
    return "/".join(map(str, key))
