"""
Compare what goes over the wire, and what lies in `.mam` afterwards, of one short job with the released `mam` and this.

Compared are topics, kinds and JSON members of messages, and the names, types and modes of files. How often a message
is sent, and in which order, is a matter of time. Usage: python -m tests.compatibility.compare_wire
"""

import json
import re
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.protocol import Message
from mam.broker.envelope import topics
from mam.broker.envelope.signing import unverified_body
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from tests.compatibility.recorded_root import Recording
from tests.support.installations import Installation, current, install

SCRIPT = [[{"started": {}}, {"progress": "half"}, {"report": {"text": "Done.", "result": "done"}}]]

PRIVATE = "what replaces a file makes it private, as the folder around it always was"
# What is meant to differ, as patterns of lines of `Traces`, and why.
ALLOWED: dict[str, str] = {
    r"[-+] -rw-(r--r--|------) jobs/job-done/\.reported-1(\.md)?": PRIVATE,
    r"[-+] -rw-(r--r--|------) run/writer/(deliveries/job-done-1|(memory|open|runner)\.json)": PRIVATE,
}


class Traces:
    """What one installation sent and left behind, each as a set of lines."""

    def __init__(self) -> None:
        self.messages: set[str] = set()
        self.files: set[str] = set()

    def note(self, message: Message) -> None:
        """One message, as the topic, the kind, and a line for each of its members."""
        if not message.payload:
            return
        body = unverified_body(message.payload)
        place = f"{message.topic} {body.get('kind')}"
        self.messages |= {
            f"{place}: {member}" for member in _members("", {**json.loads(message.payload), "body": body})
        }

    def look(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            name = re.sub(r"[0-9a-f]{8,}|\d{5,}", "*", str(path.relative_to(folder)))
            if "jetstream/" in name or name.endswith(("-shm", "-wal")):
                continue  # nats-server's and SQLite's own
            status = path.lstat()
            self.files.add(f"{stat.filemode(status.st_mode)} {name}")


def _members(where: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _members(f"{where}.{name}", inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _members(f"{where}[]", inner)
    else:
        yield where


def traces(mam: Installation, place: Path) -> Traces:
    """Have *mam* carry one job out in a new control root at *place*, with a viewer on its broker."""
    made, found = Recording(mam, place), Traces()
    try:
        made.run("init")
        made.run("up")
        bus = _viewer(made.path / ".mam")
        try:
            bus.subscribe("#", found.note)
            bus.wait_ready(60)
            made.agent("writer", script=SCRIPT)
            made.job("writer", "job-done")
            made.run("job", "wait", "job-done")
            made.run("agent", "stop", "writer")
            made.run("down")
        finally:
            bus.close()
    finally:
        made.end()
    found.look(made.path / ".mam")
    return found


def _viewer(folder: Path) -> MqttBus:
    running = nats_server.running(folder / "broker")
    assert running is not None
    with closing(sqlite3.connect(folder / "registry.db")) as registry:
        (fingerprint,) = registry.execute("SELECT value FROM meta WHERE name = 'fingerprint'").fetchone()
    return MqttBus(nats_config.endpoint(folder / "secrets", running.port, "viewer"), topics.root(fingerprint))


def compare(released: Installation, folder: Path) -> list[str]:
    """Every line that only one of both has: `-` for the released version, `+` for this one."""
    old, new = traces(released, folder / "old"), traces(current(), folder / "new")
    found = []
    for before, after in ((old.messages, new.messages), (old.files, new.files)):
        found += [f"- {line}" for line in sorted(before - after)] + [f"+ {line}" for line in sorted(after - before)]
    return [line for line in found if not any(re.fullmatch(pattern, line) for pattern in ALLOWED)]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mam-wire-") as folder:
        found = compare(install(Path(folder) / "released"), Path(folder))
    print("\n".join([*found, f"{len(found)} differences on the wire and in .mam"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
