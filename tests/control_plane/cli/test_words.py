"""What a verb was given: nothing is no value, and a verb that knows its places needs no directory to stand in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mam.broker.errors import Usage
from mam.control_plane.cli import base, main
from mam.control_plane.cli.base import Parser
from mam.control_plane.config import settings as config
from mam.control_plane.control_root.context import Mam
from mam.control_plane.sessions import free_text, occupancy
from mam.control_plane.sessions.runtime import OtherBinding
from tests.support.desk import Desk

TOP = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "words",
    [
        ["job", "delegate", "--to", "writer", "--brief", "README", "--id", ""],
        ["job", "delegate", "--to", "writer", "--brief", "README", "--registry-dir", " "],
        ["job", "answer", "job-00000001", "yes", "--question", ""],
        ["job", "retry", "job-00000001", "--to", ""],
        ["loop", "run", "--task", "README", "--review-only", "--reviewers", "a", "--worktree", "t", "--id", ""],
        ["loop", "run", "--task", "README", "--review-only", "--reviewers", "a", "--worktree", "t", "--base", ""],
        ["worktree", "commit", "t", "-m", "text", "--expect", ""],
        ["agent", "stop", "writer", "--cwd", ""],
        ["status", "--root", ""],
    ],
    ids=" ".join,
)
def test_an_option_that_was_given_nothing_is_no_option_that_was_left_out(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--json"]) == 2

    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "usage" and "was given nothing" in error["message"]


def test_an_empty_text_is_taken_where_it_is_an_answer() -> None:
    def build(parser: Parser) -> None:
        parser.add_argument("--reason", default="")
        parser.add_argument("--to")

    assert base.verb(["job", "x", "--reason", ""], 2, "", "", build).reason == ""
    with pytest.raises(Usage):
        base.verb(["job", "x", "--to="], 2, "", "", build)


def test_verbs_work_in_a_directory_that_was_deleted(desk: Desk, tmp_path: Path) -> None:
    desk.session()
    desk.job()
    gone = tmp_path / "gone"
    gone.mkdir()
    mam = Path(sys.executable).parent / "mam"
    words = f"job show job-00000001 --root {desk.mam.layout.root} --json"
    script = f"cd {gone} && rmdir {gone} && {mam} {words} && {mam} status --json"

    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})

    assert json.loads(done.stdout)["id"] == "job-00000001", done.stderr
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"]) == (2, "usage") and f"{gone} is gone" in error["message"]


def test_the_working_directory_is_asked_for_in_one_place() -> None:
    rooms = (path for room in ("broker", "agents", "wrappers", "control_plane") for path in (TOP / room).rglob("*.py"))
    asks = {path.name for path in rooms if "Path.cwd()" in (text := path.read_text("utf-8")) or "os.getcwd(" in text}

    assert asks == {"settings.py"}


def sent(desk: Desk, **environ: str) -> str:
    """The text that `writer` would be typed where the verb is called with *environ*."""
    mam = Mam(config.Settings(environ, environ, desk.mam.layout.root), desk.mam.layout, by="test")
    send_id = free_text.queue(mam, "writer", "hello")
    with mam.registry.view() as view:
        (order,) = (order for order in view.outbox() if order.id == send_id)
    return str(json.loads(order.data)["prompt"])


def test_a_text_from_an_agents_pane_says_who_sent_it_and_any_other_says_nothing(desk: Desk) -> None:
    for name in ("writer", "rev-a"):
        desk.session(name)
    root = str(desk.mam.layout.root)

    assert sent(desk, MAM_SESSION="rev-a", WORKSPACE_ROOT=root) == "[from rev-a] hello"
    for other in ({}, {"MAM_SESSION": "writer", "WORKSPACE_ROOT": root}, {"MAM_SESSION": "x", "WORKSPACE_ROOT": root},
                  {"MAM_SESSION": "rev-a", "WORKSPACE_ROOT": "/elsewhere"}):  # fmt: skip
        assert sent(desk, **other) == "hello"


def test_a_job_is_not_put_where_its_agents_own_verbs_do_not_look(desk: Desk, tmp_path: Path) -> None:
    desk.session()
    environ = {"MAM_JOBS_DIR": str(tmp_path / "other")}
    desk.mam.settings = config.Settings(environ, environ, desk.mam.layout.root)

    with pytest.raises(OtherBinding):
        desk.job()
    assert not (desk.mam.layout.jobs / "job-00000001").exists()


def test_a_second_creator_in_the_main_checkout_is_named_and_a_reviewer_is_none(desk: Desk) -> None:
    root = str(desk.mam.layout.root)
    first = desk.session("first")
    others = [desk.session("second"), desk.session("rev", role="reviewer"), desk.session("away", cwd="/elsewhere")]

    with desk.mam.registry.view() as view:
        found = {each.name: occupancy.other_writers(view, each, root) for each in (first, *others)}

    assert found == {"first": ["second"], "second": ["first"], "rev": [], "away": []}
