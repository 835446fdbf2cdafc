"""Control roots beside each other: a copy never touches the original, nor does anybody else's settings file."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from mam.broker.host import process_identity
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.sessions import runtime
from tests.support import Root, run_mam


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


def test_paths_in_the_settings_file_do_not_depend_on_the_caller(root: Root) -> None:
    (root.path / ".mam.env").write_text("MAM_JOBS_DIR=central\n")
    (root.path / "sub").mkdir()
    root.agent()

    said = root.mam("job", "delegate", "--to", "writer", "--brief", "../README", "--json", cwd=root.path / "sub")

    assert said.json["brief_path"].startswith(str(root.path / "central"))
