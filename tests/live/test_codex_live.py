"""codex in real tmux through a whole life; only its model is a stand-in."""

import subprocess
from pathlib import Path

import pytest

from mam.agents.stand_in.server import ModelStandIn
from tests.live import accounts, life
from tests.live.life import bare as bare
from tests.live.life import model as model
from tests.support import Root, git, until

pytestmark = pytest.mark.live

PROGRAM = ("codex",)
UNATTENDED = "--dangerously-bypass-approvals-and-sandbox"


@pytest.fixture
def team(bare: Root, model: ModelStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A control root whose user has answered once what codex asks once, and has given it its model and key."""
    (tmp_path / "elsewhere").mkdir()
    accounts.codex(monkeypatch, model, tmp_path / "home", [bare.path, tmp_path / "elsewhere"])
    return bare


def test_a_real_agent_receives_a_job_does_it_and_reports(team: Root) -> None:
    life.hire(team, "codex", life.program("codex"), UNATTENDED)
    life.receives_a_job_does_it_and_reports(team)


def test_a_stopped_agent_comes_back_with_the_same_conversation(team: Root) -> None:
    life.hire(team, "codex", life.program("codex"), UNATTENDED)
    life.comes_back_with_the_same_conversation(team)
    team.ok("agent", "stop", "writer")
    assert team.ok("agent", "resume", "writer")["generation"] == 3
    until(lambda: "REMEMBERED: job-" in life.screen(team), what="the old transcript is drawn again")


def test_two_agents_in_one_folder_come_back_each_with_its_own_conversation(team: Root) -> None:
    life.hire(team, "codex", life.program("codex"), UNATTENDED)
    life.hire(team, "codex", life.program("codex"), UNATTENDED, name="reviewer")
    other = team.delegate("reviewer", "REPORT: nothing to do")
    assert team.mam("job", "wait", other, "--timeout", "60").code == 0

    life.comes_back_with_the_same_conversation(team)

    assert other not in life.screen(team)


def test_out_of_its_sandbox_the_verbs_of_mam_work_and_nothing_else(team: Root, tmp_path: Path) -> None:
    program, elsewhere = life.program("codex"), tmp_path / "elsewhere"
    probe = subprocess.run([program, "sandbox", "true"], cwd=elsewhere, capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"codex has no sandbox on this machine: {probe.stderr.strip()}")
    git(elsewhere, "init", "-q")
    life.hire(team, "codex", program, "-s", "workspace-write", "-a", "never", cwd=elsewhere)

    job = team.delegate("writer", f"RUN: touch {team.path}/outside || touch inside\nREPORT: done")
    done = team.mam("job", "wait", job, "--timeout", "60", "--json")

    assert done.code == 0, f"{done.out}{done.err}{life.screen(team)}"
    assert done.json["every_event_verified"]
    assert (elsewhere / "inside").exists() and not (team.path / "outside").exists()


def test_killed_in_mid_turn_it_comes_back_with_its_conversation(team: Root) -> None:
    life.hire(team, "codex", life.program("codex"), UNATTENDED)
    life.comes_back_after_a_kill_in_mid_turn(team)


def test_a_permission_that_it_asks_for_is_seen_and_answered_by_a_person(team: Root, tmp_path: Path) -> None:
    rules = tmp_path / "home" / ".codex" / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="prompt")\n', "utf-8")
    life.hire(team, "codex", life.program("codex"), "-s", "danger-full-access", "-a", "on-request")
    life.is_seen_to_ask_and_goes_on_once_answered(team, "touch asked-for", "Enter", hooked=True)
    assert (team.path / "asked-for").exists()
    until(lambda: life.hooks_said(team) == ["permission", "turn_ended"], what="its own hooks tell both")


def test_what_its_user_has_configured_works_on_beside_the_hooks_and_stays_as_it_is(team: Root, tmp_path: Path) -> None:
    config, notified = tmp_path / "home" / ".codex" / "config.toml", tmp_path / "notified"
    config.write_text(f'notify = ["touch", "{notified}"]\n{config.read_text("utf-8")}', "utf-8")
    before = config.read_text("utf-8")
    life.hire(team, "codex", life.program("codex"), UNATTENDED)
    life.receives_a_job_does_it_and_reports(team)
    until(notified.exists, what="its user's own program is told")
    until(lambda: life.hooks_said(team) == ["turn_ended"], what="and so is MAM")
    after = config.read_text("utf-8")
    assert after.startswith(before) and "hooks" not in after  # codex itself notes there what it has shown


def test_a_hook_that_its_user_has_not_reviewed_is_still_a_dialog(team: Root, tmp_path: Path) -> None:
    with (tmp_path / "home" / ".codex" / "config.toml").open("a", encoding="utf-8") as config:
        config.write('[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "true"\n')
    life.dialog_is_seen(team, "codex", life.program("codex"))
    assert "1 hook is new or changed" in life.screen(team, "lost")


def test_a_failure_of_its_model_is_seen_and_passes(team: Root) -> None:
    life.hire(team, "codex", life.program("codex"), UNATTENDED)
    life.is_seen_to_be_refused_by_its_model_and_works_on(team, 401)


def test_a_folder_that_nobody_trusts_yet_is_a_dialog(team: Root, tmp_path: Path) -> None:
    config = tmp_path / "home" / ".codex" / "config.toml"
    config.write_text(config.read_text("utf-8").partition("[projects")[0], "utf-8")
    life.dialog_is_seen(team, "codex", life.program("codex"))
