"""`mam chaos`: scripted agents and jobs over a bus with bad weather; every job must end as its script says."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mam.broker.bus import impaired
from mam.broker.envelope import topics
from mam.broker.envelope.signing import unverified_body
from mam.broker.host.progress import Progress
from mam.broker.host.waiting import wait_until
from mam.control_plane.benchmarks import suite
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import verify
from mam.control_plane.jobs.jobs import need
from mam.control_plane.registry.records import OPEN
from mam.control_plane.sessions import readiness, sessions
from mam.control_plane.simulation.replay import Tale


class ChaosResult(NamedTuple):
    done: int
    wrong: list[str]
    took_s: float


class Play(NamedTuple):
    """What an agent does in one job, and how that job must end."""

    steps: Sequence[Mapping[str, object]]
    result: str
    verdict: str | None


_ENDINGS = (("done", "pass"), ("done", "not_pass"), ("failed", None))


def stock(count: int) -> list[Play]:
    """*count* jobs of three kinds, each of which begins, says what it does, and reports."""
    steps: list[Mapping[str, object]] = [{"started": {}}, {"progress": "at work"}]
    return [_reporting(steps, "done", *_ENDINGS[n % len(_ENDINGS)]) for n in range(count)]


def recorded(tales: Sequence[Tale]) -> list[Play]:
    """What the agents of recorded jobs said in the attempt that reported; a job without a report gives no play."""
    return [_play(tale) for tale in tales if tale.job.state == "reported"]


def _play(tale: Tale) -> Play:
    steps: list[Mapping[str, object]] = []
    text = "played again"
    for body in map(unverified_body, tale.wires):
        data = body.get("data")
        if body.get("attempt") != tale.job.attempt or not isinstance(data, dict):
            continue
        match body.get("kind"):
            case "started":
                steps.append({"started": {}})
            case "progress":
                steps.append({"progress": data["note"]})
            case "asked":  # there is no person who would answer
                steps.append({"progress": f"asked: {data['question']}"})
            case "report":
                text = str(data.get("summary") or text)
    return _reporting(steps, text, tale.job.result or "done", tale.job.verdict)


def _reporting(steps: Sequence[Mapping[str, object]], text: str, result: str, verdict: str | None) -> Play:
    report = {"text": text, "result": result, **({"verdict": verdict} if verdict else {})}
    return Play([*steps, {"report": report}], result, verdict)


def run(weather: str, plays: Sequence[Play], *, agents: int, wait_s: float, say: Progress) -> ChaosResult:
    """
    Have *agents* play in a control root of its own, each job by an agent that is free; what was started is ended.

    Raises Usage for a bad *weather*.
    """
    impaired.parse(weather)
    with suite.place(MAM_MUX="headless", MAM_CHAOS=weather, MAM_HEARTBEAT_S="1") as mam:
        monitor_process.ensure(mam, say=say)
        names = [f"agent-{n}" for n in range(agents)]
        for name in names:
            sessions.create(mam, sessions.AgentRequest(name, "scripted", "creator", mam.layout.root, "headless"))
        for name in names:
            readiness.await_ready(mam, name, wait_s=10)  # what its runner said of its screen may be lost for good
        began = time.monotonic()
        wanted: dict[str, Play] = {}

        def all_ended() -> bool:
            _delegate(mam, names, wanted, plays)
            with mam.registry.view() as view:
                return sum(need(view, job).state not in OPEN for job in wanted) == len(plays)

        def wrongs() -> list[str]:
            return [why for job, play in wanted.items() if (why := _wrong(mam, job, play))]

        wait_until(all_ended, wait_s, every_s=0.1)
        # A report may overtake what was said before it, which is on its way still.
        wait_until(lambda: not wrongs(), began + wait_s - time.monotonic(), every_s=0.1)
        wrong = wrongs()
        wrong += [f"{len(plays) - len(wanted)} jobs were never handed out"] if len(wanted) < len(plays) else []
        return ChaosResult(len(plays) - len(wrong), wrong, time.monotonic() - began)


def _delegate(mam: Mam, names: list[str], wanted: dict[str, Play], plays: Sequence[Play]) -> None:
    """Give each free agent its next job."""
    for name in names:
        with mam.registry.view() as view:
            busy = view.open_job(name) is not None
        if busy or len(wanted) >= len(plays):
            continue
        play = plays[len(wanted)]
        job = delegation.delegate(mam, name, f"play it\nSCRIPT: {json.dumps(play.steps)}\n")
        wanted[job.id] = play


def _wrong(mam: Mam, job_id: str, play: Play) -> str:
    """What is wrong with how a job ended; empty where nothing is."""
    with mam.registry.view() as view:
        job = need(view, job_id)
        kinds = [event["kind"] for event in view.events(scope=topics.job(job_id), limit=-1)]
        verified = verify.verify(mam.layout, view, job_id).ok
    if (job.state, job.result, job.verdict) != ("reported", play.result, play.verdict):
        return f"{job_id} is {job.state} {job.result} {job.verdict}, not reported {play.result} {play.verdict}"
    if sorted(kinds) != sorted(kind for step in play.steps for kind in step):
        return f"{job_id} was recorded as {kinds}"
    if not verified or not Path(job.report_path).is_file():
        return f"{job_id} does not verify"
    return ""
