"""The life of one agent, the same for every real CLI: hired, given a job, stopped, back with its memory, asking."""

import importlib.util
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mam.agents import catalog
from mam.agents.protocol import ScreenState
from mam.agents.stand_in.server import ModelStandIn
from mam.control_plane.sessions import runtime
from tests.support import Root, git, until
from tests.support.messages import content_of
from tests.support.services import unavailable

# The caller's own accounts and settings reach no agent that a test starts.
AMBIENT = ("ANTHROPIC_", "CLAUDE_", "CODEX_", "OPENAI_", "OPENCODE_", "XDG_", "IS_SANDBOX")
TASK = "RUN: echo changed >> README\nREPORT: I added a line to README.\nVERDICT: pass"


def program(name: str, package: str = "") -> str:
    """The real program, from PATH or from the Python package that carries it; skipped at home, missed in CI."""
    found = shutil.which(name)
    spec = importlib.util.find_spec(package) if package else None
    if found is None and spec is not None and spec.origin is not None:
        carried = Path(spec.origin).parent / "bin" / name
        if not os.access(carried, os.X_OK):
            carried.chmod(carried.stat().st_mode | stat.S_IXUSR)
        found = str(carried)
    if found is None:
        unavailable(f"{name} is not installed")
    return found


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelStandIn]:
    for name in list(os.environ):
        if name.startswith(AMBIENT):
            monkeypatch.delenv(name)
    with ModelStandIn() as running:
        yield running


@pytest.fixture
def bare(
    request: pytest.FixtureRequest, needs: Callable[[str], str], make_root: Callable[..., Root], model: ModelStandIn
) -> Root:
    """
    A control root in tmux and an empty home: its agents have no account, and no model but the stand-in.

    A test module names the program that it needs as PROGRAM, as for `program`.
    """
    needs("tmux")
    program(*request.module.PROGRAM)
    return make_root(mux="tmux")


def hire(root: Root, agent: str, program: str, *args: str, name: str = "writer", cwd: Path | None = None) -> Any:
    """Create a session of *agent* and wait until its screen is known; returns it as `agent create` tells it."""
    words = ["agent", "create", name, "--agent", agent, "--program", program, "--json"]
    words += ["--cwd", str(cwd)] if cwd else []
    said = root.mam(*words, *(["--", *args] if args else []))
    assert said.code == 0, f"{said.err}\n{screen(root, name)}"
    return said.json


def screen(team: Root, name: str = "writer") -> str:
    session = team.session(name)
    return runtime.multiplexer(team.parts, session).screen(session.pane).text


def receives_a_job_does_it_and_reports(team: Root) -> None:
    job = team.delegate("writer", TASK)
    done = team.mam("job", "wait", job, "--timeout", "120", "--json")

    assert done.code == 0, f"{done.out}{done.err}{screen(team)}"
    assert (done.json["state"], done.json["result"], done.json["verdict"]) == ("reported", "done", "pass")
    assert done.json["every_event_verified"]
    assert (team.path / "README").read_text("utf-8").endswith("changed\n")
    assert "I added a line" in Path(done.json["report_path"]).read_text("utf-8")
    assert team.mam("verify", job).code == 0
    kinds = [event["kind"] for event in team.events(f"jobs/{job}")]
    assert kinds[0] == "started" and kinds[-1] == "report"
    deliveries = [json.loads(line)["state"] for line in _deliveries(team, job)]
    assert deliveries == ["submitted"]
    assert git(team.path, "status", "--porcelain") == "M README"


def _deliveries(team: Root, job: str) -> list[str]:
    folder = team.path / ".mam" / "run" / "writer" / "deliveries"
    return [path.read_text("utf-8") for path in folder.glob(f"{job}-*")]


def comes_back_with_the_same_conversation(team: Root) -> None:
    job = team.delegate("writer", "REPORT: nothing to do")
    assert team.mam("job", "wait", job, "--timeout", "120").code == 0
    before = team.session("writer").conversation

    assert team.mam("agent", "stop", "writer").code == 0
    back = team.ok("agent", "resume", "writer")
    sent = team.mam("agent", "send", "writer", "Which jobs did you do before?")

    assert back["conversation"] == before
    assert back["generation"] == 2
    assert sent.code == 0, sent.err
    until(lambda: f"REMEMBERED: {job}" in screen(team), what="the answer names the earlier job")


def comes_back_after_a_kill_in_mid_turn(team: Root) -> None:
    job = team.delegate("writer", "DELAY: 60\nREPORT: never written")
    until(lambda: team.job(job).state == "running", what="the agent began")

    until(lambda: _is_kept(team, job), what="the agent itself has put the prompt on the disk")

    os.kill(team.session("writer").agent_pid, signal.SIGKILL)
    until(lambda: team.job(job).state == "lost", what="the loss is noticed")
    team.ok("agent", "resume", "writer")
    sent = team.mam("agent", "send", "writer", "Which jobs did you do before?")

    assert sent.code == 0, sent.err
    until(lambda: f"REMEMBERED: {job}" in screen(team), what="the answer names the job that was cut off")


def _is_kept(team: Root, job: str) -> bool:
    """Whether the conversation's files speak of *job*; an agent writes them some time after it took the prompt."""
    session = team.session("writer")
    cli = catalog.find(session.agent)
    if not cli.keeps_conversations:
        return True  # it keeps them in a database, as soon as they are there
    kept = cli.conversation_files(runtime.place_of(team.parts, session))
    files = [file for path in kept for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    return any(job.encode() in file.read_bytes() for file in files)


def is_seen_to_be_refused_by_its_model_and_works_on(team: Root, status: int) -> None:
    """*status* must be one that the agent does not try again by itself."""
    job = team.delegate("writer", f"HTTP: {status}")
    until(lambda: team.session("writer").screen == "error", what="the failure is recognised")

    why = team.ok("why", job)
    assert (why["because"], why["next"]) == ("its screen is error", "look at its pane: mam agent attach writer")
    assert team.job(job).state == "running"  # a screen only raises the question

    for verbs in (("job", "cancel", job), ("agent", "stop", "writer"), ("agent", "resume", "writer")):
        team.ok(*verbs)
    sent = team.mam("agent", "send", "writer", "Which jobs did you do before?")
    assert sent.code == 0, f"{sent.err}{screen(team)}"
    until(lambda: f"REMEMBERED: {job}" in screen(team), what="the next prompt is answered")


def is_seen_to_ask_and_goes_on_once_answered(team: Root, command: str, yes: str, *, hooked: bool = False) -> None:
    """
    The writer must not be allowed to run *command* unasked; *yes* is the key that allows it.

    *hooked*: its own hook must have told of the question before it is answered.
    """
    job = team.delegate("writer", f"RUN: {command}\nREPORT: done")
    until(lambda: team.session("writer").screen == "asking", what="the question is recognised")
    if hooked:
        until(lambda: team.session("writer").hook == "permission", what="its own hook tells of the question")

    why = team.ok("why", job)
    assert (why["because"], why["next"]) == ("its screen is asking", "look at its pane: mam agent attach writer")
    assert team.job(job).state == "running"

    until(lambda: _answered(team, job, yes), what="the job goes on and ends")


def _answered(team: Root, job: str, yes: str) -> bool:
    session = team.session("writer")
    mux = runtime.multiplexer(team.parts, session)
    if catalog.find(session.agent).read(mux.screen(session.pane)) is ScreenState.ASKING:
        mux.press(session.pane, yes)
        time.sleep(0.5)
    return bool(team.job(job).state == "reported")


def hooks_said(team: Root, name: str = "writer") -> list[str]:
    """What the agent's own hooks have told, in order."""
    told = [content_of(event["wire"])["data"].get("name") for event in team.events(f"agents/{name}/events")]
    return [one for one in told if one in ("permission", "permission_answered", "turn_ended")]


def dialog_is_seen(team: Root, agent: str, program: str, *args: str) -> None:
    """Hired into a screen that only a person should answer, it is not taken for ready."""
    said = team.mam("agent", "create", "lost", "--agent", agent, "--program", program, "--json", "--", *args)
    until(lambda: team.session("lost").screen == "dialog", what=f"the dialog is recognised: {said.err}")
    assert "screen: ready" not in said.err
