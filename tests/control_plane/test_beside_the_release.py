"""Processes of MAM 0.1.0, from its wheel, go on beside this version's in one control root."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from mam.control_plane.sessions import runtime
from tests.support import MAM, Root, Said, until
from tests.support.installations import installed_once
from tests.support.stage import Stage


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The `mam` of 0.1.0, installed once a run. It shares what it depends on with this version, and no line of code."""
    return installed_once(tmp_path_factory).mam


def by(program: str, root: Root, *words: str, stdin: str = "") -> Said:
    """What `mam` of one version said in the control root."""
    environ = {**os.environ, **root.env}
    done = subprocess.run([program, *words], cwd=root.path, env=environ, input=stdin, capture_output=True, text=True)
    return Said(done.returncode, done.stdout, done.stderr)


def ok(program: str, root: Root, *words: str, stdin: str = "") -> Any:
    said = by(program, root, *words, stdin=stdin)
    assert said.code == 0, said.err
    return said.json


def program_of(pid: int) -> str:
    """The `mam` that a process was started with."""
    words = subprocess.check_output(["ps", "-ww", "-o", "args=", "-p", str(pid)], text=True).split()
    return next(word for word in words if word.endswith("/mam"))


def monitor(root: Root) -> int:
    known = monitor_process.look(root.parts.layout)
    assert known is not None
    return known.process.pid


@pytest.fixture(params=["the old one is there", "the new one is there"])
def order(request: pytest.FixtureRequest, old: str) -> tuple[str, str]:
    return (old, MAM) if request.param == "the old one is there" else (MAM, old)


def test_monitors_of_two_versions_exclude_each_other(root: Root, order: tuple[str, str]) -> None:
    first, second = order
    ok(first, root, "up", "--json")
    pid = monitor(root)
    assert program_of(pid) == first

    refused = by(second, root, "monitor", "run", "--json")

    assert refused.error["code"] == "monitor_runs", refused.err
    assert ok(second, root, "up", "--json")["monitor_pid"] == pid
    assert monitor(root) == pid and program_of(pid) == first


@pytest.mark.parametrize("ends", ["old", "new"])
def test_an_agent_of_the_release_goes_on_under_the_new_monitor(root: Root, old: str, ends: str) -> None:
    gate, script = root.path.parent / "gate", root.path.parent / "script.json"
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    script.write_text(json.dumps([{"started": {}}, {"shell": wait}, {"report": {"text": "done"}}]), "utf-8")
    ok(old, root, "up", "--json")
    create = ["agent", "create", "writer", "--agent", "scripted", "--role", "creator", "--json"]
    ok(old, root, *create, "--", "--script", str(script))
    runner = runtime.runner_id(root.session("writer"))
    assert runner is not None and program_of(runner.pid) == old
    begun = ok(old, root, "job", "delegate", "--to", "writer", "--brief", "-", "--json", stdin="do it")["id"]
    until(lambda: root.job(begun).state == "running", what="the job of before has begun")

    ok(old if ends == "old" else MAM, root, "down", "--json")
    root.ok("up")
    gate.touch()

    assert program_of(monitor(root)) == MAM
    ended = root.ok("job", "wait", begun)
    assert (ended["state"], ended["result"]) == ("reported", "done")
    after = root.ok("job", "wait", root.delegate("writer"))
    assert (after["state"], after["result"]) == ("reported", "done")
    assert runtime.runner_id(root.session("writer")) == runner and process_identity.alive(runner)
    assert root.mam("verify", begun).code == root.mam("verify", after["id"]).code == 0


def test_a_loop_that_the_release_carries_out_ends_beside_the_new_monitor(root: Root, old: str) -> None:
    stage = Stage(root)
    ok(old, root, "up", "--json")
    stage.agent("rev-a")
    tree = stage.changed()
    loop = stage.plan(rev_a=[[{"gate": "reading"}, {"report": "pass"}]])
    words = [old, *stage.words(tree, loop), "--json"]
    environ = {**os.environ, **root.env}
    with subprocess.Popen(
        words, cwd=root.path, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as carrier:
        assert carrier.stdin is not None
        carrier.stdin.write("look at it\n")
        carrier.stdin.close()
        carrier.stdin = None
        stage.reached(loop, "reading", "rev-a")

        root.ok("down")
        root.ok("up")
        stage.go(loop, "reading")
        out, _ = carrier.communicate(timeout=120)

    assert program_of(monitor(root)) == MAM
    assert (carrier.returncode, json.loads(out)["outcome"]) == (0, "passed")
    assert root.ok("loop", "show", loop)["outcome"] == "passed"


def test_the_release_is_the_wheel_and_not_this_tree(old: str) -> None:
    where = "import mam.broker, mam.control_plane as top; print(mam.broker.__file__, top.__file__)"
    found = subprocess.check_output([str(Path(old).with_name("python")), "-c", where], text=True).split()

    assert len(found) == 2 and all(path.startswith(str(Path(old).parents[1])) for path in found)
