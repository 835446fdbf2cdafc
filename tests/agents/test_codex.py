"""
codex's screens, as captured from codex 0.171.0 in tmux: one file each, the pane's title on its first line.

A file's name begins with the signal that it must give; `draft` in the name means text in the composer.
"""

import json
import os
import tomllib
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from mam.agents import codex
from mam.agents.protocol import Launch, Permissions, Screen, ScreenState, Seat
from tests.support.sample_choice import read_now

SCREENS = sorted((Path(__file__).parent / "screens").glob("codex-*.txt"))
PERMISSION = """\
  Would you like to run the following command?
› 1. Yes, proceed (y)
  2. No, and tell Codex what to do differently (esc)

  Press enter to confirm or esc to cancel"""
BUSY = """\
Working (3s • esc to interrupt)

› half a prompt

  gpt-5.4 default · /srv/x
  tab to queue message"""
FAILURES = """\
■ exceeded retry limit, last status: 429 Too Many Requests
■ unexpected status 401 Unauthorized"""
LOGIN = """\
  Trust this folder?
› 1. Trust and continue
  enter continue · esc back
To continue this session, run:
dev@box:~$"""
WORDS = {"permission": PERMISSION, "busy": BUSY, "failures": FAILURES, "login": LOGIN}
A, B = "01a22bf0-e49d-7841-91eb-e36b993de689", "01a22bf2-0d14-7921-add9-8ba3038d1e4b"
LAUNCHED = 1_796_000_000.0


def shown(name: str) -> Screen:
    path = Path(__file__).parent / "screens" / f"codex-{name}.txt"
    title, _, text = path.read_text("utf-8").partition("\n")
    return Screen(text, title)


def names() -> list[str]:
    """Every recorded screen."""
    return [path.stem.removeprefix("codex-") for path in SCREENS]


def told(screen: Screen, text: str) -> Screen:
    """The screen with *text* as the last words of an agent: behind a bullet, indented, above the closing line."""
    lines = screen.text.splitlines()
    closing = max(at for at, line in enumerate(lines) if line.startswith("  Worked for"))
    spoken = ("• " + text.replace("\n", "\n  ")).splitlines()
    return screen._replace(text="\n".join([*lines[:closing], *spoken, "", *lines[closing:]]))


@pytest.mark.parametrize("name", read_now("codex"))
def test_the_screen_decides_without_its_title(name: str) -> None:
    for title in ("", "[ ! ] Action Required | x", "⠼ x | y"):
        assert codex.read(shown(name)._replace(title=title)) is codex.read(shown(name))


@pytest.mark.parametrize("size", ["200x50", "80x24"])
def test_the_captures_cover_every_signal_in_two_sizes(size: str) -> None:
    assert {codex.read(shown(name)) for name in names() if name.endswith(size)} == set(ScreenState)


@pytest.mark.parametrize("said", WORDS)
@pytest.mark.parametrize("name", ["ready-after-turn-200x50", "ready-after-turn-80x24"])
def test_what_an_agent_says_is_no_state(name: str, said: str) -> None:
    screen = told(shown(name), WORDS[said])
    assert codex.read(screen) is ScreenState.READY
    assert not codex.draft(screen)


@pytest.mark.parametrize("said", WORDS)
def test_what_a_tool_says_is_no_state(said: str) -> None:
    output = "\n".join(["Ran cat notes", *(f"  {line}" for line in WORDS[said].splitlines())])
    assert codex.read(told(shown("ready-after-turn-200x50"), output)) is ScreenState.READY


def test_trouble_goes_on_in_the_first_column() -> None:
    assert "\nhttp://127" in shown("error-401-80x24").text
    assert codex.read(shown("error-401-80x24")) is ScreenState.ERROR


@pytest.mark.parametrize("text", ["", "\n\n", "   \n", "  >_ OpenAI Codex (v0.171.0)\n"])
def test_a_screen_without_a_composer_is_starting(text: str) -> None:
    assert codex.read(Screen(text)) is ScreenState.STARTING
    assert not codex.draft(Screen(text))


def test_a_shell_prompt_is_gone() -> None:
    assert codex.read(Screen("dev@box:~$ \n")) is ScreenState.GONE


# -- launching and coming back ----------------------------------------------------


def seat(home: Path, conversation: str | None = None, cwd: Path | None = None) -> Seat:
    run_dir = home / "run"
    run_dir.mkdir(exist_ok=True)
    return Seat("w", cwd or home, home, "", ("-m", "x"), conversation, run_dir)


def keep(home: Path, conversation: str, *, cwd: Path, began: float = LAUNCHED + 5, source: object = "cli") -> Path:
    folder = home / ".codex/sessions/2026/11/30"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    about = {"id": conversation, "cwd": str(cwd), "source": source, "timestamp": stamp}
    path = folder / f"rollout-2026-11-30T10-12-17-{conversation}.jsonl"
    path.write_text(json.dumps({"type": "session_meta", "payload": about}) + "\n", "utf-8")
    return path


def launched(home: Path, *argv: str) -> None:
    path = home / "run/launch.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"argv": argv}), "utf-8")
    os.utime(path, (LAUNCHED, LAUNCHED))


def resumed(home: Path, conversation: str | None = None) -> str | None:
    launch = codex.resume(seat(home, conversation))
    if launch is None:
        return None
    assert without_hooks(launch) == ["codex", "--no-daemon", "resume", launch.argv[3], "-m", "x"]
    return launch.argv[3]


def test_codex_draws_its_own_id_and_runs_without_its_server(tmp_path: Path) -> None:
    assert codex.new_conversation() is None
    assert without_hooks(codex.launch(seat(tmp_path))) == ["codex", "--no-daemon", "-m", "x"]
    assert codex.launch(seat(tmp_path)._replace(program="/opt/codex")).argv[0] == "/opt/codex"


def flags(launch: Launch) -> list[str]:
    return [value for word, value in pairwise(launch.argv) if word == "-c" and value.startswith("hooks.")]


def without_hooks(launch: Launch) -> list[str]:
    argv, given = list(launch.argv), flags(launch)
    first = argv.index(given[0]) - 1
    assert argv[first : first + 6] == [word for flag in given for word in ("-c", flag)] and len(given) == 3
    return argv[:first] + argv[first + 6 :]


def test_its_hooks_are_of_this_session_alone_and_just_they_are_trusted(tmp_path: Path) -> None:
    hooks = tomllib.loads("\n".join(flags(codex.launch(seat(tmp_path)._replace(mam="/opt/my mäm/mam")))))["hooks"]
    command = {event: hooks[event][0]["hooks"][0]["command"] for event in ("Stop", "PermissionRequest")}
    assert command == {
        "Stop": "'/opt/my mäm/mam' agent-signal turn_ended",
        "PermissionRequest": "'/opt/my mäm/mam' agent-signal permission",
    }
    assert set(hooks) == {"Stop", "PermissionRequest", "state"}
    assert set(hooks["state"]) == {
        f"/<session-flags>/config.toml:{event}:0:0" for event in ("stop", "permission_request")
    }
    # What codex itself made of this command.
    known = "sha256:25cb88eaf67fa03d4e3288886ba9c49f90a1432930d68ba965cad6853e9367d8"
    assert hooks["state"]["/<session-flags>/config.toml:permission_request:0:0"]["trusted_hash"] == known


@pytest.mark.parametrize(
    "own",
    [
        ("-c", "hooks.Stop=[]"),
        ("-chooks.Stop=[]",),
        ("--config=hooks={}",),
        ("-c", "features.hooks=false"),
        ("--disable", "hooks"),
    ],
)
def test_words_about_hooks_of_the_users_own_leave_ours_out(tmp_path: Path, own: tuple[str, ...]) -> None:
    argv = codex.launch(seat(tmp_path)._replace(args=own)).argv
    assert list(argv) == ["codex", "--no-daemon", *own]


def test_a_folder_that_is_named_like_hooks_leaves_nothing_out(tmp_path: Path) -> None:
    granted = codex.grants(Permissions([tmp_path / "hooks"]))
    assert len(flags(codex.launch(seat(tmp_path)._replace(args=(*granted, "-C", "/srv/hooks"))))) == 3


def test_where_another_than_its_user_may_answer_a_request_is_no_question(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / ".codex/config.toml").write_text('approvals_reviewer = "auto_review"\n', "utf-8")
    by_settings = codex.launch(seat(tmp_path))
    by_word = codex.launch(seat(tmp_path / "other")._replace(args=("-c", "approvals_reviewer=auto_review")))
    for launch in (by_settings, by_word):
        assert [flag.partition("=")[0] for flag in flags(launch)] == ["hooks.Stop", "hooks.state"]


def test_the_sandbox_lets_the_verbs_write(tmp_path: Path) -> None:
    grant = Permissions([tmp_path / "run/w", tmp_path / 'ü "b"'])
    option, setting = codex.grants(grant)
    assert option == "-c"
    assert tomllib.loads(setting) == {"sandbox_workspace_write": {"writable_roots": [str(one) for one in grant.write]}}


def test_nothing_is_resumed_where_nothing_was_kept(tmp_path: Path) -> None:
    assert resumed(tmp_path) is None
    assert resumed(tmp_path, A) is None


def test_a_known_conversation_is_resumed_in_its_own_folder_only(tmp_path: Path) -> None:
    keep(tmp_path, A, cwd=tmp_path)
    keep(tmp_path, B, cwd=tmp_path / "other")
    assert resumed(tmp_path, A) == A
    assert resumed(tmp_path, B) is None


def test_the_conversation_that_began_here_since_the_launch_is_found(tmp_path: Path) -> None:
    launched(tmp_path, "codex", "--no-daemon")
    keep(tmp_path, A, cwd=tmp_path, began=LAUNCHED - 60)
    assert resumed(tmp_path) is None
    keep(tmp_path, B, cwd=tmp_path)
    assert resumed(tmp_path) == B


def test_what_the_last_launch_continued_is_continued_again(tmp_path: Path) -> None:
    launched(tmp_path, "codex", "--no-daemon", "resume", A, "-m", "x")
    keep(tmp_path, A, cwd=tmp_path, began=LAUNCHED - 60)
    keep(tmp_path, B, cwd=tmp_path)
    assert resumed(tmp_path) == A


@pytest.mark.parametrize("name", ["job-0123456789ab", "loop-1a2b3c4d-r1-rev-a", "my-own-name"])
def test_among_several_the_one_with_a_job_of_this_seat_is_found(tmp_path: Path, name: str) -> None:
    launched(tmp_path, "codex")
    mine, other = keep(tmp_path, A, cwd=tmp_path), keep(tmp_path, B, cwd=tmp_path)
    assert resumed(tmp_path) is None
    (tmp_path / "run/deliveries").mkdir()
    (tmp_path / f"run/deliveries/{name}-1").write_text("{}", "utf-8")
    for path, job in ((mine, name), (other, "job-ba9876543210")):
        with path.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"text": f"[MAM job {job}, attempt 1]\nRead the brief"}) + "\n")
    assert resumed(tmp_path) == A


def test_what_codex_did_on_the_side_does_not_count(tmp_path: Path) -> None:
    launched(tmp_path, "codex")
    keep(tmp_path, A, cwd=tmp_path)
    keep(tmp_path, B, cwd=tmp_path, source={"subagent": "review"})
    assert resumed(tmp_path) == A


def test_a_folder_is_known_by_its_real_path_as_well(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    keep(tmp_path, A, cwd=(tmp_path / "real").resolve())
    assert codex.resume(seat(tmp_path, A, tmp_path / "link")) is not None


@pytest.mark.parametrize("content", ["", "no json\n", "[1]\n", '{"payload": {"cwd": "/x"}}\n', "\xff\n"])
def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, content: str) -> None:
    keep(tmp_path, B, cwd=tmp_path).write_text(content, "latin-1")
    assert resumed(tmp_path, B) is None
    keep(tmp_path, A, cwd=tmp_path)
    assert resumed(tmp_path) == A
