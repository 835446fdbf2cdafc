"""`mam chaos`: scripted agents and jobs over a bus with bad weather; every job must end as its script says."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mam.broker import chaos, topics
from mam.control_plane import bench, daemon, delegation, sessions, verify
from mam.control_plane.jobs import need
from mam.control_plane.rows import OPEN
from mam.control_plane.wiring import Mam

Say = Callable[[str], None]


class Result(NamedTuple):
    done: int
    wrong: list[str]
    took_s: float


_ENDINGS: tuple[dict[str, str], ...] = (
    {"result": "done", "verdict": "pass"},
    {"result": "done", "verdict": "not_pass"},
    {"result": "failed"},
)


def run(weather: str, *, agents: int, count: int, wait_s: float, say: Say) -> Result:
    """Run it in a control root of its own; everything that was started is ended. Raises Usage for a bad *weather*."""
    chaos.parse(weather)
    with bench.place(MAM_MUX="headless", MAM_CHAOS=weather, MAM_HEARTBEAT_S="1") as mam:
        daemon.ensure(mam, say=say)
        names = [f"agent-{n}" for n in range(agents)]
        for name in names:
            sessions.create(mam, sessions.Wish(name, "scripted", "creator", mam.layout.root, "headless"))
        for name in names:
            sessions.await_ready(mam, name, wait_s=10)  # what its runner said of its screen may be lost for good
        began = time.monotonic()
        wanted: dict[str, dict[str, str]] = {}
        while time.monotonic() - began < wait_s:
            _delegate(mam, names, wanted, count)
            with mam.registry.view() as view:
                ended = sum(need(view, job).state not in OPEN for job in wanted)
            if ended == count:
                break
            time.sleep(0.1)
        while wrong := [why for job, ending in wanted.items() if (why := _wrong(mam, job, ending))]:
            if time.monotonic() - began >= wait_s:
                break
            time.sleep(0.1)  # a report may overtake what was said before it, which is on its way still
        wrong += [f"{count - len(wanted)} jobs were never handed out"] if len(wanted) < count else []
        return Result(count - len(wrong), wrong, time.monotonic() - began)


def _delegate(mam: Mam, names: list[str], wanted: dict[str, dict[str, str]], count: int) -> None:
    """Give each free agent its next job."""
    for name in names:
        with mam.registry.view() as view:
            busy = view.open_job(name) is not None
        if busy or len(wanted) >= count:
            continue
        ending = _ENDINGS[len(wanted) % len(_ENDINGS)]
        steps = [{"started": {}}, {"progress": "at work"}, {"report": {"text": "done", **ending}}]
        job = delegation.delegate(mam, name, f"play it\nSCRIPT: {json.dumps(steps)}\n")
        wanted[job.id] = ending


def _wrong(mam: Mam, job_id: str, ending: dict[str, str]) -> str:
    """What is wrong with how a job ended; empty where nothing is."""
    with mam.registry.view() as view:
        job = need(view, job_id)
        kinds = [event["kind"] for event in view.events(scope=topics.job(job_id), limit=-1)]
        verified = verify.verify(mam.layout, view, job_id).ok
    said = {"result": job.result, "verdict": job.verdict}
    if job.state != "reported" or said != {"result": ending["result"], "verdict": ending.get("verdict")}:
        return f"{job_id} is {job.state} {said}, not {ending}"
    if sorted(kinds) != ["progress", "report", "started"]:
        return f"{job_id} was recorded as {kinds}"
    if not verified or not Path(job.report_path).is_file():
        return f"{job_id} does not verify"
    return ""
