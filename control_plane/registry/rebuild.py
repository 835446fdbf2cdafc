"""
`mam registry rebuild`: the registry made again from its audit log, for a database that is lost or damaged.

Every audited row and every event is replayed in order. What was merely observed
(screens, times of heartbeats) is not in the log; it is seen anew.
"""

import base64
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import Busy, MamError
from mam.broker.host import fault_points, locks
from mam.broker.host.progress import Progress, silent
from mam.control_plane.config.settings import Layout
from mam.control_plane.registry import audit, database
from mam.control_plane.registry.queries import OPEN_STATES
from mam.control_plane.registry.records import TABLES
from mam.control_plane.registry.transactions import Registry

SAID_EVERY = 20_000


class RebuildRefused(MamError):
    code = "rebuild_refused"
    message = "the registry of {root} cannot be rebuilt: {why}"
    remedy_text = "{hint}"


class AuditDamaged(MamError):
    code = "audit_damaged"
    message = "line {line} of {path} is damaged: {why}"
    remedy_text = "`mam registry rebuild --past-damage` takes what can be read and names every such line"


class Rebuilt(NamedTuple):
    """What a rebuild did. *salvaged* counts what only the old database still held."""

    rows: int
    events: int
    salvaged: int
    damaged_lines: list[int]
    aside: list[Path]


def rebuild(layout: Layout, *, past_damage: bool = False, say: Progress = silent) -> Rebuilt:
    """
    Replay `audit.jsonl` into a new database; the old files are set aside under `.mam/backups`, never removed.

    Until the last step nothing is changed. Raises RebuildRefused while a monitor
    runs or where there is no log, Busy, AuditDamaged unless *past_damage*.
    """
    if not layout.audit.exists():
        raise RebuildRefused(root=str(layout.root), why=f"there is no {layout.audit}", hint="copy a backup, if any")
    writers = Registry(layout.database, layout.registry_lock, by="rebuild").locked()
    with ExitStack() as held:
        try:
            held.enter_context(locks.hold(layout.monitor_lock, wait_s=0.5))
        except Busy as error:
            raise RebuildRefused(root=str(layout.root), why="its monitor runs", hint="`mam down` first") from error
        held.enter_context(writers)
        return _rebuild(layout, past_damage, say)


def _rebuild(layout: Layout, past_damage: bool, say: Progress) -> Rebuilt:
    partial, old = layout.database.with_name(".registry.db.rebuilt"), layout.database.with_name(".registry.db.old")
    for leftover in layout.mam.glob(".registry.db.rebuilt*"):
        leftover.unlink()
    if old.exists() and not layout.database.exists():
        _move(layout.database, old)  # the rest, of a rebuild that died before its last step
    connection = database.fresh(partial)
    replay = _Replay(connection)
    damaged = []
    connection.execute("BEGIN IMMEDIATE")
    for line in audit.read(layout.audit):
        if line.damage:
            damaged.append(line.number)
            if not past_damage:
                raise AuditDamaged(path=str(layout.audit), line=line.number, why=line.damage)
        replay.take(line.entry)
        if line.number % SAID_EVERY == 0:
            say(f"{line.number} lines replayed")
    if not replay.rows:
        raise RebuildRefused(root=str(layout.root), why="its audit log is empty", hint="copy a backup, if any")
    before = replay.rows + replay.events
    for path in (layout.database, old):
        for entry in _left_in(path, replay):
            replay.take(entry)
    replay.finish()
    connection.execute("COMMIT")
    aside = _set_aside(layout, old)
    fault_points.point("rebuild.install")
    database.install(connection, partial, layout.database)
    for leftover in layout.mam.glob(f"{old.name}*"):
        leftover.unlink()
    return Rebuilt(replay.rows, replay.events, replay.rows + replay.events - before, damaged, aside)


class _Replay:
    """Applies entries of the audit log, in the log's own form, to an empty database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._columns = {name: set(_columns(connection, name)) for name in (*TABLES, "events")}
        self.rows = self.events = self.audit_seq = self.event_seq = 0

    def take(self, entry: dict[str, Any]) -> None:
        if "a" in entry and entry["a"] > self.audit_seq:
            self._row(entry)
        elif "e" in entry and entry["e"] > self.event_seq:
            event = {**entry["event"], "wire": base64.b64decode(entry["event"]["wire"])}
            self._put("events", event)
            self.event_seq, self.events = entry["e"], self.events + 1

    def _row(self, entry: dict[str, Any]) -> None:
        table, row = entry["t"], entry["row"]
        self._connection.execute(
            "INSERT INTO audit (seq, at, by, tbl, key, row) VALUES (?, ?, ?, ?, ?, ?)",
            (entry["a"], entry["at"], entry["by"], table, entry["k"], row),
        )
        self.audit_seq, self.rows = entry["a"], self.rows + 1
        if table not in TABLES:
            return  # a table of a version that is gone
        if row is not None:
            content = json.loads(row)
            try:
                self._put(table, content)
            except sqlite3.IntegrityError:
                self._end_others(table, content)
                self._put(table, content)
            return
        where = " || '/' || ".join(TABLES[table])
        self._connection.execute(f"DELETE FROM {table} WHERE {where} = ?", (entry["k"],))

    def _put(self, table: str, content: dict[str, Any]) -> None:
        known = {name: value for name, value in content.items() if name in self._columns[table]}
        marks, key = ", ".join("?" * len(known)), TABLES.get(table, ())
        updates = ", ".join(f"{name} = excluded.{name}" for name in known if name not in key)
        # A row replaces itself alone: REPLACE would also remove what a rule of the schema finds in its way.
        verb, also = ("INSERT", f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates}") if key else ("REPLACE", "")
        query = f"{verb} INTO {table} ({', '.join(known)}) VALUES ({marks}) {also}"
        self._connection.execute(query, tuple(known.values()))

    def _end_others(self, table: str, row: dict[str, Any]) -> None:
        """What made room for *row* stands in a line that is damaged: the rows in its way have ended, and are kept."""
        if table == "jobs":
            end = (
                f"UPDATE jobs SET state = 'lost', detail = ? WHERE session = ? AND state IN ({OPEN_STATES}) AND id <> ?"
            )
            why = "how it ended is in a damaged line of the log"
            self._connection.execute(end, (why, row["session"], row["id"]))
        elif table == "worktrees":
            end = "UPDATE worktrees SET state = 'removed' WHERE (path = ? OR branch = ?) AND name <> ?"
            self._connection.execute(end, (row["path"], row["branch"], row["name"]))

    def finish(self) -> None:
        """What is never audited because it follows from the rows: archived jobs keep no events."""
        self._connection.execute(
            "DELETE FROM events WHERE scope IN (SELECT 'jobs/' || id FROM jobs WHERE archived_at IS NOT NULL)"
        )


def _columns(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    return (str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})"))


def _left_in(path: Path, replay: _Replay) -> list[dict[str, Any]]:
    """What the old database holds beyond the log, as far as it can still be read."""
    found: list[dict[str, Any]] = []
    with suppress(sqlite3.DatabaseError):
        old = database.connect(path, read_only=True)
        try:
            found += audit.rows_after(old, replay.audit_seq)
            found += audit.events_after(old, replay.event_seq)
        finally:
            old.close()
    return found


def _set_aside(layout: Layout, place: Path) -> list[Path]:
    """Copies of the old files first, then they make room: a crash in between loses nothing, nor does the next try."""
    folder = layout.mam / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    stamp = now_ms()
    old = [path for suffix in ("-wal", "-shm", "") if (path := Path(f"{layout.database}{suffix}")).exists()]
    aside = [folder / path.name.replace("registry.db", f"registry-aside-{stamp}.db") for path in old]
    for path, name in zip(old, aside, strict=True):
        shutil.copy2(path, name)
    _move(layout.database, place)
    return aside


def _move(database_file: Path, place: Path) -> None:
    """A database and the log beside it, to where the next try looks for both."""
    for suffix in ("", "-wal", "-shm"):
        fault_points.point("rebuild.move")
        if (path := Path(f"{database_file}{suffix}")).exists():
            path.replace(f"{place}{suffix}")
