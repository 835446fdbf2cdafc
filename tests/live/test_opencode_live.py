"""opencode in real tmux through a whole life; only its model is a stand-in."""

import json
from pathlib import Path

import psutil
import pytest

from mam.agents.stand_in.server import ModelStandIn
from tests.live import accounts, life
from tests.live.life import bare as bare
from tests.live.life import model as model
from tests.support import Root, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]  # it starts slowly where much else runs

PROGRAM = ("opencode",)
UNATTENDED = "--auto"
PLUGIN = """\
import { writeFileSync } from "node:fs"
export default { id: "mine", tui: async () => writeFileSync(PATH, "") }
"""


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
    life.is_seen_to_ask_and_goes_on_once_answered(team, "touch asked-for", "Enter", hooked=True)
    assert (team.path / "asked-for").exists()
    said = ["permission", "permission_answered", "turn_ended"]
    until(lambda: life.hooks_said(team) == said, what="its own plug-in tells all of it")


def test_what_auto_answers_is_no_question_and_its_users_plug_ins_work_on(
    team: Root, model: ModelStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts.opencode(monkeypatch, model, tmp_path / "home", permission={"bash": {"touch *": "ask"}})
    settings, loaded = tmp_path / "home" / ".config" / "opencode", tmp_path / "loaded"
    (settings / "tui.json").write_text('{"plugin": ["./mine.js"]}', "utf-8")
    (settings / "mine.js").write_text(PLUGIN.replace("PATH", json.dumps(str(loaded))), "utf-8")
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)

    job = team.delegate("writer", "RUN: touch asked-for\nREPORT: done")
    assert team.mam("job", "wait", job, "--timeout", "120").code == 0

    assert (team.path / "asked-for").exists() and loaded.exists()
    until(lambda: life.hooks_said(team) == ["turn_ended"], what="only the end of the turn is told")


def test_settings_of_its_users_own_terminal_leave_the_plug_in_out(
    team: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.json").write_text("{}", "utf-8")
    monkeypatch.setenv("OPENCODE_TUI_CONFIG", str(tmp_path / "mine.json"))
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    agent = psutil.Process(team.session("writer").agent_pid)
    assert agent.environ()["OPENCODE_TUI_CONFIG"] == str(tmp_path / "mine.json")


def test_a_failure_of_its_model_is_seen_and_passes(team: Root) -> None:
    life.hire(team, "opencode", life.program("opencode"), UNATTENDED)
    life.is_seen_to_be_refused_by_its_model_and_works_on(team, 401)


def test_a_user_without_a_provider_is_asked_for_one(team: Root, tmp_path: Path) -> None:
    settings = tmp_path / "home" / ".config" / "opencode" / "opencode.json"
    settings.write_text('{"disabled_providers": ["opencode"]}', "utf-8")
    life.dialog_is_seen(team, "opencode", life.program("opencode"))
