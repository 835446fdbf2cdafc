"""What one look of the monitor over many agents costs, and what its process takes while nothing happens."""

import json
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mam.broker.envelope.payloads import now_ms
from mam.broker.host import process_identity
from mam.control_plane.benchmarks import budgets, idle, suite
from mam.control_plane.benchmarks.suite import Figure, NotMeasured
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs import liveness
from mam.control_plane.messaging.inbox import Inbox
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import job_checks, reconcile
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Attempt, Session
from mam.control_plane.sessions import runtime
from mam.control_plane.sessions.activity import Activity
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.protocol import Multiplexer, PaneSpec

_LONG_AGO_MS = 60_000


def look(agents: int = 200, jobs: int = 10_000, mux: str = "auto", idle_s: float = idle.IDLE_S) -> list[Figure]:
    """
    One look over agents that each have a pane of their own and an open job, and the monitor's process beside them.

    In tmux the panes are real ones, which sleep; headless panes stand on paper alone, since each real one would be a
    Python process. Raises NotMeasured where an agent's pane is not seen as its own.
    """
    with suite.place() as mam:
        monitor_process.ensure(mam)
        suite.fill(mam, agents, jobs)
        with _panes(mam, agents, mux_catalog.choose(mux, mam.settings.environ)):
            known = monitor_process.look(mam.layout)
            if known is None:
                raise NotMeasured(what="look", why="there is no monitor")
            name = f"monitor, {agents} sessions, {jobs} jobs"
            rest = idle.measure({name: (known.process.pid, idle.MONITOR)}, idle_s)
            monitor_process.end(mam.layout)
            return [_one_look(mam, agents, jobs), *rest]


@contextmanager
def _panes(mam: Mam, agents: int, mux: str) -> Generator[None]:
    """Give every agent a pane with its own tag, and take them away again."""
    multiplexer = mux_catalog.make(mux, mam.mux_server(mux), mam.settings.of_panes, mam.command)
    opened = []
    try:
        for number in range(agents):
            name = f"agent-{number}"
            spec = PaneSpec(f"{runtime.tag(mam, name)}", name, mam.layout.root, {}, ["sleep", "3600"])
            pane = multiplexer.open(spec).id if mux == "tmux" else _pane_on_paper(Path(multiplexer.server), spec)
            opened.append((name, pane, spec.tag))
        with mam.registry.transaction() as tx:
            for name, pane, _ in opened:
                tx.put(_agent(mam, name, multiplexer, pane))
        yield
    finally:
        for _, pane, tag in opened if mux == "tmux" else ():
            multiplexer.close(pane, tag)
        with mam.registry.transaction() as tx:  # what is not there need not be ended one by one
            for session in tx.sessions():
                tx.put(replace(session, pane=""))


def _pane_on_paper(folder: Path, spec: PaneSpec) -> str:
    """The files of a headless pane whose host is this process."""
    pane, me = f"p{spec.name}", process_identity.me()
    (folder / pane).mkdir(parents=True)
    state = {"tag": spec.tag, "pid": me.pid, "host": me.pid, "host_start": me.start, "boot": me.boot}
    (folder / pane / "state.json").write_text(json.dumps(state), "utf-8")
    return pane


def _agent(mam: Mam, name: str, mux: Multiplexer, pane: str) -> Session:
    """The row of an agent that runs, with this process as its runner; its files are made."""
    me = process_identity.me()
    row = suite.session_row(name, mam, pid=me.pid, pid_start=me.start, boot_id=me.boot)
    run_dir = mam.layout.run_dir(name)
    (run_dir / "outbox").mkdir(parents=True)
    (run_dir / "memory.json").write_text("[]", "utf-8")
    row = replace(row, mux=mux.kind, mux_server=mux.server, pane=pane, presence="online", conversation="kept")
    return replace(row, updated_at=now_ms() - _LONG_AGO_MS)  # what is young is not compared


def _one_look(mam: Mam, agents: int, jobs: int) -> Figure:
    with mam.registry.transaction() as tx:
        for number in range(agents):
            job = suite.job_row(f"job-open{number:04d}", mam, f"agent-{number}", "running")
            tx.put(job)
            tx.put(Attempt(job.id, 1, job.session, now_ms(), started_at=now_ms()))
    sweep = SpoolSweep(mam.layout.run, Inbox(mam.registry, Keyring(mam.layout)))
    with mam.registry.view() as view:
        began = time.perf_counter()
        ended = job_checks.ended_sessions(mam, view.sessions())
        seen = job_checks.Watched(sweep, lambda *_: 0, Activity(mam), 0, now_ms())
        verdicts, findings = job_checks.jobs_now(view, seen, liveness.Patience())
        world = reconcile.look(mam, view)
        drifts = reconcile.compare(mam, view, world)
        took_s = time.perf_counter() - began
        _check_panes(mam, view, world, agents)
    trouble: Sequence[object] = [*ended, *verdicts, *findings, *drifts]
    what = f"one look over {agents} sessions and open jobs, {jobs} jobs in all"
    value = f"{took_s:.3f} s, {len(trouble)} differences, one call of the multiplexer"
    return Figure(what, value, f"≤ {budgets.LOOK_S:g} s", took_s <= budgets.LOOK_S and not trouble)


def _check_panes(mam: Mam, view: View, world: reconcile.World, agents: int) -> None:
    seen = 0
    for session in view.sessions():
        panes = world.servers.get((session.mux, session.mux_server)) or ()
        seen += runtime.own_pane(mam, session, panes) is not None
    if (seen, len(view.open_jobs())) != (agents, agents):
        raise NotMeasured(what="look", why=f"{seen} panes of {agents} were seen, {len(view.open_jobs())} open jobs")
