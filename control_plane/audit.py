"""audit.jsonl: the audit as lines that can be searched, each chained to the one before."""

import base64
import hashlib
import json
import os
import shutil
from pathlib import Path

from mam.broker import faults
from mam.broker.bodies import now_ms
from mam.control_plane.view import View

BATCH = 2000
_START = "0" * 64


class AuditLog:
    """Appends what the registry's audit and events hold beyond the last line. Only the monitor writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._audit_seq, self._event_seq, self._chain = _resume(path)

    def export(self, view: View) -> None:
        """Write what is new. Raises OSError where the disk refuses; the next call goes on from there."""
        while rows := view.connection.execute(
            "SELECT seq, at, by, tbl, key, row FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", (self._audit_seq, BATCH)
        ).fetchall():
            self._append(
                [{"a": seq, "at": at, "by": by, "t": tbl, "k": key, "row": row} for seq, at, by, tbl, key, row in rows]
            )
            self._audit_seq = rows[-1][0]
        while events := view.events(after=self._event_seq, limit=BATCH):
            for event in events:
                event["wire"] = base64.b64encode(event["wire"]).decode()
            self._append([{"e": event["seq"], "event": event} for event in events])
            self._event_seq = events[-1]["seq"]

    def _append(self, entries: list[dict[str, object]]) -> None:
        lines = []
        chain = self._chain
        for entry in entries:
            text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
            chain = link(chain, text)
            lines.append(f"{chain} {text}\n")
        data = "".join(lines).encode("utf-8", "replace")
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            faults.point("audit.append")
            written = os.write(descriptor, data)
            if written != len(data):  # a full disk takes a part: leave no half line behind
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
                raise OSError(28, "the audit log could not be written whole", str(self._path))
        finally:
            os.close(descriptor)
        self._chain = chain


def link(before: str, text: str) -> str:
    """The chain value of a line: a change anywhere makes every later value wrong."""
    return hashlib.sha256(f"{before} {text}".encode("utf-8", "replace")).hexdigest()


def _resume(path: Path) -> tuple[int, int, str]:
    """Where the log ends: the last audit and event numbers and the chain; a torn last line is cut off."""
    audit_seq = event_seq = 0
    chain, end = _START, 0
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                seen, _, text = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
                entry = json.loads(text)
                chain = seen
                audit_seq = entry.get("a", audit_seq)
                event_seq = entry.get("e", event_seq)
                end += len(line)
    except FileNotFoundError:
        return 0, 0, _START
    except ValueError:
        # A whole line that is none: somebody edited. Keep what they left, and go on behind the last good line.
        shutil.copy2(path, path.with_name(f"{path.name}.damaged-{now_ms()}"))
    if end < path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(end)
    return audit_seq, event_seq, chain
