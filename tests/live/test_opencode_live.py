"""opencode in real tmux through a whole life; only its model is a stand-in."""

from pathlib import Path

import pytest

from tests.live import accounts, life
from tests.live.life import bare as bare
from tests.live.life import model as model
from tests.standin.model import ModelStandIn
from tests.support import Root

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]  # it starts slowly where much else runs

PROGRAM = ("opencode",)
UNATTENDED = "--auto"


@pytest.fixture
def team(bare: Root, model: ModelStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A control root whose user has given opencode its model."""
    accounts.opencode(monkeypatch, model, tmp_path / "home")
    return bare


def test_a_real_agent_receives_a_job_does_it_and_reports(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.receives_a_job_does_it_and_reports(team)


@pytest.mark.req("M101")
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


def test_a_permission_that_it_asks_for_is_seen_and_answered_by_a_person(
    team: Root, model: ModelStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts.opencode(monkeypatch, model, tmp_path / "home", permission={"bash": {"touch *": "ask"}})
    life.hire(team, "opencode", life.program("opencode"))
    life.is_seen_to_ask_and_goes_on_once_answered(team, "touch asked-for", "Enter")
    assert (team.path / "asked-for").exists()


def test_a_failure_of_its_model_is_seen_and_passes(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.is_seen_to_be_refused_by_its_model_and_works_on(team, 401)


def test_a_user_without_a_provider_is_asked_for_one(team: Root, tmp_path: Path) -> None:
    settings = tmp_path / "home" / ".config" / "opencode" / "opencode.json"
    settings.write_text('{"disabled_providers": ["opencode"]}', "utf-8")
    life.dialog_is_seen(team, "opencode", life.program("opencode"))
