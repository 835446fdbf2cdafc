"""
One hour on a clock of its own, with random deaths of panes, runners, agents, multiplexer, broker and monitor.

Spools, inbox, registry, audit log, limits and the monitor's looks are the real ones, and so are the runners as far as
the registry knows them: processes with a start time. What an agent says, when the broker carries it, and who dies, is
thrown.
"""

import contextlib
import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mam.broker import spool
from mam.broker.envelope import signing, topics
from mam.broker.host import process_identity
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import checks, reconcile
from mam.control_plane.monitor.monitor import Monitor
from mam.control_plane.registry import audit
from mam.control_plane.registry.records import LIVE, PRESUMED, Job, Session
from mam.control_plane.sessions import runtime
from mam.wrappers.mux.protocol import MuxGone, Pane
from tests.support import size
from tests.support.desk import Desk

pytestmark = pytest.mark.slow

SECONDS = size(900, 3600)
ACTORS = 10
LIMITS = delegation.Limits(started_within_s=120, deliver_within_s=60, limit_s=300, heartbeat_misses=6)
# Once in so many seconds, for each of what there is.
RUNNER_DIES, AGENT_ENDS, SERVER_DIES, MONITOR_DIES, BROKER_DIES, STUCK = 240, 240, 900, 120, 150, 12


@dataclass
class Actor:
    """One session: its runner is a process, its agent a plan of what it is going to say and when."""

    name: str
    runner: "subprocess.Popen[bytes] | None" = None
    life: int = 0
    back_at: float = 0
    job: Job | None = None
    plan: list[tuple[float, str]] | None = None  # when, and which kind of event
    open: Job | None = None  # what its runner knows to be at work, over its death


class Hour:
    def __init__(self, desk: Desk, dice: random.Random) -> None:
        self.desk, self.dice, self.now = desk, dice, 1_800_000_000.0
        self.monitor: Monitor | None = None
        self.monitor_back = self.broker_back = self.now
        self.actors = [Actor(f"agent-{number}") for number in range(ACTORS)]
        self.bus: list[tuple[float, str, bytes, Path]] = []
        self.said: dict[str, set[str]] = {}  # job → ids of events that are on disk
        self.reported: set[tuple[str, int]] = set()
        self.strikes = 0

    def begin(self) -> None:
        for actor in self.actors:
            self.desk.session(actor.name, status="stopped", pane="")
            self.rise(actor)

    # -- what happens -------------------------------------------------------------------------

    def once_in(self, seconds: float) -> bool:
        return self.dice.random() < 1 / seconds

    def second(self) -> None:
        self.now += 1
        if self.once_in(SERVER_DIES):
            self.strikes += 1
            for actor in self.actors:
                self.die(actor)
        if self.once_in(BROKER_DIES):
            self.strikes += 1
            self.broker_back = self.now + self.dice.uniform(5, 40)
        if self.monitor is not None and self.once_in(MONITOR_DIES):
            self.strikes += 1
            self.stop_monitor()
            self.monitor_back = self.now + self.dice.uniform(1, 30)
        for actor in self.actors:
            self.act(actor)
        self.carry()
        self.look()

    def act(self, actor: Actor) -> None:
        if actor.runner is None:
            if self.now >= actor.back_at:
                self.rise(actor)
        elif self.once_in(RUNNER_DIES):
            self.strikes += 1
            self.die(actor)
        elif self.once_in(AGENT_ENDS):
            self.strikes += 1
            data = {"name": "agent_exited", "exit_code": 1, "incarnation": f"{actor.life:04d}"}
            self.runner_says(actor, "signal", data)
            self.die(actor)
        else:
            self.work(actor)

    def rise(self, actor: Actor) -> None:
        """What `agent resume` leaves: another life with a runner that is there."""
        actor.runner = subprocess.Popen(["sleep", "3600"])
        actor.life += 1
        me = process_identity.ProcessId(
            actor.runner.pid, str(process_identity.start_time(actor.runner.pid)), process_identity.boot_id()
        )
        with self.desk.mam.registry.transaction() as tx:
            row = tx.session(actor.name)
            assert row is not None
            life: dict[str, Any] = {
                "incarnation": f"{actor.life:04d}",
                "generation": actor.life,
                "pane": f"p{actor.life}",
            }
            there: dict[str, Any] = {"pid": me.pid, "pid_start": me.start, "boot_id": me.boot, "presence": "online"}
            fresh: dict[str, Any] = {"ended_reason": None, "exit_code": None, "updated_at": int(self.now * 1000)}
            tx.put(replace(row, status="running", **life, **there, **fresh))
        if actor.open is not None:
            self.runner_says(actor, "delivery", {"state": "unknown", "reason": "restarted"}, job=actor.open)
            actor.open = None

    def die(self, actor: Actor) -> None:
        if actor.runner is not None:
            actor.runner.kill()
            actor.runner.wait()
        actor.runner, actor.plan = None, None
        actor.back_at = self.now + self.dice.uniform(10, 60)

    def work(self, actor: Actor) -> None:
        if actor.plan:
            while actor.plan and actor.plan[0][0] <= self.now:
                self.speak(actor, actor.plan.pop(0)[1])
        elif actor.plan is None or self.once_in(10):
            self.hire(actor)

    def hire(self, actor: Actor) -> None:
        """A person tries an ended job again now and then, and gives out new ones."""
        mam, again = self.desk.mam, self.dice.random() < 0.5
        with mam.registry.view() as view:
            row, current = view.session(actor.name), view.open_job(actor.name)
            last = view.job(actor.job.id) if actor.job is not None else None
        if row is None or row.status not in LIVE or current is not None:
            return  # the monitor has not seen yet how the last one ended
        if last is not None and last.state in PRESUMED and again:
            actor.job = delegation.retry(mam, last.id)
        else:
            actor.job = delegation.delegate(mam, actor.name, "do it", limits=LIMITS)
        at = self.now + self.dice.uniform(1, 10)
        actor.plan = [(at, "received"), (at + 1, "submitted")]
        if not self.once_in(STUCK):  # else it never begins
            actor.plan.append((at := at + self.dice.uniform(1, 20), "started"))
            actor.plan += [(at := at + self.dice.uniform(1, 30), "progress") for _ in range(self.dice.randrange(5))]
            if not self.once_in(STUCK):  # else it never ends
                actor.plan.append((at + self.dice.uniform(1, 60), "report"))

    def speak(self, actor: Actor, kind: str) -> None:
        job = actor.job
        assert job is not None
        actor.open = None if kind == "report" else job
        if kind in ("received", "submitted"):
            self.runner_says(actor, "delivery", {"state": kind}, job=job)
            return
        desk = self.desk
        if kind == "report":
            wire = desk.report(job)
            self.reported.add((job.id, job.attempt))
        else:
            data = {"note": "on my way"} if kind == "progress" else {}
            wire = desk.wire(job.id, kind, data, attempt=job.attempt)
        self.said.setdefault(job.id, set()).add(self.spool(actor, topics.job(job.id), wire))

    def runner_says(self, actor: Actor, kind: str, data: dict[str, object], job: Job | None = None) -> None:
        of: dict[str, Any] = {"job": job.id, "attempt": job.attempt} if job is not None else {}
        self.spool(actor, topics.events(actor.name), self.desk.runtime(actor.name, kind, data, **of))

    def spool(self, actor: Actor, topic: str, wire: bytes) -> str:
        """Keep an event as verbs and runners do; the runner gives it to the bus, now and then twice, late, mixed up."""
        event_id: str = json.loads(signing.unwrap(wire).body)["id"]
        path = spool.write(self.desk.mam.layout.run_dir(actor.name) / "outbox", event_id, topic, wire)
        os.utime(path, (self.now, self.now))
        if self.now >= self.broker_back:
            for _ in range(2 if self.dice.random() < 0.15 else 1):
                self.bus.append((self.now + self.dice.uniform(0, 8), topic, wire, path))
        return event_id

    # -- who looks ----------------------------------------------------------------------------

    def carry(self) -> None:
        if self.monitor is None or self.now < self.broker_back:
            return
        due = [message for message in self.bus if message[0] <= self.now]
        self.bus = [message for message in self.bus if message[0] > self.now]
        self.dice.shuffle(due)
        settled = self.monitor._inbox.take([(topic, wire) for _, topic, wire, _ in due]) if due else []
        for message, settling in zip(due, settled, strict=True):
            if settling.outcome != "unknown_scope":
                message[3].unlink(missing_ok=True)

    def look(self) -> None:
        if self.monitor is None:
            if self.now < self.monitor_back:
                return
            self.monitor = Monitor(self.desk.mam, clock=lambda: int(self.now * 1000))
            self.view = self.desk.mam.registry.watch()
        online = {actor.name for actor in self.actors if actor.runner is not None}
        self.monitor._sweep.once(live=online if self.now >= self.broker_back else set())
        self.monitor._tick(self.view)

    def stop_monitor(self) -> None:
        """As by kill -9: what it held in memory is gone, and its files are let go of."""
        assert self.monitor is not None
        self.view.connection.close()
        self.monitor._inbox.close()
        self.monitor._registry.close()
        for descriptor in (self.monitor._wake_read, self.monitor._wake_write, self.monitor._fifo):
            os.close(descriptor)
        self.monitor = None

    def panes(self) -> list[Pane]:
        there = [actor for actor in self.actors if actor.runner is not None]
        if not there:
            raise MuxGone(server="simulated")
        root = self.desk.mam.fingerprint
        return [
            Pane(f"p{actor.life}", f"{root}/{actor.name}", actor.runner.pid, False, None)
            for actor in there
            if actor.runner
        ]

    # -- the end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nobody dies any more, broker and monitor are there, and time passes until no limit is left."""
        self.broker_back = self.monitor_back = self.now
        for _ in range(int(LIMITS.limit_s) + 60):
            self.now += 1
            self.carry()
            self.look()
        assert self.bus == []

    def end(self) -> None:
        for actor in self.actors:
            if actor.runner is not None:
                actor.runner.kill()
                actor.runner.wait()
        if self.monitor is not None:
            self.stop_monitor()


@pytest.fixture
def hour(desk: Desk, dice: random.Random, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hour]:
    made = Hour(desk, dice)
    monkeypatch.setattr(time, "time_ns", lambda: int(made.now * 1e9))
    monkeypatch.setattr(time, "time", lambda: made.now)
    for every in ("RECONCILE_S", "PROCESSES_S"):
        monkeypatch.setattr(checks, every, 0.0)
    for module in (reconcile, runtime):
        monkeypatch.setattr(module.mux_catalog, "make", lambda *_: made)
    made.begin()
    try:
        yield made
    finally:
        made.end()


def expected(hour: Hour, job: Job) -> set[str]:
    """What a job may be after all, from what its agent did, and nothing else."""
    return {"reported"} if (job.id, job.attempt) in hour.reported else set(PRESUMED)


@pytest.mark.req("M93", "M94", "M95", "M99", "M102")
def test_after_an_hour_of_deaths_the_registry_is_as_the_world_is_and_the_audit_log_explains_every_change(
    hour: Hour,
) -> None:
    for _ in range(SECONDS):
        hour.second()
    hour.settle()

    with hour.desk.mam.registry.view() as view:
        sessions = {session.name: session for session in view.sessions()}
        rows = view.jobs()
        recorded = [row[0] for row in view.connection.execute("SELECT id FROM events WHERE scope LIKE 'jobs/%'")]
        drift = reconcile.compare(hour.desk.mam, view, reconcile.look(hour.desk.mam, view))
    assert hour.strikes > SECONDS / 60, "enough was killed to mean anything"
    assert {name: row.status in LIVE for name, row in sessions.items()} == {
        actor.name: actor.runner is not None for actor in hour.actors
    }
    wrong = {job.id: (job.state, expected(hour, job)) for job in rows if job.state not in expected(hour, job)}
    assert not wrong
    said = [event for each in hour.said.values() for event in each]
    assert sorted(recorded) == sorted(said), "every event once"
    assert [each for each in drift if each.kind != "C"] == []
    explained(hour, sessions, rows)


def explained(hour: Hour, sessions: dict[str, Session], rows: list[Job]) -> None:
    """The audit log ends with each row as it is, and each end that was not asked for has a reason."""
    assert hour.monitor is not None
    hour.monitor._audit.export(hour.view)
    last: dict[tuple[str, str], dict[str, object] | None] = {}
    for line in audit.read(hour.desk.mam.layout.audit):
        assert not line.damage
        with contextlib.suppress(KeyError):
            last[line.entry["t"], line.entry["k"]] = json.loads(line.entry["row"] or "null")
    for job in rows:
        noted = last["jobs", job.id]
        assert noted is not None and noted["state"] == job.state
        assert job.detail or job.state == "reported", f"{job.id} is {job.state} without a word"
    for name in sessions:
        noted = last["sessions", name]
        assert noted is not None and (noted["status"] in LIVE or noted["ended_reason"])


def test_the_hour_would_notice_a_lost_event(hour: Hour, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: with sweeps that see nothing, what the broker missed stays unrecorded."""
    monkeypatch.setattr(SpoolSweep, "once", lambda *_, **__: None)
    for _ in range(600):
        hour.second()
    hour.settle()

    with hour.desk.mam.registry.view() as view:
        count = view.connection.execute("SELECT count(*) FROM events WHERE scope LIKE 'jobs/%'").fetchone()[0]
    assert count < sum(len(each) for each in hour.said.values())
