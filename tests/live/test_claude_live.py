"""claude in real tmux through a whole life; only its model is a stand-in."""

from pathlib import Path

import pytest

from mam.agents.stand_in.server import ModelStandIn
from tests.live import accounts, life
from tests.live.life import bare as bare
from tests.live.life import model as model
from tests.support import MAM, Root, until

pytestmark = pytest.mark.live

PROGRAM = ("claude",)
UNATTENDED = "--dangerously-skip-permissions"


@pytest.fixture
def team(bare: Root, model: ModelStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A control root whose user has answered once what claude asks once, and has given it its model and key."""
    home = tmp_path / "home"
    accounts.claude(monkeypatch, model, home, [bare.path])
    monkeypatch.setenv("IS_SANDBOX", "1")  # as root it refuses to work unasked otherwise
    (home / ".claude" / "settings.json").write_text('{"skipDangerousModePermissionPrompt": true}', "utf-8")
    return bare


def test_a_real_agent_receives_a_job_does_it_and_reports(team: Root) -> None:
    life.hire(team, "claude", life.program("claude"), UNATTENDED)
    life.receives_a_job_does_it_and_reports(team)


def test_a_stopped_agent_comes_back_with_the_same_conversation(team: Root) -> None:
    life.hire(team, "claude", life.program("claude"), UNATTENDED)
    life.comes_back_with_the_same_conversation(team)
    assert team.session("writer").conversation is not None


def test_killed_in_mid_turn_it_comes_back_with_its_conversation(team: Root) -> None:
    life.hire(team, "claude", life.program("claude"), UNATTENDED)
    life.comes_back_after_a_kill_in_mid_turn(team)


def test_a_permission_that_it_asks_for_is_seen_and_answered_by_a_person(team: Root) -> None:
    verbs = f"Bash({MAM} job:*)"
    life.hire(team, "claude", life.program("claude"), "--permission-mode", "default", "--allowedTools", verbs, "Write")
    life.is_seen_to_ask_and_goes_on_once_answered(team, "touch asked-for", "Enter")
    assert (team.path / "asked-for").exists()
    until(lambda: "turn_ended" in life.hooks_said(team), what="its own hook tells the end of the turn")


def test_a_failure_of_its_model_is_seen_and_passes(team: Root) -> None:
    life.hire(team, "claude", life.program("claude"), UNATTENDED)
    life.is_seen_to_be_refused_by_its_model_and_works_on(team, 400)


def test_a_folder_that_nobody_trusts_yet_is_a_dialog(team: Root, tmp_path: Path) -> None:
    (tmp_path / "home" / ".claude.json").write_text('{"hasCompletedOnboarding": true, "theme": "dark"}', "utf-8")
    life.dialog_is_seen(team, "claude", life.program("claude"), UNATTENDED)
