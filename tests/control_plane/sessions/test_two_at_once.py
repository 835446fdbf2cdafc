"""Verbs that meet each other, control roots that are copies, monitors that go: nobody's work is harmed."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil

from mam.broker.host import process_identity
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.sessions import lifecycle, runtime
from tests.support import MAM, Root, run_mam, until

HANG = [{"started": {}}, {"hang": {}}]


def runners_of(root: Root) -> list[str]:
    """The pids of the runners whose launch files lie in this control root."""
    found = subprocess.run(["pgrep", "-f", f"mam runner {root.path}/"], capture_output=True, text=True)
    return found.stdout.split()


def has_open(child: "subprocess.Popen[bytes]", name: str) -> bool:
    """Whether a process has a file of this name open: it has come as far as that."""
    return any(Path(file.path).name == name for file in psutil.Process(child.pid).open_files())


def begin(root: Root, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([MAM, *words], cwd=root.path, env={**os.environ, **root.env}, stdout=-3, stderr=-3)


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


def test_the_report_of_an_old_attempt_never_replaces_the_new_one(root: Root) -> None:
    root.agent("slow", *HANG)
    root.agent("quick")
    job = root.delegate("slow", "do it", "--limit", "2")
    root.mam("job", "wait", job)
    root.ok("job", "retry", job, "--to", "quick")
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0

    late = root.path / "late.md"
    late.write_text("from the first attempt")
    words = ["--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
    root.mam("job", "report", *words, "--result", "done", "--file", str(late))

    assert root.mam("verify", job).code == 0


def test_a_copy_does_not_touch_the_original(root: Root, tmp_path: Path) -> None:
    root.agent()
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(root.path), str(copy)], check=True)
    monitor = monitor_process.look(root.parts.layout)
    broker = nats_server.running(root.parts.layout.broker)
    assert monitor is not None and broker is not None

    for words in (
        ["up"],
        ["agent", "stop", "writer"],
        ["agent", "resume", "writer"],
        ["agent", "send", "writer", "hello"],
        ["job", "delegate", "--to", "writer", "--brief", "README"],
        ["init", "--moved"],
        ["down"],
    ):
        assert run_mam(*words, cwd=copy, env=root.env).code == 2, words
    assert run_mam("init", "--copied", cwd=copy, env=root.env).code == 0

    assert process_identity.alive(monitor.process)
    assert runtime.alive(root.session("writer"))
    assert nats_server.running(root.parts.layout.broker) == broker
    assert not list((copy / ".mam" / "jobs").iterdir())
    assert run_mam("status", cwd=copy, env=root.env).code == 0


def test_a_wait_outlives_its_monitor(root: Root) -> None:
    gate = root.gate()
    root.agent("writer", {"started": {}}, gate.step, {"report": {"text": "done"}})
    job = root.delegate()
    waiting = begin(root, "job", "wait", job)
    until(lambda: root.job(job).state == "running" and has_open(waiting, "registry.db"))

    root.kill_monitor()
    gate.open()

    assert waiting.wait(120) == 0


def test_waiting_for_no_time_at_all_is_a_look(root: Root) -> None:
    root.agent("writer", *HANG)
    job = root.delegate()

    assert root.mam("job", "wait", job, "--timeout", "0").code == 4


def test_doctor_leaves_the_jobs_of_other_control_roots_alone(make_root: Callable[..., Root], tmp_path: Path) -> None:
    one, two = make_root("one"), make_root("two")
    for root in (one, two):
        root.env["MAM_JOBS_DIR"] = str(tmp_path / "central")
    one.agent()
    job = one.delegate()
    one.mam("job", "wait", job)
    folder = tmp_path / "central" / job
    os.utime(folder, (1, 1))

    two.mam("doctor", "--fix")

    assert folder.exists()


def test_nothing_is_sent_to_an_agent_that_is_stopped(root: Root) -> None:
    root.agent()
    root.mam("agent", "stop", "writer")

    said = root.mam("agent", "send", "writer", "hello", "--json", timeout_s=30)

    assert (said.code, said.error["code"]) == (1, "session_not_running")


def test_paths_in_the_settings_file_do_not_depend_on_the_caller(root: Root) -> None:
    (root.path / ".mam.env").write_text("MAM_JOBS_DIR=central\n")
    (root.path / "sub").mkdir()
    root.agent()

    said = root.mam("job", "delegate", "--to", "writer", "--brief", "../README", "--json", cwd=root.path / "sub")

    assert said.json["brief_path"].startswith(str(root.path / "central"))


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


def test_a_job_that_waited_long_for_a_monitor_is_sent_all_the_same(root: Root) -> None:
    root.agent()
    root.mam("down")
    words = ["job", "delegate", "--to", "writer", "--brief", "README", "--deliver-within", "6", "--json"]
    job = root.mam(*words, env={"MAM_NO_SUBSCRIBER_DAEMON": "1"}).json["id"]
    with root.registry.transaction() as tx:  # as if it had lain there for longer than its limit and a half
        for table in ("jobs", "attempts", "outbox"):
            tx.connection.execute(f"UPDATE {table} SET created_at = created_at - 15000")

    assert root.mam("job", "wait", job, "--timeout", "30").code == 0


def test_a_job_that_is_kept_is_said_to_be_kept_where_no_monitor_starts(root: Root) -> None:
    root.agent()
    root.mam("down")
    lock = root.path / ".mam" / "monitor.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()

    said = root.mam("job", "delegate", "--to", "writer", "--brief", "README", "--json")

    lock.rmdir()
    assert said.code == 0, said.err
    assert root.job(said.json["id"]).state == "queued"
    assert "kept and will be sent" in said.err
