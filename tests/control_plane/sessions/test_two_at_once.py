"""Verbs of one agent that meet each other, or follow a life that has ended: one pane, one life, nothing left."""

import json
import subprocess
from pathlib import Path

from mam.control_plane.control_root import monitor_process
from mam.control_plane.sessions import lifecycle
from tests.support import Root, until
from tests.support.beside import HANG, begin, has_open


def runners_of(root: Root) -> list[str]:
    """The pids of the runners whose launch files lie in this control root."""
    found = subprocess.run(["pgrep", "-f", f"mam runner {root.path}/"], capture_output=True, text=True)
    return found.stdout.split()


def test_many_resumes_at_once_open_one_pane(root: Root) -> None:
    root.agent()
    root.mam("agent", "stop", "writer")
    children = [begin(root, "agent", "resume", "writer") for _ in range(4)]

    assert [child.wait(120) for child in children] == [0] * 4

    assert runners_of(root) == [str(root.session("writer").pid)]


def test_a_stop_that_meets_a_resume_leaves_nothing_behind(root: Root) -> None:
    root.agent()
    root.mam("agent", "stop", "writer")
    stopping = []

    def say(text: str) -> None:
        if text.startswith("opening"):
            stopping.append(begin(root, "agent", "stop", "writer"))
            until(lambda: has_open(stopping[0], "life.lock"), what="the stop waits for its turn")

    lifecycle.resume(root.parts, "writer", say=say)

    assert stopping[0].wait(120) == 0
    assert root.session("writer").status == "stopped"
    until(lambda: not runners_of(root))


def test_a_create_that_fails_after_its_pane_opened_closes_it(root: Root, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root.mam("up")

    said = root.mam(
        *("agent", "create", "writer", "--agent", "scripted"),
        env={"AGENT_SESSIONS_YAML": str(tmp_path / "file" / "sessions.yaml")},
    )

    assert said.code == 1
    assert root.session("writer") is None
    assert list((root.path / ".mam" / "run" / "headless").glob("p*")) == []
    until(lambda: not runners_of(root))
    root.agent()


def test_nothing_is_sent_to_an_agent_that_is_stopped(root: Root) -> None:
    root.agent()
    root.mam("agent", "stop", "writer")

    said = root.mam("agent", "send", "writer", "hello", "--json", timeout_s=30)

    assert (said.code, said.error["code"]) == (1, "session_not_running")


def test_the_job_of_an_agent_that_was_started_anew_is_lost_and_the_agent_is_not(root: Root) -> None:
    script = root.path.parent / "script.json"
    script.write_text(json.dumps([HANG, [{"started": {}}, {"report": {"text": "done"}}]]), "utf-8")
    assert root.mam("agent", "create", "writer", "--agent", "scripted", "--", "--script", str(script)).code == 0
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    monitor = monitor_process.look(root.parts.layout)
    assert monitor is not None
    with root.asleep(monitor.process.pid):  # it sees nothing of what comes between
        root.ok("agent", "stop", "writer", "--force")
        root.ok("agent", "resume", "writer", "--no-wait")

    until(lambda: root.job(job).state == "lost")
    until(lambda: root.session("writer").status == "running")
    assert root.mam("job", "wait", root.delegate(), "--timeout", "60").code == 0
    assert root.session("writer").status == "running"
