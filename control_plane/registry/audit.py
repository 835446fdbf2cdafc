"""audit.jsonl: the audit as lines of text, each chained to the one before."""

import base64
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.host import atomic_files, fault_points
from mam.broker.host.atomic_files import write_json
from mam.control_plane.registry.queries import View

BATCH = 2000
NOTE_EVERY_BYTES = 1024 * 1024
_LINE_AT_MOST = 8 * 1024 * 1024
_START = "0" * 64


class AuditLog:
    """
    Appends to the log what the registry's audit and events hold beyond its last line. Only the monitor may write it.

    Before the first export, the file is not touched. A second monitor that is about to be refused would else take a
    line that the first one is writing for a torn one, and cut it off.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._audit_seq = self._event_seq = self._end = self._noted = 0
        self._chain = ""

    def export(self, view: View) -> None:
        """Write what is new. Raises OSError where the disk refuses; the next call goes on after that."""
        if not self._chain:
            self._audit_seq, self._event_seq, self._chain, self._end = _resume(self._path)
        while rows := rows_after(view.connection, self._audit_seq, BATCH):
            self._append(rows)
            self._audit_seq = rows[-1]["a"]
        while events := events_after(view.connection, self._event_seq, BATCH):
            self._append(events)
            self._event_seq = events[-1]["e"]
        self._note_position()

    def _note_position(self) -> None:
        """Note from time to time where the log ends, so that the next monitor need not read it from its beginning."""
        if self._end - self._noted > NOTE_EVERY_BYTES:
            write_json(
                position_file(self._path),
                {"a": self._audit_seq, "e": self._event_seq, "chain": self._chain, "end": self._end},
            )
            self._noted = self._end

    def _append(self, entries: list[dict[str, Any]]) -> None:
        lines = []
        chain = self._chain
        for entry in entries:
            text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
            chain = link(chain, text)
            lines.append(f"{chain} {text}\n")
        data = "".join(lines).encode("utf-8", "replace")
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            fault_points.point("audit.append")
            written = os.write(descriptor, data)
            if written != len(data):  # a full disk takes only a part, and no half line may stay
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                raise OSError(28, "the audit log could not be written whole", str(self._path))
            self._end = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        self._chain = chain


def add_entry(connection: sqlite3.Connection, by: str, table: str, key: str, row: Mapping[str, Any] | None) -> None:
    """Audit one changed row, in the transaction that changes it. A *row* of None says that it was deleted."""
    text = None if row is None else json.dumps(row, ensure_ascii=False)
    query = "INSERT INTO audit (at, by, tbl, key, row) VALUES (?, ?, ?, ?, ?)"
    connection.execute(query, (now_ms(), by, table, key, text))


def rows_after(connection: sqlite3.Connection, seq: int, limit: int = -1) -> list[dict[str, Any]]:
    """Return the audited changes behind number *seq*, as entries of the log. A negative *limit* means all."""
    query = "SELECT seq, at, by, tbl, key, row FROM audit WHERE seq > ? ORDER BY seq LIMIT ?"
    names = ("a", "at", "by", "t", "k", "row")
    return [dict(zip(names, row, strict=True)) for row in connection.execute(query, (seq, limit))]


def events_after(connection: sqlite3.Connection, seq: int, limit: int = -1) -> list[dict[str, Any]]:
    """Return the stored events behind number *seq*, as entries of the log. A negative *limit* means all."""
    found = View(connection).events(after=seq, limit=limit)
    return [
        {"e": event["seq"], "event": {**event, "wire": base64.b64encode(event["wire"]).decode()}} for event in found
    ]


def link(before: str, text: str) -> str:
    """Return the chain value of a line. A change anywhere makes every later value wrong."""
    return hashlib.sha256(f"{before} {text}".encode("utf-8", "replace")).hexdigest()


class Line(NamedTuple):
    """One line of the log. *damage* says in words why it must not be believed; it is empty for a sound line."""

    number: int
    entry: dict[str, Any]
    damage: str


def read(path: Path) -> Iterator[Line]:
    """
    Yield the lines of the log in order, each checked against the one before. A torn last line is left out.

    A line whose content was changed is damaged. Where its chain value was changed, the next line is damaged as well.
    """
    before = _START
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.endswith(b"\n"):
                return
            seen, _, text = raw.decode("utf-8", "replace").rstrip("\n").partition(" ")
            damage = "" if link(before, text) == seen else "its chain value does not fit"
            try:
                entry = json.loads(text)
            except (ValueError, RecursionError):
                entry, damage = {}, "it is not JSON"
            yield Line(number, entry if isinstance(entry, dict) else {}, damage)
            before = seen


def position_file(log: Path) -> Path:
    """Return the file that notes how far the log is known."""
    return log.with_name(f".{log.name}.position")


def _resume(path: Path) -> tuple[int, int, str, int]:
    """Return the last audit and event number, the chain, and the size of the log. Cuts off a torn last line."""
    audit_seq, event_seq, chain, end = _known(path)
    try:
        with path.open("rb") as file:
            file.seek(end)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                seen, _, text = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
                entry = json.loads(text)
                if not isinstance(entry, dict):
                    raise ValueError("it is not an entry")
                chain = seen
                audit_seq = entry.get("a", audit_seq)
                event_seq = entry.get("e", event_seq)
                end += len(line)
    except FileNotFoundError:
        return 0, 0, _START, 0
    except (ValueError, RecursionError):
        # A line without an entry was edited by hand. A copy is kept, and the log goes on behind the last good line.
        shutil.copy2(path, path.with_name(f"{path.name}.damaged-{now_ms()}"))
    if end < path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(end)
    return audit_seq, event_seq, chain, end


def _known(path: Path) -> tuple[int, int, str, int]:
    """Return the noted position where a line with that chain value still ends there; else the log's beginning."""
    noted = atomic_files.read(position_file(path))
    audit_seq, event_seq, chain, end = (noted.get(name) for name in ("a", "e", "chain", "end"))
    if not (isinstance(audit_seq, int) and isinstance(event_seq, int) and isinstance(end, int)):
        return 0, 0, _START, 0
    try:
        with path.open("rb") as file:
            file.seek(max(0, end - _LINE_AT_MOST))
            before = file.read(min(end, _LINE_AT_MOST))
    except (OSError, ValueError):
        return 0, 0, _START, 0
    last = before.removesuffix(b"\n").rpartition(b"\n")[2].partition(b" ")[0]
    if not before.endswith(b"\n") or last.decode("ascii", "replace") != chain:
        return 0, 0, _START, 0
    return audit_seq, event_seq, last.decode("ascii"), end
