"""What must be true when everything has come to rest: nothing lost, nothing doubled, nothing left behind."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from mam.broker import spool
from mam.broker.envelope import topics
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import verify
from mam.control_plane.maintenance import doctor
from mam.control_plane.registry import audit
from mam.control_plane.registry.queries import pages
from mam.control_plane.registry.records import LIVE, Attempt, Job
from mam.control_plane.sessions import runtime
from tests.support.soaking.scripts import Planned
from tests.support.soaking.strikes import pane_host, tmux_server

_PROMPT = re.compile(r"\[MAM job (\S+), attempt (\d+)\]")


def all_of(mam: Mam, ended: dict[str, Planned], answers: Path) -> list[str]:
    """Every claim that does not hold, in words; empty where all do."""
    parts = (_rows, _events, _audit, _deliveries, _signatures, _rest, _processes, _logs)
    found = [problem for part in parts for problem in part(mam)]
    return [*found, *_ends(mam, ended), *_answers(mam, answers), *_doctor(mam)]


def _ends(mam: Mam, ended: dict[str, Planned]) -> Iterator[str]:
    """What had come to its end as its script says still shows that end."""
    with mam.registry.view() as view:
        for job_id, planned in ended.items():
            job = view.job(job_id)
            if job is None or not planned.kind.ends(job):
                yield f"{job_id} ({planned.kind.name}) ended, and then it became {job}"
        unknown = {job.id for job in view.jobs()} - ended.keys()
    if unknown:
        yield f"jobs that nobody handed out, or that never ended: {sorted(unknown)[:5]}"


def _answers(mam: Mam, answers: Path) -> Iterator[str]:
    """Every report that `mam job report` acknowledged is in the registry."""
    lines = answers.read_text("utf-8").splitlines() if answers.exists() else []
    said = {line["event"]: line for line in map(json.loads, lines)}
    with mam.registry.view() as view:
        known = {row[0] for row in view.connection.execute("SELECT id FROM events WHERE kind = 'report'")}
    for event_id in said.keys() - known:
        yield f"acknowledged and not recorded: {said[event_id]}"


def _rows(mam: Mam) -> Iterator[str]:
    with mam.registry.view() as view:
        answer = view.connection.execute("PRAGMA integrity_check").fetchone()[0]
        if answer != "ok":
            yield f"integrity_check: {answer}"
        for job in view.open_jobs():
            yield f"{job.id} is still {job.state}"
        for order in view.outbox():
            yield f"an order is left: {order.kind} {order.id}"
        for attempt in view.rows(Attempt, "WHERE ended_at IS NULL"):
            yield f"attempt {attempt.attempt} of {attempt.job} has no end"
        for finding in view.findings():
            yield f"finding {finding.code} {finding.subject}: {finding.text}"
        for session in view.sessions():
            if session.status not in LIVE or session.presence != "online":
                yield f"{session.name} is {session.status}, {session.presence}: {session.ended_reason}"


def _events(mam: Mam) -> Iterator[str]:
    with mam.registry.view() as view:
        query = "SELECT id, count(*) FROM events GROUP BY id HAVING count(*) > 1"
        for event_id, times in view.connection.execute(query):
            yield f"event {event_id} is stored {times} times"
        query = "SELECT scope, attempt, count(*) FROM events WHERE kind = 'report' AND outcome = 'accepted' "
        for scope, attempt, times in view.connection.execute(f"{query} GROUP BY scope, attempt HAVING count(*) > 1"):
            yield f"{times} reports of {scope}, attempt {attempt} were accepted"


def _audit(mam: Mam) -> Iterator[str]:
    """audit.jsonl: an unbroken chain that holds each event and each change once, and whose replay gives the rows."""
    chain, ids, numbers = "0" * 64, Counter[str](), Counter[int]()
    jobs: dict[str, str] = {}
    with (mam.layout.mam / "audit.jsonl").open(encoding="utf-8") as file:
        for line in file:
            mark, _, text = line.rstrip("\n").partition(" ")
            chain = audit.link(chain, text)
            if mark != chain:
                yield f"the audit's chain breaks at {text[:100]}"
                return
            entry = json.loads(text)
            if "e" in entry:
                ids[entry["event"]["id"]] += 1
            else:
                numbers[entry["a"]] += 1
                jobs |= {entry["k"]: entry["row"]} if entry["t"] == "jobs" else {}
    yield from (f"event {event_id} is {times} times in the audit" for event_id, times in ids.items() if times > 1)
    yield from (f"change {number} is {times} times in the audit" for number, times in numbers.items() if times > 1)
    with mam.registry.view() as view:
        stored = {row[0] for row in view.connection.execute("SELECT id FROM events")}
        changes = {row[0] for row in view.connection.execute("SELECT seq FROM audit")}
        rows = {job.id: dict(zip(job.columns(), job.values(), strict=True)) for job in view.rows(Job)}
    if stored != ids.keys() or changes != numbers.keys():
        yield f"the audit holds {len(ids)} events of {len(stored)} and {len(numbers)} changes of {len(changes)}"
    if rows != {key: json.loads(row) for key, row in jobs.items()}:
        yield "a replay of the audit does not give the jobs of the registry"


def _deliveries(mam: Mam) -> Iterator[str]:
    """The agents remember every prompt: each attempt was heard once at most, and a reported one once."""
    heard: Counter[tuple[str, int]] = Counter()
    for memory in mam.layout.run.glob("*/memory.json"):
        try:
            prompts = json.loads(memory.read_text("utf-8"))
        except ValueError:
            yield f"{memory} is no memory"
            continue
        for prompt in prompts:
            heard.update((job, int(attempt)) for job, attempt in _PROMPT.findall(prompt))
    for (job_id, attempt), times in heard.items():
        if times > 1:
            yield f"attempt {attempt} of {job_id} was delivered {times} times"
    with mam.registry.view() as view:
        for job in view.jobs(states=("reported",)):
            if (job.id, job.attempt) not in heard:
                yield f"{job.id} was reported in an attempt that no agent heard of"


def _signatures(mam: Mam) -> Iterator[str]:
    with mam.registry.view() as view:
        for job in view.jobs():
            verified = verify.verify(mam.layout, view, job.id)
            if not verified.ok:
                yield f"mam verify {job.id}: {[check for check in verified.checks if not check.ok]}"
        stored = sum(1 for _ in pages(view))
        jobs = {topics.job(job.id) for job in view.jobs()} | {topics.events(row.name) for row in view.sessions()}
        foreign = view.connection.execute("SELECT DISTINCT scope FROM events").fetchall()
    if unknown := {row[0] for row in foreign} - jobs:
        yield f"{stored} events, some of nobody: {sorted(unknown)[:5]}"


def _rest(mam: Mam) -> Iterator[str]:
    """Nothing waits in a spool, nothing half-written lies about, no key without its job."""
    for folder in mam.layout.run.glob("*/outbox"):
        yield from (f"{entry.path} waits" for entry in spool.entries(folder))
    yield from (f"could not be authenticated {path}" for path in mam.layout.run.glob("*/dead/*"))


def _processes(mam: Mam) -> Iterator[str]:
    """Whoever runs for this control root is named by the registry: no life of the past goes on unseen."""
    with mam.registry.view() as view:
        rows = view.sessions()
    known, running = monitor_process.look(mam.layout), nats_server.running(mam.layout.broker)
    tmux = tmux_server(mam)
    named = {known.process.pid if known else 0, running.pid if running else 0, tmux.pid if tmux else 0}
    for row in rows:
        named |= {
            identity.pid for identity in (runtime.runner_id(row), runtime.agent_id(row), pane_host(row)) if identity
        }
    for process in psutil.process_iter(["cmdline", "pid"]):
        words = process.info["cmdline"] or []
        if any(str(mam.layout.mam) in word for word in words) and process.pid not in named:
            yield f"pid {process.pid} runs, and no row names it: {' '.join(words)[:150]}"


def _logs(mam: Mam) -> Iterator[str]:
    """Nobody sends what must be refused here, and no process ends with a defect."""
    for path in mam.layout.logs.iterdir():
        lines = path.read_text("utf-8", "replace").splitlines()
        odd = [line for line in lines if "refused" in line or "Traceback" in line or "ERROR" in line]
        if odd:
            yield f"{len(odd)} odd lines in {path.name}, first: {odd[0]}"


def _doctor(mam: Mam) -> Iterator[str]:
    """`mam doctor` finds nothing broken, once it has set aside what killed delegates left, as it says itself."""
    try:
        findings = doctor.examine(mam)
        doctor.repair(mam, [finding for finding in findings if finding.state == "broken"])
        for finding in doctor.examine(mam):
            if finding.state != "fine" and finding.what != "agent CLIs":  # a soak needs none
                yield f"doctor: {finding.what} is {finding.state}: {finding.detail}"
    except sqlite3.Error as error:
        yield f"doctor: {error}"
