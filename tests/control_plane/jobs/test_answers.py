"""Questions of agents, and answers that come in time or too late."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support import MAM, Root, until
from tests.support.messages import content_of


def test_who_waits_for_an_answer_is_told_that_the_job_ended(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    words = [str(MAM), "job", "ask", "--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
    asking = subprocess.Popen([*words, "which one?", "--json"], cwd=root.path, stderr=subprocess.PIPE, text=True)
    until(lambda: root.ok("why", job)["awaited"] == "an answer")

    root.ok("job", "cancel", job)

    _, err = asking.communicate(timeout=60)
    assert (asking.returncode, json.loads(err)["error"]["code"]) == (4, "job_over")


def deliveries(root: Root) -> list[str]:
    """What became of answers on their way into the agent's pane."""
    said = [content_of(event["wire"]) for event in root.events("agents/writer/events")]
    return [each["data"]["state"] for each in said if each["kind"] == "delivery" and each["job"].startswith("answer-")]


def test_an_answer_that_waits_for_its_turn_is_not_typed_after_the_job(root: Root) -> None:
    ask = "mam job ask --registry-dir $MAM_JOBS_DIR --job job-00000001 --attempt 1 --no-wait which"
    go, end = root.gate(), root.gate()
    steps: list[dict[str, Any]] = [{"started": {}}, {"shell": f"PATH={Path(MAM).parent}:$PATH {ask}"}]
    steps += [go.step, {"report": {"text": "decided myself"}}, end.step]
    root.agent("writer", *steps)
    root.delegate("writer", "do it", "--id", "job-00000001")
    until(lambda: root.ok("why", "job-00000001")["awaited"] == "an answer")
    root.ok("job", "answer", "job-00000001", "the blue one")

    go.open()
    until(lambda: root.job("job-00000001").state == "reported")
    until(lambda: len(deliveries(root)) == 2, what="its runner is told, before the turn ends")
    end.open()
    until(lambda: root.session("writer").screen == "ready")

    assert deliveries(root) == ["received", "refused"]
