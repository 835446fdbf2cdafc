"""How long a prompt takes from the row's commit to its submission, and what runner and monitor take afterwards."""

import statistics

from mam.agents import catalog
from mam.broker.host.waiting import wait_until
from mam.control_plane.benchmarks import budgets, idle, suite
from mam.control_plane.benchmarks.suite import Figure, NotMeasured
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.sessions import readiness, runtime, sessions
from mam.control_plane.sessions.lookup import need_session

USUAL_PAUSE_S = 0.31  # agent CLIs need it between paste and Enter; the scripted agent needs less


def delivery(count: int = 20, mux: str = "auto", idle_s: float = idle.IDLE_S) -> list[Figure]:
    """From delegate's commit to the submitted prompt, in a ready pane; the pause before Enter is part of it."""
    with suite.place() as mam:
        monitor_process.ensure(mam)
        sessions.create(mam, sessions.AgentRequest("writer", "scripted", mux=mux))
        session = readiness.await_ready(mam, "writer", wait_s=30)
        taken_s = [_one(mam) for _ in range(count)]
        added_s = USUAL_PAUSE_S - catalog.find("scripted").submit_pause_s
        over = sorted(taken + added_s for taken in taken_s)
        p50, p95 = statistics.median(over), over[max(0, int(len(over) * 0.95) - 1)]
        known = monitor_process.look(mam.layout)
        if known is None or session.pid is None:
            raise NotMeasured(what="delivery", why="there is no monitor or no runner")
        rest = idle.measure(
            {"runner": (session.pid, idle.RUNNER), "monitor": (known.process.pid, idle.MONITOR)}, idle_s
        )
    met = p50 <= budgets.DELIVERY_P50_S and p95 <= budgets.DELIVERY_P95_S
    budget = f"≤ {budgets.DELIVERY_P50_S:g} s, ≤ {budgets.DELIVERY_P95_S:g} s"
    what = f"commit → submitted in {session.mux}, with a pause of {USUAL_PAUSE_S:g} s"
    return [Figure(what, f"p50 {p50:.2f} s, p95 {p95:.2f} s", budget, met), *rest]


def _one(mam: Mam) -> float:
    """The seconds that one prompt took. Raises NotMeasured where it was not submitted, or its job not done."""
    job = delegation.delegate(mam, "writer", "bench")

    def ended() -> bool:
        with mam.registry.view() as view:
            return jobs.exit_code(jobs.need(view, job.id)) is not None

    wait_until(ended, 60, every_s=0.01)
    with mam.registry.view() as view:
        job, attempt = jobs.need(view, job.id), view.attempt(job.id, 1)
    if jobs.exit_code(job) != 0 or attempt is None or attempt.delivered_at is None:
        raise NotMeasured(what="delivery", why=f"{job.id} is {job.state}")
    _await_prompt(mam)
    return (attempt.delivered_at - attempt.created_at) / 1000


def _await_prompt(mam: Mam) -> None:
    """Until the agent takes the next prompt: its own time is not what is measured."""

    def takes_one() -> bool:
        with mam.registry.view() as view:
            session = need_session(view, "writer")
        return runtime.multiplexer(mam, session).screen(session.pane).text.rstrip().endswith("scripted>")

    wait_until(takes_one, 10, every_s=0.01)
