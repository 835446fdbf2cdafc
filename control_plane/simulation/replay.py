"""
Recorded events as lines, and played again: duplicated, shuffled, delayed by seed, into a registry of their own.

Whatever order and however often they come, a job must end as it was recorded
to end. Nothing of the real registry is touched.
"""

import base64
import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from mam.broker.envelope import topics
from mam.broker.errors import FileRefused
from mam.control_plane.config.layout import Layout
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs.jobs import need
from mam.control_plane.messaging.inbox import Inbox
from mam.control_plane.registry.queries import View, pages
from mam.control_plane.registry.records import Attempt, Job
from mam.control_plane.registry.transactions import Registry

FORMAT = "mam-events/1"
BATCH = 64


class Tale(NamedTuple):
    """One job of an export: its row and attempts as they ended, and its events as they came."""

    job: Job
    attempts: list[Attempt]
    wires: list[bytes]


class Played(NamedTuple):
    """How one job ended when its events were played again."""

    job: str
    recorded: str
    replayed: str
    delivered: int
    counted: int

    @property
    def same(self) -> bool:
        return self.recorded == self.replayed


def export(view: View, job_ids: Sequence[str]) -> Iterator[str]:
    """Lines of JSON: a job's rows, then its events with their exact bytes. Raises UnknownJob."""
    yield json.dumps({"format": FORMAT})
    for job_id in job_ids:
        job = need(view, job_id)
        attempts = view.rows(Attempt, "WHERE job = ? ORDER BY attempt", (job_id,))
        yield json.dumps({"job": asdict(job), "attempts": [asdict(each) for each in attempts]}, ensure_ascii=False)
        for event in pages(view, topics.job(job_id)):
            said = {name: event[name] for name in ("arrived_at", "kind", "attempt", "outcome")}
            yield json.dumps({"of": job_id, **said, "wire": base64.b64encode(event["wire"]).decode()})


def read(path: Path) -> list[Tale]:
    """What `export` wrote. Raises FileRefused, naming the line."""
    tales: dict[str, Tale] = {}
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                _take(json.loads(line), number, tales)
        if not tales:
            raise ValueError("no job is in it, so nothing could be compared")
    except (OSError, ValueError, TypeError, KeyError) as error:
        hint = "`mam events export` writes such a file"
        raise FileRefused(path=f"{path}:{number}", why=str(error)[:200] or "it is none", hint=hint) from error
    return list(tales.values())


def _take(said: Any, number: int, tales: dict[str, Tale]) -> None:
    if number == 1:
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            raise ValueError(f"it is not {FORMAT}")
    elif "job" in said:
        job = Job(**said["job"])
        tales[job.id] = Tale(job, [Attempt(**each) for each in said["attempts"]], [])
    else:
        tales[said["of"]].wires.append(base64.b64decode(said["wire"], validate=True))


def play(layout: Layout, tales: Sequence[Tale], *, seed: int, duplicate: float, delay: float) -> list[Played]:
    """
    Play all events in one bad order: some twice, some only after all others, and everything shuffled among jobs.

    The keys are those of this control root, where the jobs must not be archived.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="mam-replay-") as folder:
        registry = Registry(Path(folder) / "registry.db", Path(folder) / "registry.lock", by="replay")
        registry.create(control_root=folder)
        with registry.transaction() as tx:
            # What an agent did one after the other lies side by side here, until its events end it again.
            tx.connection.execute("DROP INDEX one_open_job")
            for tale in tales:
                tx.put(_before(tale.job))
                for attempt in tale.attempts:
                    tx.put(Attempt(attempt.job, attempt.attempt, attempt.session, attempt.created_at))
        delivered: dict[str, int] = defaultdict(int)
        inbox = Inbox(registry, Keyring(layout))
        messages = _order(tales, chance, duplicate, delay)
        for at in range(0, len(messages), BATCH):
            batch = messages[at : at + BATCH]
            for topic, _ in batch:
                delivered[topic] += 1
            inbox.take(batch)
        with registry.view() as view:
            return [_told(view, tale, delivered[topics.job(tale.job.id)]) for tale in tales]


def _before(job: Job) -> Job:
    """The job's row before its agent said anything in its last attempt; what a person cancelled stays so."""
    if job.state == "cancelled":
        return job
    ended = {"ended_at": None, "result": None, "verdict": None, "detail": None, "summary": None, "late": 0}
    return replace(job, state="dispatched", report_sha256=None, report_bytes=None, seen_sha=None, **ended)  # type: ignore[arg-type]


def _order(tales: Sequence[Tale], chance: random.Random, duplicate: float, delay: float) -> list[tuple[str, bytes]]:
    now: list[tuple[str, bytes]] = []
    later: list[tuple[str, bytes]] = []
    for tale in tales:
        for wire in tale.wires:
            message = (topics.job(tale.job.id), wire)
            (later if chance.random() < delay else now).append(message)
            while chance.random() < duplicate:
                now.append(message)
    chance.shuffle(now)
    chance.shuffle(later)
    return now + later


def _told(view: View, tale: Tale, delivered: int) -> Played:
    played = need(view, tale.job.id)
    counted = len(view.events(scope=topics.job(tale.job.id), limit=-1))
    return Played(tale.job.id, _words(tale.job, tale), _words(played, tale), delivered, counted)


def _words(job: Job, tale: Tale) -> str:
    """How a job ended, by what its agent said alone: limits and people are no part of a replay."""
    if job.state == "reported":
        return f"reported {job.result} {job.verdict or '-'} {(job.report_sha256 or '')[:12]}"
    return "not reported"
