"""Scorecard 12 and 13: a runner dies, or its disk refuses, at each durable step; no prompt is typed twice."""

from pathlib import Path

import pytest

from tests.support import Root, until
from tests.support.faults import refusals, settled

RUNNER = [
    "key.link",
    "delivery.paste",
    "delivery.enter",
    "delivery.fsync",
    "delivery.conclude",
    "bus.publish",
    "spool.rename",
]


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", RUNNER)
def test_a_runner_that_dies_anywhere_never_pastes_twice_and_why_leads_on(
    shared_root: Root, agent_name: str, point: str
) -> None:
    root = shared_root
    root.env["MAM_FAULT"] = f"runner@{point}:1:crash"
    root.mam("agent", "create", agent_name, "--agent", "scripted", "--no-wait")
    del root.env["MAM_FAULT"]
    until(lambda: root.session(agent_name).status == "ended" or root.session(agent_name).screen == "ready")
    if root.session(agent_name).status == "ended":
        assert root.mam("agent", "resume", agent_name).code == 0
    job = root.delegate(agent_name, "do it", "--started-within", "3")

    for _ in range(4):  # what `why` says, step by step, as a person would do it
        state = until(lambda: settled(root, job))
        if state == "reported":
            break
        why = root.ok("why", job)["next"]
        if root.session(agent_name).status == "ended":
            assert f"mam agent resume {agent_name}" in why
            assert root.mam("agent", "resume", agent_name).code == 0
        if root.job(job).state in ("lost", "agent_blocked"):
            assert f"mam job retry {job}" in root.ok("why", job)["next"]
            assert root.mam("job", "retry", job).code == 0

    assert root.job(job).state == "reported"
    memory = Path(root.path / ".mam" / "run" / agent_name / "memory.json").read_text("utf-8")
    for attempt in range(1, root.job(job).attempt + 1):
        assert memory.count(f"[MAM job {job}, attempt {attempt}]") <= 1


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(RUNNER))
def test_a_runner_whose_disk_refuses_once_goes_on(shared_root: Root, agent_name: str, point: str, action: str) -> None:
    root = shared_root
    root.env["MAM_FAULT"] = f"runner@{point}:1:{action}"
    assert root.mam("agent", "create", agent_name, "--agent", "scripted").code == 0
    del root.env["MAM_FAULT"]
    job = root.delegate(agent_name, "do it", "--started-within", "3")

    until(lambda: settled(root, job))

    assert root.session(agent_name).status == "running"
    if root.job(job).state != "reported":
        assert root.mam("job", "retry", job).code == 0
        until(lambda: root.job(job).state == "reported")
