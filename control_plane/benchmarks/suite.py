"""Measures this installation. Figures are ratios or medians of one run: absolute times say more about the machine."""

import json
import multiprocessing
import os
import statistics
import subprocess  # noqa: TID251 (what is measured is the start of processes itself)
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mam.agents import catalog
from mam.broker.envelope import keys
from mam.broker.envelope.payloads import now_ms
from mam.broker.nats import process as nats_server
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import create, monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.registry.records import Attempt, Job, Session
from mam.control_plane.registry.transactions import Registry
from mam.control_plane.sessions import lifecycle, readiness, runtime, sessions
from mam.control_plane.sessions.lookup import need_session


class Figure(NamedTuple):
    what: str
    value: str
    budget: str
    met: bool


@contextmanager
def place(**environ: str) -> Generator[Mam]:
    """A control root of its own for one measurement; everything that was started in it is ended."""
    with tempfile.TemporaryDirectory(prefix="mam-bench-") as folder:
        path = Path(folder) / "root"
        path.mkdir()
        settings = config.load()
        values = {k: v for k, v in settings.environ.items() if not k.startswith("MAM_") and k not in config.BINDING}
        settings = config.Settings({**values, **environ}, {**values, **environ}, path)
        mam = Mam(settings, config.layout(settings, str(path)), by="bench")
        create.make(mam.layout, in_git=False)
        try:
            yield mam
        finally:
            with mam.registry.view() as view:
                names = [session.name for session in view.sessions() if session.pane]
            for name in names:
                lifecycle.stop(mam, name, force=True)
            monitor_process.end(mam.layout)
            nats_server.stop(mam.layout.broker)


def session_row(name: str, mam: Mam, **more: object) -> Session:
    now = now_ms()
    binding, server_folder = json.dumps(mam.layout.binding()), str(mam.layout.run / "headless")
    fixed = (
        name,
        "scripted",
        "creator",
        "running",
        1,
        "1",
        "headless",
        server_folder,
        "",
        str(mam.layout.root),
        "",
        "[]",
    )
    return Session(*fixed, binding, None, now, now, **more)  # type: ignore[arg-type]


def job_row(job_id: str, mam: Mam, session: str, state: str) -> Job:
    now = now_ms()
    folder = str(mam.layout.jobs / job_id)
    return Job(job_id, "mam/0/jobs", "bench", session, state, 1, folder, "0" * 64, 120, 60, 3600, 6, now, now)


def fill(mam: Mam, session_count: int, job_count: int) -> None:
    """Rows only: what a reader has to go through."""
    with mam.registry.transaction() as tx:
        for n in range(session_count):
            tx.put(session_row(f"agent-{n}", mam))
        for n in range(job_count):
            job = job_row(f"job-{n:08d}", mam, f"agent-{n % max(1, session_count)}", "reported")
            tx.put(job)
            tx.put(Attempt(job.id, 1, job.session, job.created_at, started_at=job.created_at))


def _wall(argv: Sequence[str], cwd: Path) -> float:
    began = time.perf_counter()
    subprocess.run(argv, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def cli(runs: int = 21) -> list[Figure]:
    """Whole processes against `python3 -c pass`, in turn, so that a slow moment of the machine hits both."""
    with place() as mam:
        fill(mam, 100, 10_000)
        job = job_row("job-heartbeat", mam, "agent-0", "running")
        Path(job.folder).mkdir()
        keys.create(mam.layout.job_key(job.id))
        delegation.write_record(mam.layout, job)
        run_dir = mam.layout.run_dir("agent-0")
        (run_dir / "outbox").mkdir(parents=True)
        os.mkfifo(run_dir / "wake")
        reader = os.open(run_dir / "wake", os.O_RDWR | os.O_NONBLOCK)  # a runner that is alive
        where = ["--registry-dir", str(mam.layout.jobs), "--job", job.id, "--attempt", "1"]
        commands = {
            "`mam job heartbeat`": ([mam.command, "job", "heartbeat", *where], 3.0),
            "`mam --help`": ([mam.command, "--help"], 4.0),
            "`mam status --json`, 100 sessions, 10 000 jobs": (
                [mam.command, "status", "--json", "--root", str(mam.layout.root)],
                8.0,
            ),
        }
        bare = [sys.executable, "-c", "pass"]
        found = []
        for what, (argv, budget) in commands.items():
            pairs = [(_wall(argv, mam.layout.root), _wall(bare, mam.layout.root)) for _ in range(runs)]
            ratio = statistics.median(a / b for a, b in pairs)
            found.append(Figure(what, f"{ratio:.1f} × `python3 -c pass`", f"≤ {budget:g} ×", ratio <= budget))
        os.close(reader)
    return found


def deliver(count: int = 20, mux: str = "auto") -> list[Figure]:
    """From delegate's commit to the submitted prompt, in a ready pane; the pause before Enter is part of it."""
    with place() as mam:
        monitor_process.ensure(mam)
        sessions.create(mam, sessions.AgentRequest("writer", "scripted", mux=mux))
        session = readiness.await_ready(mam, "writer", wait_s=30)
        taken_ms = []
        for _ in range(count):
            job = delegation.delegate(mam, "writer", "bench")
            while jobs.exit_code(job) is None:
                time.sleep(0.01)
                with mam.registry.view() as view:
                    job, attempt = jobs.need(view, job.id), view.attempt(job.id, 1)
            assert attempt is not None and attempt.delivered_at is not None
            taken_ms.append(attempt.delivered_at - attempt.created_at)
            _await_prompt(mam)
        pause_s = catalog.find("scripted").submit_pause_s
        # Other agents need 0.31 s between paste and Enter; the rest is the same.
        over = [taken / 1000 - pause_s + 0.31 for taken in taken_ms]
        p50, p95 = statistics.median(over), sorted(over)[int(len(over) * 0.95) - 1]
        known = monitor_process.look(mam.layout)
        assert known is not None and session.pid is not None
        idle = idling({"runner": (session.pid, 48, 0.1), "monitor": (known.process.pid, 150, 0.5)})
    what = f"commit → submitted in {session.mux}, with a pause of 0.31 s"
    return [Figure(what, f"p50 {p50:.2f} s, p95 {p95:.2f} s", "≤ 0.5 s, ≤ 0.8 s", p50 <= 0.5 and p95 <= 0.8), *idle]


def _await_prompt(mam: Mam) -> None:
    """Until the agent takes the next prompt: its own time is not what is measured."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with mam.registry.view() as view:
            session = need_session(view, "writer")
        if runtime.multiplexer(mam, session).screen(session.pane).text.rstrip().endswith("scripted>"):
            return
        time.sleep(0.01)


def idling(processes: Mapping[str, tuple[int, float, float]], seconds: float = 20.0) -> list[Figure]:
    """What processes that have nothing to do cost: name → pid, most MB, most percent of a core."""
    _await_quiet([pid for pid, _, _ in processes.values()])
    before = {name: _usage(pid) for name, (pid, _, _) in processes.items()}
    time.sleep(seconds)
    found = []
    for name, (pid, most_mb, most_percent) in processes.items():
        cpu_s, rss_mb, written = _usage(pid)
        percent, wrote = (cpu_s - before[name][0]) / seconds * 100, written - before[name][2]
        met = rss_mb <= most_mb and percent <= most_percent and (name == "runner" or wrote == 0)
        value = f"{rss_mb:.0f} MB, {percent:.2f} % of a core, {wrote} bytes written in {seconds:g} s"
        found.append(Figure(f"{name}, idle", value, f"≤ {most_mb:g} MB, ≤ {most_percent:g} %", met))
    return found


def _await_quiet(pids: Sequence[int], quiet_s: float = 3.0) -> None:
    """Until nothing was written for a while: what went before is not what is measured."""
    deadline, seen, since = time.monotonic() + 60, -1, time.monotonic()
    while time.monotonic() - since < quiet_s and time.monotonic() < deadline:
        written = sum(_usage(pid)[2] for pid in pids)
        if written != seen:
            seen, since = written, time.monotonic()
        time.sleep(0.2)


def _usage(pid: int) -> tuple[float, float, int]:
    """CPU seconds, resident MB, bytes sent to the disk."""
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    tasks = [path.read_text().split()[0] for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    rss = int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return sum(map(int, tasks)) / 1e9, rss, int(io["write_bytes"])


def _update(folder: str, name: str, times: int) -> None:
    own = Registry(Path(folder) / "registry.db", Path(folder) / "registry.lock", by=name)
    for n in range(times):
        with own.transaction() as tx:
            tx.set_meta(f"{name}-{n % 20}", str(n))


def registry(writers: int = 50, times: int = 40) -> list[Figure]:
    """Writers at once."""
    found = []
    with place() as mam:
        context = multiprocessing.get_context("spawn")
        folder = str(mam.layout.mam)
        children = [context.Process(target=_update, args=(folder, f"w{n}", times)) for n in range(writers)]
        began = time.perf_counter()
        for child in children:
            child.start()
        for child in children:
            child.join()
        took = time.perf_counter() - began
        with mam.registry.view() as view:
            kept = view.connection.execute("SELECT count(*) FROM audit WHERE key LIKE 'w%'").fetchone()[0]
        rate = f"{writers} processes × {times} updates: {writers * times - kept} lost, {took:.1f} s (starts included)"
        found.append(Figure("registry, writers at once", rate, "0 lost", kept == writers * times))
    return found
