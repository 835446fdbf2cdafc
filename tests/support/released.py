"""
What each schema left behind: database, audit log and files, made with the SQL of the wheel of MAM 0.1.0.

None of it comes from this tree, so it stays what it was. The rows are one control root in the middle of its work:
agents alive, stopped and ended, loops working, reviewing, stuck and passed, jobs in each state, some archived, and
rows that were dropped.
"""

import base64
import hashlib
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WHEEL = Path(__file__).parents[1] / "fixtures" / "multi_agent_mux-0.1.0-py3-none-any.whl"
ROOT = "/fixture/root"  # stands for the control root that a registry is written for
AT = 1_790_000_000_000  # ms since 1970: when it all began
SHA = {name: hashlib.sha1(name.encode()).hexdigest() for name in ("base", "first", "second")}

Row = dict[str, Any]
Change = tuple[str, str, Row | None]  # table, key, the row or that it was dropped


def released() -> tuple[str, ...]:
    """The scripts that MAM 0.1.0 made its registry with, one a schema."""
    with zipfile.ZipFile(WHEEL) as wheel:
        text = wheel.read("mam/control_plane/schema.py").decode()
    names: dict[str, Any] = {}
    exec(text, names)
    scripts: tuple[str, ...] = names["MIGRATIONS"]
    return scripts


def _session(name: str, role: str, status: str, **more: Any) -> Change:
    binding = {
        "WORKSPACE_ROOT": ROOT,
        "AGENT_SESSIONS_YAML": f"{ROOT}/.mam/agent-sessions.yaml",
        "MAM_JOBS_DIR": f"{ROOT}/.mam/jobs",
        "DELEGATE_JOB_LOGS_DIR": f"{ROOT}/.mam/logs",
        "MAM_ENV_FILE": f"{ROOT}/.mam.env",
    }
    row = {
        "name": name, "agent": "scripted", "role": role, "status": status, "generation": 1, "incarnation": "0001",
        "mux": "headless", "mux_server": f"{ROOT}/.mam/run/headless", "pane": f"p-{name}", "cwd": ROOT, "program": "",
        "args": json.dumps(["--script", f"{ROOT}/plays/{name}.json"]), "binding": json.dumps(binding),
        "conversation": None, "created_at": AT, "updated_at": AT, **more,
    }  # fmt: skip
    return "sessions", name, row


def _job(name: str, session: str, state: str, **more: Any) -> Change:
    row = {
        "id": name, "topic_prefix": "mam/0123456789ab/jobs", "title": f"do {name}", "session": session, "state": state,
        "attempt": 1, "folder": f"{ROOT}/.mam/jobs/{name}", "brief_sha256": hashlib.sha256(name.encode()).hexdigest(),
        "started_within_s": 120.0, "deliver_within_s": 60.0, "limit_s": 14400.0, "heartbeat_misses": 6,
        "created_at": AT, "updated_at": AT, "late": 0, **more,
    }  # fmt: skip
    return "jobs", name, row


def _attempt(job: str, session: str, **more: Any) -> Change:
    return "attempts", f"{job}/1", {"job": job, "attempt": 1, "session": session, "created_at": AT, **more}


def _loop(name: str, state: str, rounds: list[Row], **more: Any) -> Change:
    checkpoint = {
        "reviewers": ["reader", "other"], "creator": "writer", "rounds_max": 3, "phase": state, "rounds": rounds,
        "outcome": more.get("outcome"), "detail": more.get("detail") or "", "back_to": more.pop("back_to", None),
        "promoted": "",
    }  # fmt: skip
    row = {
        "id": name, "state": state, "generation": len(rounds) + 1, "worktree": f"{ROOT}.worktrees/{name}",
        "branch": name, "base_sha": SHA["base"], "creator": "writer", "reviewers": json.dumps(["reader", "other"]),
        "isolation": "worktree", "promote": "none", "title": f"change {name}", "folder": f"{ROOT}/.mam/loops/{name}",
        "checkpoint": json.dumps(checkpoint), "created_at": AT, "updated_at": AT, "round": len(rounds), **more,
    }  # fmt: skip
    return "loops", name, row


def _round(number: int, *verdicts: str | None, head: str = "", work_attempt: int = 1) -> Row:
    reviews = [
        {"reviewer": who, "attempt": 1, "verdict": verdict, "why": "", "given_up": False}
        for who, verdict in zip(("reader", "other"), verdicts, strict=False)
    ]
    base = SHA["base"] if head else ""
    return {"number": number, "work": True, "work_attempt": work_attempt, "base": base, "head": head, "tip": head,
            "captured": False, "reviews": reviews, "stale": False}  # fmt: skip


def _tree(name: str, state: str) -> Change:
    row = {
        "name": name, "path": f"{ROOT}.worktrees/{name}", "branch": name, "base_sha": SHA["base"], "state": state,
        "new_branch": 1, "created_at": AT, "updated_at": AT,
    }  # fmt: skip
    return "worktrees", name, row


def changes() -> Iterator[Change]:
    """Everything that was changed, in order: as the audit of the newest schema would hold it."""
    meta = {"fingerprint": "0123456789ab", "salt": "5a" * 16, "control_root": ROOT, "slug": "root",
            "created_at": str(AT), "main_branch": "main"}  # fmt: skip
    for name, value in meta.items():
        yield "meta", name, {"name": name, "value": value}
    yield _session("writer", "creator", "starting")
    alive = {"pid": 4_000_001, "pid_start": "100", "boot_id": "gone", "agent_pid": 4_000_002, "agent_start": "101"}
    yield _session("writer", "creator", "running", **alive, version="0.1.0", presence="online", screen="working")
    yield _session("reader", "reviewer", "running", **alive, presence="online", screen="idle", hook="busy", hook_at=AT)
    yield _session("other", "reviewer", "running", **alive, presence="offline")
    yield _session("third", "creator,reviewer", "running", **alive)
    yield _session("away", "creator", "stopped", ended_reason="stopped by a person", exit_code=0)
    yield _session("fallen", "creator", "ended", ended_reason="its runner is gone")
    yield _session("purged", "creator", "running")
    yield "sessions", "purged", None
    yield from _jobs()
    yield from _loops()
    yield "findings", "stalled/job-running", {
        "code": "stalled", "subject": "job-running", "since": AT, "text": "no progress for 600 s",
    }  # fmt: skip
    lease = {"resource": "session:reader", "holder": "loop-reviewing", "token": 3, "renewals": 9, "ttl_s": 60.0}
    yield "leases", "session:reader", {**lease, "since": AT, "usual_s": 12.5}
    ticket = {"id": "t-1", "seq": 4, "holder": "loop-stuck", "names": '["session:reader"]', "pool": "[]", "count": 0}
    yield "tickets", "t-1", {**ticket, "priority": 1, "ttl_s": 60.0, "asked_at": AT, "renewals": 2}
    question = {"id": "q-1", "job": "job-running", "attempt": 1, "question": "which ö?", "choices": '["a", "b"]'}
    yield "questions", "q-1", {**question, "asked_at": AT, "timeout_s": 60.0, "fallback": "a"}
    yield "questions", "q-2", {**question, "id": "q-2", "asked_at": AT, "answered_at": AT, "answer": "b"}


def _jobs() -> Iterator[Change]:
    yield _job("job-archived", "third", "queued")
    yield _job("job-archived", "third", "reported", result="done", summary="it is done", ended_at=AT, archived_at=AT)
    yield _attempt("job-archived", "third", delivery="delivered", ended_at=AT)
    yield _job("job-lost", "fallen", "running")
    yield _job("job-lost", "fallen", "lost", detail="its runner is gone", ended_at=AT)
    yield _attempt("job-lost", "fallen", delivery="delivered", started_at=AT, ended_at=AT)
    yield _job("job-late", "away", "reported", result="done", late=1, report_sha256="ab" * 32, report_bytes=9)
    yield _attempt("job-late", "away", delivery="unknown", delivery_reason="restarted", ended_at=AT)
    yield _job("job-running", "third", "queued")
    message = {"id": "job-running/1", "session": "third", "kind": "dispatch", "job": "job-running", "attempt": 1}
    yield "outbox", "job-running/1", {**message, "incarnation": None, "data": "{}", "created_at": AT}
    yield _job("job-running", "third", "running", retries=1)
    yield "outbox", "job-running/1", None
    yield _attempt("job-running", "third", delivery="delivered", started_at=AT, heartbeat_s=10.0)
    cancel = {"id": "c-1", "session": "away", "kind": "cancel", "job": "job-late", "attempt": 1, "incarnation": "0001"}
    yield "outbox", "c-1", {**cancel, "data": "{}", "created_at": AT}


def _loops() -> Iterator[Change]:
    for name, state in (("loop-working", "ready"), ("loop-reviewing", "ready"), ("loop-stuck", "ready")):
        yield _tree(name, "preparing")
        yield _tree(name, state)
    yield _tree("loop-passed", "removed")
    yield _loop("loop-working", "working", [])
    yield _loop("loop-working", "working", [_round(1)])
    yield _job("loop-working-w1", "writer", "running", loop="loop-working", round=1)
    yield _attempt("loop-working-w1", "writer", delivery="delivered", started_at=AT)
    yield "steps", "loop-working/work-1", {"loop": "loop-working", "step": "work-1", "state": "begun", "at": AT}
    seen = {"base_sha": SHA["base"], "head_sha": SHA["first"]}
    yield _loop("loop-reviewing", "reviewing", [_round(1, None, "pass", head=SHA["first"])], head_sha=SHA["first"])
    yield _job("loop-reviewing-r1-reader", "reader", "dispatched", loop="loop-reviewing", round=1, **seen)
    yield _attempt("loop-reviewing-r1-reader", "reader")
    passed = {"verdict": "pass", "result": "done", "seen_sha": SHA["first"]}
    yield _job("loop-reviewing-r1-other", "other", "reported", loop="loop-reviewing", round=1, **seen, **passed)
    yield _attempt("loop-reviewing-r1-other", "other", delivery="delivered", ended_at=AT)
    mark = {"loop": "loop-reviewing", "step": "review-1-reader", "state": "begun", "at": AT, "detail": "1"}
    yield "steps", "loop-reviewing/review-1-reader", mark
    why = "writer did not report"
    yield _loop("loop-stuck", "stuck", [_round(1, work_attempt=2)], detail=why, back_to="working", priority=5)
    rounds = [_round(1, "not_pass", "pass", head=SHA["first"]), _round(2, "pass", "pass", head=SHA["second"])]
    ended = {"outcome": "passed", "ended_at": AT, "head_sha": SHA["second"]}
    yield _loop("loop-passed", "ended", rounds, **ended)
    yield _loop("loop-passed", "ended", rounds, **ended, archived_at=AT)


def events() -> Iterator[Row]:
    """Stored events; what an archived job said is in the log alone."""
    for seq, (job, kind) in enumerate((("job-archived", "started"), ("job-running", "started"),
                                       ("job-running", "progress")), 1):  # fmt: skip
        wire = f"a message of {job}: {kind}"
        yield {
            "seq": seq, "arrived_at": AT, "id": f"e-{seq}", "topic": f"jobs/{job}", "scope": f"jobs/{job}",
            "kind": kind, "attempt": 1, "producer": "verb", "slot": seq, "outcome": "applied",
            "wire_sha256": hashlib.sha256(wire.encode()).hexdigest(), "wire": wire.encode(),
        }  # fmt: skip


def write(mam: Path, version: int) -> None:
    """Write registry, log and files of schema *version* into the folder `.mam` of a control root, which is empty."""
    root = str(mam.parent)
    made = _fill(mam / "registry.db", released()[:version], root)
    try:
        (mam / "audit.jsonl").write_text(_log(made), "utf-8")
        for name, text in _files(made, root):
            (mam / name).parent.mkdir(parents=True, exist_ok=True)
            (mam / name).write_text(text, "utf-8")
    finally:
        made.close()


def _fill(path: Path, scripts: tuple[str, ...], root: str) -> sqlite3.Connection:
    """A registry as the schema of these *scripts* held it: tables and columns that it lacks are left out."""
    made = sqlite3.connect(path, isolation_level=None)
    for script in scripts:
        made.executescript(script)
    made.execute(f"PRAGMA user_version = {len(scripts)}")
    made.execute("BEGIN")
    tables = {name for (name,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, key, row in changes():
        if table in tables:
            _change(made, table, key, row and {name: _at(value, root) for name, value in row.items()})
    for event in events():
        if event["scope"] != "jobs/job-archived":
            names, marks = ", ".join(event), ", ".join("?" * len(event))
            made.execute(f"INSERT INTO events ({names}) VALUES ({marks})", tuple(event.values()))
    made.execute("COMMIT")
    return made


def _at(value: Any, root: str) -> Any:
    return value.replace(ROOT, root) if isinstance(value, str) else value


def _change(made: sqlite3.Connection, table: str, key: str, row: Row | None) -> None:
    text = None
    columns = made.execute(f"PRAGMA table_info({table})").fetchall()
    if row is None:
        made.execute(f"DELETE FROM {table} WHERE {columns[0][1]} = ?", (key,))
    else:
        known = {name: row.get(name, 0 if default == "0" else None) for _, name, _, _, default, _ in columns}
        marks = ", ".join("?" * len(known))
        made.execute(f"REPLACE INTO {table} ({', '.join(known)}) VALUES ({marks})", tuple(known.values()))
        text = json.dumps(known, ensure_ascii=False)
    made.execute("INSERT INTO audit (at, by, tbl, key, row) VALUES (?, 'cli', ?, ?, ?)", (AT, table, key, text))


def _log(made: sqlite3.Connection) -> str:
    """`audit.jsonl` of a registry: each line chained to the one before."""
    rows = made.execute("SELECT seq, at, by, tbl, key, row FROM audit ORDER BY seq")
    entries: list[Row] = [dict(zip(("a", "at", "by", "t", "k", "row"), row, strict=True)) for row in rows]
    for event in events():
        entries.append({"e": event["seq"], "event": {**event, "wire": base64.b64encode(event["wire"]).decode()}})
    chain, lines = "0" * 64, []
    for entry in entries:
        text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
        chain = hashlib.sha256(f"{chain} {text}".encode()).hexdigest()
        lines.append(f"{chain} {text}\n")
    return "".join(lines)


def _files(made: sqlite3.Connection, root: str) -> Iterator[tuple[str, str]]:
    """The files below `.mam` that belong to the rows: path and text."""
    for name, folder, title in made.execute("SELECT id, folder, title FROM jobs").fetchall():
        place = folder.removeprefix(f"{root}/.mam/")
        record = {"job": name, "attempt": 1, "topic_prefix": "mam/0123456789ab/jobs", "report": f"{folder}/report.md"}
        yield f"{place}/brief.md", f"# {title}\n"
        yield f"{place}/job.json", json.dumps(record)
        yield f"secrets/job-{name}.key", hashlib.sha256(name.encode()).hexdigest()
    for name, folder in made.execute("SELECT id, folder FROM loops").fetchall() if _has_loops(made) else ():
        place = folder.removeprefix(f"{root}/.mam/")
        yield f"{place}/task.md", f"change {name}\n"
        yield f"{place}/timeline.md", "- 2026-09-21T00:00:00Z begun\n"


def _has_loops(made: sqlite3.Connection) -> bool:
    return made.execute("SELECT name FROM sqlite_master WHERE name = 'loops'").fetchone() is not None
