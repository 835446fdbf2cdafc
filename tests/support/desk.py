"""A control root without processes: its files, its registry, its keys, and messages made by hand."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mam.broker.envelope import keys, topics
from mam.broker.envelope.payloads import Producer, now_ms
from mam.broker.envelope.signing import seal
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import create
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.inbox import Inbox, Settling
from mam.control_plane.registry.records import Job, Session


class Desk:
    """Everything that the inbox needs, and a hand that writes messages."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
        settings = config.Settings(environ, environ, folder)
        self.mam = Mam(settings, layouts.layout(settings, str(folder)), by="test")
        create.make(self.mam.layout, self.mam.settings.environ, in_git=False)
        self.clock = now_ms()
        self.keyring = Keyring(self.mam.layout)
        self.inbox = Inbox(self.mam.registry, self.keyring, clock=lambda: self.clock)
        self.agent = Producer("verb")
        self.runner = Producer("runner")

    def session(self, name: str = "writer", **changes: Any) -> Session:
        layout = self.mam.layout
        (layout.run_dir(name) / "outbox").mkdir(parents=True)
        keys.create(layout.session_key(name))
        row = Session(
            name=name,
            agent="scripted",
            role="creator",
            status="running",
            generation=1,
            incarnation="0001",
            mux="headless",
            mux_server=str(layout.run / "headless"),
            pane="p1",
            cwd=str(layout.root),
            program="",
            args="[]",
            binding=json.dumps(layout.binding()),
            conversation=None,
            created_at=self.clock,
            updated_at=self.clock,
        )
        row = replace(row, **changes)
        with self.mam.registry.transaction() as tx:
            tx.put(row)
        return row

    def job(self, session: str = "writer", job_id: str = "job-00000001") -> Job:
        return delegation.delegate(self.mam, session, "do it", job_id=job_id)

    def wire(
        self, of: str, kind: str, data: Mapping[str, Any] | None = None, *, attempt: int = 1, **body: Any
    ) -> bytes:
        event = {**self.agent.job_event(of, attempt, kind, data or {}), **body}
        token = keys.load(self.mam.layout.job_key(of))
        return seal(event, token=token, use="event-mac", scope=of, topic=topics.job(of))

    def report(self, job: Job, text: str = "all done\n", **data: Any) -> bytes:
        path = Path(job.report_path)
        path.write_text(text, "utf-8")
        said = {"result": "done", "verdict": None, **data}
        return self.wire(
            job.id, "report", {**said, "report_sha256": _sha(text), "report_bytes": len(text)}, attempt=job.attempt
        )

    def runtime(
        self, name: str, kind: str, data: Mapping[str, Any], *, job: str | None = None, attempt: int = 0
    ) -> bytes:
        topic = topics.presence(name) if kind == "presence" else topics.events(name)
        body = self.runner.session_message(name, kind, data, job=job, attempt=attempt)
        return seal(body, token=keys.load(self.mam.layout.session_key(name)), use="rt", scope=name, topic=topic)

    def take(self, job: str, *wires: bytes) -> list[str]:
        """Bring events of one job and return their outcomes."""
        return [s.outcome for s in self.settle([(topics.job(job), wire) for wire in wires])]

    def settle(self, batch: list[tuple[str, bytes]]) -> list[Settling]:
        return self.inbox.take(batch)

    def row(self, job: str) -> Job:
        with self.mam.registry.view() as view:
            return jobs.need(view, job)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
