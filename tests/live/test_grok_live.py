"""The main job on real input: a real repository, tmux, grok and nats-server; only the model is a stand-in."""

import os

import pytest

from mam.agents.stand_in.server import ModelStandIn
from tests.live import accounts, life
from tests.live.life import bare as bare
from tests.live.life import model as model
from tests.support import Root, until

pytestmark = pytest.mark.live

PROGRAM = ("grok", "grok_cli_bin")


@pytest.fixture
def team(bare: Root, model: ModelStandIn, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A control root whose tmux server gives its panes what grok needs to reach the stand-in."""
    accounts.grok(monkeypatch, model)
    life.hire(bare, "grok", life.program(*PROGRAM), "-m", "standin-model")
    return bare


def test_a_real_agent_receives_a_job_does_it_and_reports(team: Root) -> None:
    life.receives_a_job_does_it_and_reports(team)


def test_a_stopped_agent_comes_back_with_the_same_conversation(team: Root) -> None:
    life.comes_back_with_the_same_conversation(team)


def test_a_failure_of_its_model_is_seen_and_passes(team: Root) -> None:
    life.is_seen_to_be_refused_by_its_model_and_works_on(team, 401)


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
