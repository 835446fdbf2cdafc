"""opencode in real tmux through a whole life; only its model is a stand-in."""

import json
from pathlib import Path

import pytest

from tests.live import life
from tests.live.life import bare as bare
from tests.live.life import model as model
from tests.standin.model import ModelStandIn
from tests.support import Root

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]  # it starts slowly where much else runs

PROGRAM = ("opencode",)
UNATTENDED = "--auto"
MODEL = {"name": "standin-model", "tool_call": True, "limit": {"context": 128_000, "output": 8192}}


@pytest.fixture
def team(bare: Root, model: ModelStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A control root whose user has given opencode its model."""
    catalog = tmp_path / "models.json"  # the world's models cost it most of its start
    catalog.write_text("{}", "utf-8")
    monkeypatch.setenv("OPENCODE_MODELS_PATH", str(catalog))
    monkeypatch.setenv("OPENCODE_DISABLE_MODELS_FETCH", "1")
    monkeypatch.setenv("npm_config_offline", "true")  # it would fetch a package for plug-ins
    settle(
        tmp_path,
        model="standin/standin-model",
        small_model="standin/standin-model",
        provider={
            "standin": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Stand-in",
                "options": {"baseURL": f"{model.url}/v1", "apiKey": "stand-in"},
                "models": {"standin-model": MODEL},
            }
        },
    )
    return bare


def settle(tmp_path: Path, **settings: object) -> None:
    """Add to what opencode's user has settled."""
    path = tmp_path / "home" / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**before, **settings}), "utf-8")


def test_a_real_agent_receives_a_job_does_it_and_reports(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.receives_a_job_does_it_and_reports(team)


def test_a_stopped_agent_comes_back_with_the_same_conversation(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.comes_back_with_the_same_conversation(team)


def test_two_agents_in_one_folder_come_back_each_with_its_own_conversation(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED, name="reviewer")
    other = team.delegate("reviewer", "REPORT: nothing to do")
    assert team.mam("job", "wait", other, "--timeout", "120").code == 0

    life.comes_back_with_the_same_conversation(team)

    assert other not in life.screen(team)


def test_killed_in_mid_turn_it_comes_back_with_its_conversation(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.comes_back_after_a_kill_in_mid_turn(team)


def test_a_permission_that_it_asks_for_is_seen_and_answered_by_a_person(team: Root, tmp_path: Path) -> None:
    settle(tmp_path, permission={"bash": {"touch *": "ask"}})
    life.hire(team, "opencode", life.program("opencode"))
    life.is_seen_to_ask_and_goes_on_once_answered(team, "touch asked-for", "Enter")
    assert (team.path / "asked-for").exists()


def test_a_failure_of_its_model_is_seen_and_passes(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.is_seen_to_be_refused_by_its_model_and_works_on(team, 401)


def test_a_user_without_a_provider_is_asked_for_one(team: Root, tmp_path: Path) -> None:
    (tmp_path / "home" / ".config" / "opencode" / "opencode.json").unlink()
    settle(tmp_path, disabled_providers=["opencode"])
    life.dialog_is_seen(team, "opencode", life.program("opencode"))
