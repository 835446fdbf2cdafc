"""The main job on real input: a real repository, tmux, grok and nats-server; only the model is a stand-in."""

import importlib.util
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mam.control_plane import sessions
from tests.standin.model import ModelStandIn
from tests.support import Root, git, until

pytestmark = pytest.mark.live


def _grok(tmp_path: Path) -> str:
    """The real program, from PATH or from the package that carries it."""
    found = shutil.which("grok")
    spec = importlib.util.find_spec("grok_cli_bin")
    if found is None and spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "bin" / "grok"
        if not os.access(program, os.X_OK):
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        found = str(program)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("grok is missing in CI")
        pytest.skip("grok is not installed")
    return found


@pytest.fixture
def model() -> Iterator[ModelStandIn]:
    with ModelStandIn() as running:
        yield running


@pytest.fixture
def team(
    make_root: Callable[..., Root],
    needs: Callable[[str], None],
    model: ModelStandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Root:
    """A control root whose tmux server gives its panes what grok needs to reach the stand-in."""
    needs("tmux")
    monkeypatch.setenv("XAI_API_KEY", "xai-stand-in")
    monkeypatch.setenv("GROK_MODELS_BASE_URL", f"{model.url}/v1")
    monkeypatch.setenv("GROK_XAI_API_BASE_URL", f"{model.url}/v1")
    root = make_root(mux="tmux")
    said = root.mam(
        "agent",
        "create",
        "writer",
        "--agent",
        "grok",
        "--program",
        _grok(tmp_path),
        "--json",
        "--",
        "-m",
        "standin-model",
    )
    assert said.code == 0, said.err
    return root


def test_a_real_agent_receives_a_job_does_it_and_reports(team: Root) -> None:
    task = "RUN: echo changed >> README\nREPORT: I added a line to README.\nVERDICT: pass"

    job = team.delegate("writer", task)
    done = team.mam("job", "wait", job, "--timeout", "60", "--json")

    assert done.code == 0, done.err
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


def test_a_stopped_agent_comes_back_with_the_same_conversation(team: Root) -> None:
    job = team.delegate("writer", "REPORT: nothing to do")
    assert team.mam("job", "wait", job, "--timeout", "60").code == 0
    before = team.session("writer").conversation

    assert team.mam("agent", "stop", "writer").code == 0
    back = team.ok("agent", "resume", "writer")
    sent = team.mam("agent", "send", "writer", "Which jobs did you do before?")

    assert back["conversation"] == before
    assert back["generation"] == 2
    assert sent.code == 0, sent.err
    until(lambda: f"REMEMBERED: {job}" in _screen(team), what="the answer names the earlier job")


def _screen(team: Root) -> str:
    session = team.session("writer")
    return sessions.multiplexer(team.parts, session).screen(session.pane).text


def test_killing_broker_monitor_and_runner_in_mid_turn_loses_and_doubles_nothing(team: Root) -> None:
    job = team.delegate("writer", "DELAY: 1\nRUN: echo changed >> README\nREPORT: done")
    until(lambda: team.job(job).state == "running", what="the agent began")

    team.kill_broker()
    team.kill_monitor()
    done = team.mam("job", "wait", job, "--timeout", "90", "--json")

    assert done.code == 0, f"{done.out}{done.err}"
    assert (team.path / "README").read_text("utf-8").count("changed") == 1
    ids = [event["id"] for event in team.events(f"jobs/{job}")]
    assert len(ids) == len(set(ids))
    assert [e["kind"] for e in team.events(f"jobs/{job}")].count("report") == 1


def test_a_killed_runner_is_named_with_the_command_that_goes_on(team: Root) -> None:
    job = team.delegate("writer", "DELAY: 20\nREPORT: done")
    until(lambda: team.job(job).state == "running", what="the agent began")

    os.kill(team.session("writer").pid, 9)
    until(lambda: team.job(job).state == "lost", what="the loss was noticed")
    why = team.ok("why", job)

    assert "runner ended" in why["because"]
    assert why["next"] == f"mam agent resume writer, then mam job retry {job}"
    team.ok("agent", "resume", "writer")
    assert team.ok("job", "retry", job)["attempt"] == 2
