"""One monitor a control root, whoever starts it; it starts its broker again."""

import os
import subprocess
from pathlib import Path

import pytest

from mam.control_plane.control_root import monitor_process
from tests.support import MAM, Root, git, until


@pytest.mark.req("M91", "M92")
def test_there_is_one_monitor_however_many_start_it_and_from_wherever(root: Root, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(root.path, "worktree", "add", "-q", "-b", "topic", str(tree))
    environ = {**os.environ, **root.env}
    starts = [
        subprocess.Popen([MAM, "up"], cwd=cwd, env=environ, stdout=-3, stderr=-3) for cwd in (root.path, tree) * 3
    ]

    assert [child.wait(120) for child in starts] == [0] * 6

    known = monitor_process.look(root.parts.layout)
    assert known is not None
    until(lambda: _monitors(root) == [str(known.process.pid)], what="those that came second have ended")
    assert os.readlink(f"/proc/{known.process.pid}/cwd") == str(root.path)
    said = root.mam("monitor", "run", "--json", cwd=tree)
    assert (said.code, said.error["code"]) == (1, "monitor_runs")


def _monitors(root: Root) -> list[str]:
    argv = ["pgrep", "-f", f"monitor run --root {root.path}$"]
    return subprocess.run(argv, capture_output=True, text=True).stdout.split()


@pytest.mark.req("M92")
def test_the_opt_out_is_respected_by_every_verb_that_starts_a_monitor(root: Root) -> None:
    closed = {"MAM_NO_SUBSCRIBER_DAEMON": "1"}
    root.agent()
    job = root.delegate()
    root.mam("job", "wait", job)
    root.mam("down")

    for words in (
        ["up"],
        ["agent", "resume", "writer"],
        ["job", "delegate", "--to", "writer", "--brief", "README"],
        ["job", "wait", job],
        ["job", "cancel", "job-00000000"],
        ["status"],
        ["why", "writer"],
    ):
        root.mam(*words, env=closed)
        assert monitor_process.look(root.parts.layout) is None, words


def test_the_monitor_starts_its_broker_again(root: Root) -> None:
    root.agent()
    root.kill_broker()

    job = root.delegate()

    assert root.mam("job", "wait", job, "--timeout", "30").code == 0
