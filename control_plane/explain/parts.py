"""`mam why` of what has no record of its own: the monitor, its broker, and any other subject of a finding."""

from collections.abc import Sequence

from mam.broker.host import process_identity
from mam.broker.host.text import clean
from mam.broker.nats import process as nats_server
from mam.control_plane.config.layout import Layout
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.monitor_process import MonitorStatus
from mam.control_plane.explain.agents_and_jobs import Explanation
from mam.control_plane.explain.tables import ago
from mam.control_plane.registry.records import Finding

NAMES = ("monitor", "broker")


def place(
    layout: Layout, known: MonitorStatus | None, name: str, found: Sequence[Finding], now: int, *, embedded: bool
) -> Explanation:
    """
    The monitor, or the broker that it holds: whether it runs, by what proof, and what is wrong with it.

    Args:
        embedded: Whether the broker is the monitor's own, and its process can be looked at.
    """
    if known is None:
        last = monitor_process.last_line(layout.logs / "monitor.log")
        because = "no process holds the monitor's place" + (": it keeps the broker" if name == "broker" else "")
        return Explanation(name, "not running", because, [f"its log ends: {clean(last)}"], "a person", "mam up")
    evidence = [f"pid {known.process.pid} of this boot, version {known.version}", f"broker {known.broker or 'none'}"]
    evidence += [_seen(each, now) for each in found]
    if known.stopped:
        wake = f"kill -CONT {known.process.pid}"
        return Explanation(name, "stopped", known.problem.partition(";")[0], evidence, "a person", wake)
    if name == "broker" and embedded:
        running = nats_server.running(layout.broker)  # the monitor hears of it only some time later
        if running is None:
            return Explanation(name, "not running", "its process is gone", evidence, "the monitor", "mam doctor")
        if process_identity.is_stopped(running.pid):
            because = f"its process {running.pid} was stopped, and answers no client"
            return Explanation(name, "stopped", because, evidence, "a person", f"kill -CONT {running.pid}")
    if known.problem:
        return Explanation(name, "in trouble", known.problem, evidence, "the broker", "mam doctor")
    state = "running" if known.ready else "starting"
    return Explanation(name, state, "its process is there, and the broker answers", evidence, "nothing", "mam doctor")


def findings(subject: str, found: Sequence[Finding], now: int) -> Explanation:
    """What the monitor found about *subject*: the oldest finding, and the others as evidence."""
    first = min(found, key=lambda each: each.since)
    because, _, following = first.text.partition("; ")
    return Explanation(
        subject,
        f"{first.code} since {ago(first.since, now)}",
        clean(because),
        [_seen(each, now) for each in found],
        "a person",
        clean(following) or "mam doctor",
    )


def _seen(finding: Finding, now: int) -> str:
    return f"{finding.code} {ago(finding.since, now)}: {clean(finding.text)}"
