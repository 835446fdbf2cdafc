"""How many events the monitor verifies, records and settles, against what a bare subscriber merely receives."""

import multiprocessing
import time
from collections.abc import Callable, Sequence

from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.url import Endpoint
from mam.broker.envelope import keys, topics
from mam.broker.envelope.payloads import Producer
from mam.broker.envelope.signing import USE_JOB, seal
from mam.broker.host.waiting import wait_until
from mam.broker.nats import config as nats_config
from mam.control_plane.benchmarks import budgets, suite
from mam.control_plane.benchmarks.suite import Figure, NotMeasured
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation

_WAIT_S = 120.0


def events(count: int = 10_000) -> list[Figure]:
    """
    The rates at which *count* signed events are recorded, and received by a client that only counts them.

    Raises NotMeasured where one of the two did not see every event.
    """
    with suite.place() as mam:
        with mam.registry.transaction() as tx:
            tx.put(suite.session_row("agent-0", mam))
        job = delegation.delegate(mam, "agent-0", "bench", job_id="job-bench0001")
        monitor_process.ensure(mam)
        login = _login(mam, "runner")
        prefix, producer = topics.root(mam.fingerprint), Producer("bench")
        token, topic = keys.load(mam.layout.job_key(job.id)), topics.job(job.id)

        def sealed(n: int) -> bytes:
            body = producer.job_event(job.id, 1, "progress", {"note": f"step {n}", "text": "x" * 300})
            return seal(body, token=token, use=USE_JOB, scope=job.id, topic=topic)

        def rate(await_all: Callable[[], tuple[float, float]]) -> float:
            args = (login, prefix, topic, [sealed(n) for n in range(count)])
            child = multiprocessing.get_context("spawn").Process(target=_publish, args=args)
            child.start()
            first, last = await_all()
            child.join()
            return count / (last - first)

        recorded = rate(lambda: _await_recorded(mam, count))
        monitor_process.end(mam.layout)
        stamps: list[float] = []
        viewer = MqttBus(_login(mam, "viewer"), prefix)
        viewer.subscribe("jobs/+", lambda _: stamps.append(time.perf_counter()))
        viewer.wait_ready(10)
        bare = rate(lambda: _await_received(stamps, count))
        viewer.close()
    share = recorded / bare
    what = f"monitor: verified, recorded, settled; {count} events"
    value = f"{recorded:.0f}/s, {share:.2f} × a bare subscriber's {bare:.0f}/s"
    return [Figure(what, value, f"≥ {budgets.MONITOR_SHARE:g} ×", share >= budgets.MONITOR_SHARE)]


def _login(mam: Mam, user: str) -> Endpoint:
    """Return how *user* reaches the broker that is measured. Raises NotMeasured where none runs."""
    found = nats_config.proven(mam.layout.broker, mam.layout.secrets, user)
    if found is None:
        raise NotMeasured(what="events", why="there is no broker")
    return found


def _publish(login: Endpoint, prefix: str, topic: str, wires: Sequence[bytes]) -> None:
    bus = MqttBus(login, prefix)
    bus.wait_ready(10)
    for wire in wires:
        while not bus.publish(topic, wire):
            time.sleep(0.001)
    bus.close(flush_s=60)


def _await_recorded(mam: Mam, count: int) -> tuple[float, float]:
    """When the first and the last of *count* events stood in the registry."""
    look = mam.registry.watch()
    before, first, seen = look.last_event(), 0.0, 0
    deadline = time.monotonic() + _WAIT_S
    while (seen := look.last_event() - before) < count:
        if seen and not first:
            first = time.perf_counter()
        if time.monotonic() > deadline:
            raise NotMeasured(what="events", why=f"{seen} of {count} were recorded")
        time.sleep(0.01)  # the looking must not cost what is looked at
    look.connection.close()
    last = time.perf_counter()
    return first or last - 0.01, last  # few events are all there between two looks


def _await_received(stamps: Sequence[float], count: int) -> tuple[float, float]:
    if not wait_until(lambda: len(stamps) >= count, _WAIT_S, every_s=0.002):
        raise NotMeasured(what="events", why=f"a bare subscriber received {len(stamps)} of {count}")
    return stamps[0], stamps[-1]
