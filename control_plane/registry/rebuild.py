"""
`mam registry rebuild`: make a lost or damaged registry again from its audit log.

Every audited row and every event is replayed in order, in the schema that the log has there. Where the log says that a
newer schema begins, its migration runs on what was replayed so far. The log does not hold what was merely observed
(screens, times of heartbeats); the monitor sees it anew.
"""

import base64
import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import Busy, MamError
from mam.broker.host import fault_points, locks
from mam.broker.host.progress import Progress, silent
from mam.control_plane.config.layout import Layout
from mam.control_plane.registry import audit, database, migrations, schema
from mam.control_plane.registry.audit import Line
from mam.control_plane.registry.database import SchemaMismatch
from mam.control_plane.registry.queries import OPEN_STATES, View
from mam.control_plane.registry.schema import Shape
from mam.control_plane.registry.transactions import Registry

SAID_EVERY = 20_000


class RebuildRefused(MamError):
    """The registry was not rebuilt. The old one is where it was."""

    root: str
    why: str
    hint: str

    code = "rebuild_refused"
    message = "the registry of {root} cannot be rebuilt: {why}"
    remedy_text = "{hint}"


class AuditDamaged(MamError):
    """A line of the audit log was changed or torn, and --past-damage was not given."""

    line: int
    path: str
    why: str

    code = "audit_damaged"
    message = "line {line} of {path} is damaged: {why}"
    remedy_text = "`mam registry rebuild --past-damage` takes what can be read and names every such line"


class Rebuilt(NamedTuple):
    """What a rebuild did. *salvaged* counts the rows and events that only the old database held."""

    rows: int
    events: int
    salvaged: int
    damaged_lines: list[int]
    aside: list[Path]


def rebuild(layout: Layout, *, past_damage: bool = False, say: Progress = silent) -> Rebuilt:
    """
    Replay `audit.jsonl` into a new database. The old files are set aside under `.mam/backups`, and never removed.

    Nothing is changed before the last step. Raises RebuildRefused while a monitor runs, and where there is no log or a
    line of it fits no schema of this version; SchemaMismatch for a log of a newer version; AuditDamaged unless
    *past_damage*; Busy.
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
    connection = database.fresh(partial, migrations.UNMARKED)
    replay = _Replay(connection, layout)
    damaged = []
    connection.execute("BEGIN IMMEDIATE")
    for line in audit.read(layout.audit):
        if line.damage:
            damaged.append(line.number)
            if not past_damage:
                raise AuditDamaged(path=str(layout.audit), line=line.number, why=line.damage)
        replay.take(line)
        if line.number % SAID_EVERY == 0:
            say(f"{line.number} lines replayed")
    if not replay.rows:
        raise RebuildRefused(root=str(layout.root), why="its audit log is empty", hint="copy a backup, if any")
    before = replay.rows + replay.events
    for path in (layout.database, old):
        for entry in _left_in(path, replay):
            replay.take(audit.Line(0, entry, ""))
    replay.finish()
    connection.execute("COMMIT")
    aside = _set_aside(layout, old)
    fault_points.point("rebuild.install")
    database.install(connection, partial, layout.database)
    for leftover in layout.mam.glob(f"{old.name}*"):
        leftover.unlink()
    return Rebuilt(replay.rows, replay.events, replay.rows + replay.events - before, damaged, aside)


class _Replay:
    """Applies lines of the audit log to an empty database of the schema that the log begins with."""

    def __init__(self, connection: sqlite3.Connection, layout: Layout) -> None:
        self._connection = connection
        self._layout = layout
        self._version = migrations.UNMARKED
        self._shapes = schema.shapes(connection)
        self.rows = self.events = self.audit_seq = self.event_seq = 0

    def take(self, line: Line) -> None:
        """Apply one line; one that is damaged and fits no schema is left out. Raises SchemaMismatch, RebuildRefused."""
        entry = line.entry
        if "a" in entry and entry["a"] > self.audit_seq:
            self._row(line)
        elif "e" in entry and entry["e"] > self.event_seq:
            event = {**entry["event"], "wire": base64.b64decode(entry["event"]["wire"])}
            if self._reach("events", event, line):
                names, marks = ", ".join(event), ", ".join("?" * len(event))
                self._connection.execute(f"REPLACE INTO events ({names}) VALUES ({marks})", tuple(event.values()))
            self.event_seq, self.events = entry["e"], self.events + 1

    def _row(self, line: Line) -> None:
        entry = line.entry
        table, row = entry["t"], entry["row"]
        content = None if row is None else json.loads(row)
        fits = self._reach(table, content, line)
        self._connection.execute(
            "INSERT INTO audit (seq, at, by, tbl, key, row) VALUES (?, ?, ?, ?, ?, ?)",
            (entry["a"], entry["at"], entry["by"], table, entry["k"], row),
        )
        self.audit_seq, self.rows = entry["a"], self.rows + 1
        if not fits:
            return
        if content is None:
            where = " || '/' || ".join(self._shapes[table].key)
            self._connection.execute(f"DELETE FROM {table} WHERE {where} = ?", (entry["k"],))
            return
        try:
            schema.upsert(self._connection, table, self._shapes[table], content)
        except sqlite3.IntegrityError:
            self._end_others(table, content)
            schema.upsert(self._connection, table, self._shapes[table], content)

    def _reach(self, table: str, content: dict[str, Any] | None, line: Line) -> bool:
        """
        Be at the schema that a row belongs to: a mark says so, or, where the mark was in a damaged line, its columns.

        False for a damaged row that fits none. Raises SchemaMismatch, RebuildRefused.
        """
        if table == "meta" and content is not None and content.get("name") == schema.MARK:
            self._marked(int(content["value"]), line)
        if _fits(self._shapes, table, content):
            return True
        for version in range(self._version + 1, migrations.VERSION + 1):
            if _fits(schema.shapes_of(version), table, content):
                self._advance(version, audited=False)
                return True
        if line.damage:
            return False
        place = f"line {line.number} of {self._layout.audit}" if line.number else f"{self._layout.database}"
        why = f"{place} has a row of {table} that fits no schema up to {migrations.VERSION}"
        raise RebuildRefused(root=str(self._layout.root), why=why, hint="upgrade mam on this PATH")

    def _marked(self, version: int, line: Line) -> None:
        if version <= migrations.VERSION:
            self._advance(version, audited=False)
        elif not line.damage:
            raise SchemaMismatch(found=version, known=migrations.VERSION, hint="upgrade mam on this PATH")

    def _advance(self, version: int, *, audited: bool) -> None:
        for number in range(self._version, version):
            schema.step(self._connection, number, audited=audited)
            self._version = version
            self._shapes = schema.shapes(self._connection)

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
        """Bring what was replayed to this version; and what is never audited: archived jobs keep no events."""
        self._advance(migrations.VERSION, audited=True)
        if View(self._connection).meta(schema.MARK) != str(migrations.VERSION):
            schema.mark(self._connection, migrations.VERSION, "rebuild")
        self._connection.execute(
            "DELETE FROM events WHERE scope IN (SELECT 'jobs/' || id FROM jobs WHERE archived_at IS NOT NULL)"
        )


def _fits(shapes: Mapping[str, Shape], table: str, content: dict[str, Any] | None) -> bool:
    return table in shapes and (content is None or shapes[table].fits(content))


def _left_in(path: Path, replay: _Replay) -> list[dict[str, Any]]:
    """Return what the old database holds beyond the log, as far as it can be read."""
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
    """Copy the old files, then move them away. A crash in between loses nothing, and the next try does not either."""
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
    """Move a database and the logs beside it to the place where the next try looks for them."""
    for suffix in ("", "-wal", "-shm"):
        fault_points.point("rebuild.move")
        if (path := Path(f"{database_file}{suffix}")).exists():
            path.replace(f"{place}{suffix}")
