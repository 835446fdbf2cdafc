"""Agents that are alive and stuck, among others that work: seen by a real monitor, on real panes."""

import json
import os
import signal
from typing import Any

import pytest

from tests.support import MAM, Root, until

pytestmark = pytest.mark.slow

WAYS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "asks-on-its-screen": ("blocked", [{"ask": "May I delete it?"}]),
    "asks-by-its-verb": (
        "blocked",
        [{"shell": f"{MAM} job ask --registry-dir $MAM_JOBS_DIR --job @JOB@ --attempt 1 which"}],
    ),
    "ended-its-turn": ("idle_waiting", [{"say": "All done!"}]),
    "says-nothing": ("stalled", [{"hang": {}}]),
    "was-stopped": ("silent", [{"hang": {}}]),
}
AT_WORK: list[dict[str, Any]] = [{"progress": "at work"}, {"wait": 1.5}] * 18


def job_of(name: str) -> str:
    return f"job-{name}"


def hire(root: Root, name: str, steps: list[dict[str, Any]]) -> None:
    text = json.dumps([{"started": {}}, *steps]).replace("@JOB@", job_of(name))
    root.agent(name, *json.loads(text))
    root.delegate(name, "do it", "--id", job_of(name))
    until(lambda: root.job(job_of(name)).state == "running")


@pytest.mark.req("M99")
def test_each_kind_of_stuck_agent_is_noticed_none_that_works_is_and_no_job_is_ended_for_it(root: Root) -> None:
    root.env |= {"MAM_STUCK_AFTER_S": "4", "MAM_STALLED_AFTER_S": "20"}
    busy = [f"busy-{number}" for number in range(3)]
    for name, (_, steps) in WAYS.items():
        hire(root, name, steps)
    for name in busy:
        hire(root, name, [*AT_WORK, {"report": {"text": "done", "result": "done"}}])
    runner = root.session("was-stopped").pid
    os.kill(runner, signal.SIGSTOP)
    expected = {job_of(name): code for name, (code, _) in WAYS.items()}

    def noticed() -> dict[str, str]:
        with root.registry.view() as view:
            found = {each.subject: each.code for each in view.findings() if each.subject.startswith("job-")}
        assert not {job_of(name) for name in busy} & found.keys(), found
        return found

    try:
        until(lambda: noticed() == expected, what="all stuck ones, and as what they are")
        assert {root.job(job).state for job in expected} == {"running"}
        assert "which" in root.mam("status").out, "what was asked is shown"
        until(lambda: noticed() and all(root.job(job_of(name)).state == "reported" for name in busy))
    finally:
        os.kill(runner, signal.SIGCONT)
    until(lambda: "silent" not in noticed().values(), what="who speaks again is silent no more")
