"""What the monitor costs: events recorded, one look over everything, and having nothing to do."""

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace

from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.url import Endpoint
from mam.broker.envelope import keys, topics
from mam.broker.envelope.payloads import Producer, now_ms
from mam.broker.envelope.signing import seal
from mam.broker.host import process_identity
from mam.broker.nats import process as nats_server
from mam.control_plane.benchmarks import suite
from mam.control_plane.benchmarks.suite import Figure
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import liveness
from mam.control_plane.messaging.inbox import Inbox
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import job_checks, reconcile
from mam.control_plane.registry.records import Attempt
from mam.control_plane.sessions import readiness, sessions
from mam.control_plane.sessions.activity import Activity
from mam.control_plane.sessions.lookup import need_session

SESSIONS, JOBS = 200, 10_000


def _publish(port: int, user: str, password: str, prefix: str, wires: list[tuple[str, bytes]]) -> None:
    bus = MqttBus(Endpoint(nats_server.HOST, port, user, password), prefix)
    bus.wait_ready(10)
    for topic, wire in wires:
        while not bus.publish(topic, wire):
            time.sleep(0.001)
    bus.close(flush_s=60)


def events(count: int = 10_000) -> list[Figure]:
    """What the monitor verifies, records and settles, against what a bare subscriber merely receives."""
    with suite.place() as mam:
        with mam.registry.transaction() as tx:
            tx.put(suite.session_row("agent-0", mam))
        job = delegation.delegate(mam, "agent-0", "bench", job_id="job-bench0001")
        monitor_process.ensure(mam)
        running = nats_server.running(mam.layout.broker)
        assert running is not None
        login = nats_server.endpoint(mam.layout.secrets, running.port, "runner")
        prefix, producer = topics.root(mam.fingerprint), Producer("bench")
        token, topic = keys.load(mam.layout.job_key(job.id)), topics.job(job.id)

        def sealed(n: int) -> bytes:
            body = producer.job_event(job.id, 1, "progress", {"note": f"step {n}", "text": "x" * 300})
            return seal(body, token=token, use="event-mac", scope=job.id, topic=topic)

        def rate(await_all: Callable[[], None]) -> float:
            args = (running.port, login.user, login.password, prefix, [(topic, sealed(n)) for n in range(count)])
            child = multiprocessing.get_context("spawn").Process(target=_publish, args=args)
            child.start()
            await_all()
            child.join()
            return count / (stamps[-1] - stamps[0])

        stamps: list[float] = []
        recorded = rate(lambda: _await_recorded(mam, count, stamps))
        monitor_process.end(mam.layout)
        stamps = []
        viewer = MqttBus(nats_server.endpoint(mam.layout.secrets, running.port, "viewer"), prefix)
        viewer.subscribe("jobs/+", lambda _: stamps.append(time.perf_counter()))
        viewer.wait_ready(10)
        bare = rate(lambda: _await_count(stamps, count))
        viewer.close()
    ratio = recorded / bare
    what = f"monitor: verified, recorded, settled; {count} events"
    return [Figure(what, f"{recorded:.0f}/s, {ratio:.2f} × a bare subscriber's {bare:.0f}/s", "≥ 0.4 ×", ratio >= 0.4)]


def _await_recorded(mam: Mam, count: int, stamps: list[float]) -> None:
    look = mam.registry.watch()
    first = look.last_event()
    while (seen := look.last_event() - first) < count:
        if seen and not stamps:
            stamps.append(time.perf_counter())
        time.sleep(0.01)  # the looking must not cost what is looked at
    stamps.append(time.perf_counter())
    look.connection.close()


def _await_count(stamps: list[float], count: int) -> None:
    deadline = time.monotonic() + 120
    while len(stamps) < count and time.monotonic() < deadline:
        time.sleep(0.002)


def look(mux: str = "auto") -> list[Figure]:
    """One look over many sessions with an open job each, and what the monitor takes when nothing happens."""
    with suite.place() as mam:
        monitor_process.ensure(mam)
        sessions.create(mam, sessions.AgentRequest("writer", "scripted", mux=mux))
        writer = readiness.await_ready(mam, "writer", wait_s=30)
        suite.fill(mam, SESSIONS, JOBS)
        me, long_ago = process_identity.me(), now_ms() - 60_000
        with mam.registry.transaction() as tx:
            for number in range(SESSIONS):
                row = suite.session_row(f"agent-{number}", mam, pid=me.pid, pid_start=me.start, boot_id=me.boot)
                row = replace(row, mux=writer.mux, mux_server=writer.mux_server, pane=writer.pane)
                tx.put(replace(row, presence="online", updated_at=long_ago, conversation="kept"))
                run_dir = mam.layout.run_dir(row.name)
                (run_dir / "outbox").mkdir(parents=True)
                (run_dir / "memory.json").write_text("[]", "utf-8")
        known = monitor_process.look(mam.layout)
        assert known is not None
        idle = suite.idling({f"monitor, {SESSIONS} sessions, {JOBS} jobs": (known.process.pid, 150, 0.5)})
        monitor_process.end(mam.layout)
        found = [_one_look(mam), *idle]
        with mam.registry.transaction() as tx:  # what is not there need not be ended one by one
            for number in range(SESSIONS):
                tx.put(replace(need_session(tx, f"agent-{number}"), pane=""))
    return found


def _one_look(mam: Mam) -> Figure:
    with mam.registry.transaction() as tx:
        for number in range(SESSIONS):
            job = suite.job_row(f"job-open{number:04d}", mam, f"agent-{number}", "running")
            tx.put(job)
            tx.put(Attempt(job.id, 1, job.session, now_ms(), started_at=now_ms()))
    sweep = SpoolSweep(mam.layout.run, Inbox(mam.registry, Keyring(mam.layout)))
    began = time.perf_counter()
    with mam.registry.view() as view:
        ended = job_checks.ended_sessions(mam, view.sessions())
        seen = job_checks.Watched(sweep, lambda *_: 0, Activity(mam), 0, now_ms())
        verdicts, findings = job_checks.jobs_now(view, seen, liveness.Patience())
        drifts = reconcile.compare(mam, view, reconcile.look(mam, view))
    took = time.perf_counter() - began
    met = took <= 1.0 and not ended and not verdicts and not findings and not drifts
    what = f"one look over {SESSIONS} sessions and open jobs, {JOBS} jobs in all"
    return Figure(what, f"{took:.3f} s, {len(drifts)} differences, one call of the multiplexer", "≤ 1 s", met)
