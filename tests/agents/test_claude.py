"""
The screens of claude 2.1.332 and 2.1.197, as captured in tmux: one file each, the pane's title on its first line.

A file's name begins with the signal that it must give; `draft` in the name means text in the composer.
"""

import json
import uuid
from pathlib import Path

import pytest

from mam.agents import claude
from mam.agents.protocol import Launch, Permissions, Screen, ScreenState, Seat
from tests.support.sample_choice import read_now

SCREENS = sorted((Path(__file__).parent / "screens").glob("claude-*.txt"))
PERMISSION = """\
 Do you want to proceed?
 ❯ 1. Yes
   2. No

 Esc to cancel · Tab to amend"""
BUSY = """\
✽ Calculating… (3s · ↓ 49 tokens)

────────────────────────────────────────
❯ half a prompt
────────────────────────────────────────
  ⏵⏵ bypass permissions on (shift+tab to cycle) · esc to interrupt"""
FAILURES = """\
● API Error: 429 the stand-in answers 429
⎿  Not logged in · Please run /login"""
TRUST = """\
────────────────────────────────────────
 Accessing workspace:
 ❯ No, exit
   Yes, I trust this folder
 Enter to confirm · Esc to cancel
Resume this session with:
dev@box:~$"""
WORDS = {"permission": PERMISSION, "busy": BUSY, "failures": FAILURES, "trust": TRUST}
# What claude itself made of these folders.
KEYS = {
    "/srv/We ird_dir.v1": "-srv-We-ird-dir-v1",
    "/srv/dev/y/a😀b": "-srv-dev-y-a--b",
    f"/srv/dev/y/{'p q_' * 14}/{'ü.x' * 20}/{'z' * 90}": (f"-srv-dev-y-{'p-q-' * 14}-{'--x' * 20}-{'z' * 71}-ppshk5"),
}


def shown(name: str) -> Screen:
    path = Path(__file__).parent / "screens" / f"claude-{name}.txt"
    title, _, text = path.read_text("utf-8").partition("\n")
    return Screen(text, title)


def names() -> list[str]:
    """Every recorded screen."""
    return [path.stem.removeprefix("claude-") for path in SCREENS]


def told(screen: Screen, text: str) -> Screen:
    """The screen with *text* as the last words of an agent: behind a bullet, indented, above the closing line."""
    lines = screen.text.splitlines()
    closing = max(at for at, line in enumerate(lines) if line.startswith("✻ "))
    first, *rest = text.splitlines()
    spoken = [f"● This is what it showed: {first}", *(f"  {line}" for line in rest), ""]
    return screen._replace(text="\n".join([*lines[:closing], *spoken, *lines[closing:]]))


def seat(home: Path, cwd: Path, conversation: str | None = None) -> Seat:
    return Seat("w", cwd, home, "", conversation=conversation)


def keep(home: Path, key: str, conversation: str, cwd: str) -> None:
    folder = home / ".claude/projects" / key
    folder.mkdir(parents=True)
    records = [{"type": "queue-operation"}, {"type": "user", "cwd": cwd, "sessionId": conversation}]
    (folder / f"{conversation}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")


@pytest.mark.parametrize("name", read_now("claude"))
def test_the_screen_decides_without_its_title(name: str) -> None:
    assert claude.read(shown(name)._replace(title="◐ Claude Code")) is claude.read(shown(name))


@pytest.mark.parametrize("version", ["332-200x50", "332-80x24", "197-80x24"])
def test_the_captures_cover_every_signal_in_both_versions(version: str) -> None:
    assert {claude.read(shown(name)) for name in names() if name.endswith(version)} == set(ScreenState) - {
        ScreenState.STARTING
    }


@pytest.mark.parametrize("said", WORDS)
@pytest.mark.parametrize("name", [f"ready-after-turn-{kind}" for kind in ("332-200x50", "332-80x24", "197-80x24")])
def test_what_an_agent_says_is_no_state(name: str, said: str) -> None:
    screen = told(shown(name), WORDS[said])
    assert claude.read(screen) is ScreenState.READY
    assert not claude.draft(screen)


@pytest.mark.parametrize("said", WORDS)
def test_what_a_user_or_a_tool_says_is_no_state(said: str) -> None:
    lines = shown("ready-interrupted-332-200x50").text.splitlines()
    end = max(at for at, line in enumerate(lines) if "Interrupted" in line) + 1
    for sign, answer in (("❯ ", ["", "● I see."]), ("● Bash(cat notes)\n  ⎿  ", [])):
        spoken = [*(sign + WORDS[said].replace("\n", "\n  ")).splitlines(), *answer]
        screen = Screen("\n".join([*lines[:end], "", *spoken, "", *lines[end:]]))
        assert claude.read(screen) is ScreenState.READY
        assert not claude.draft(screen)


def test_a_failure_that_an_agent_quotes_is_closed_with_the_time_and_so_no_failure() -> None:
    lines = shown("ready-after-turn-332-200x50").text.splitlines()
    closing = max(at for at, line in enumerate(lines) if line.startswith("✻ "))
    quoted = ["● API Error: 429 the stand-in answers 429", ""]
    assert claude.read(Screen("\n".join([*lines[:closing], *quoted, *lines[closing:]]))) is ScreenState.READY


@pytest.mark.parametrize("text", ["", "\n\n", "   \n"])
def test_an_empty_screen_is_starting(text: str) -> None:
    assert claude.read(Screen(text)) is ScreenState.STARTING
    assert not claude.draft(Screen(text))


def test_an_example_in_an_empty_composer_is_no_draft_but_the_same_words_typed_are() -> None:
    ready, typed = shown("ready-manual-332-200x50").text, shown("draft-line-332-200x50").text
    example = "\n".join('❯ Try "fix lint errors"' if line.startswith("❯") else line for line in ready.splitlines())
    assert not claude.draft(Screen(example))
    assert claude.draft(Screen(typed.replace("what do you remember?", 'Try "fix lint errors"')))


def test_two_rules_around_what_is_no_composer_take_no_prompt() -> None:
    lines = shown("ready-manual-332-200x50").text.splitlines()
    top = max(at for at, line in enumerate(lines) if line.startswith("❯"))
    lines.insert(top + 1, "a line in the first column")
    assert claude.read(Screen("\n".join(lines))) is not ScreenState.READY


def test_a_composer_with_a_name_on_its_rule_is_one_all_the_same() -> None:
    lines = shown("draft-line-332-80x24").text.splitlines()
    top = min(at for at, line in enumerate(lines) if line.startswith("─────"))
    lines[top] = "──────────────────────────────────────────────────────────── a name ──────────"
    assert claude.draft(Screen("\n".join(lines)))


def test_a_new_conversation_gets_its_id_at_launch_and_no_permission_mode_is_forced(tmp_path: Path) -> None:
    chosen = claude.new_conversation()
    assert chosen is not None and str(uuid.UUID(chosen)) == chosen
    launch = claude.launch(seat(tmp_path, tmp_path, chosen)._replace(args=("--model", "opus")))
    assert without_hooks(launch) == ["claude", "--session-id", chosen, "--model", "opus"]
    assert launch.env["DISABLE_AUTOUPDATER"] == "1" and "IS_SANDBOX" not in launch.env
    assert list(claude.grants(Permissions([tmp_path]))) == []


def test_it_may_write_reports_and_read_what_it_reviews_and_nothing_else(tmp_path: Path) -> None:
    jobs, reviews = tmp_path / "my shop (old), new" / "jobs", tmp_path / ".reviews"
    granted = claude.grants(Permissions([tmp_path / "run"], [jobs], [reviews]))
    assert list(granted) == [f"--allowedTools=Edit(/{jobs}/**),Read(/{jobs}/**),Read(/{reviews}/**)"]


def test_a_folder_is_granted_under_both_its_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    granted = claude.grants(Permissions([], [], [tmp_path / "link"]))
    assert list(granted) == [f"--allowedTools=Read(/{tmp_path}/link/**),Read(/{tmp_path}/real/**)"]


@pytest.mark.parametrize("name", ["*", "a?", "[ab]", "!a", "{a,b}", "back\\slash", "half)", "(half", "a\nb"])
def test_a_name_that_a_rule_would_take_for_a_pattern_is_not_granted(tmp_path: Path, name: str) -> None:
    assert list(claude.grants(Permissions([], [tmp_path / name], [tmp_path / name]))) == []


def test_a_program_of_the_users_own_is_run_instead(tmp_path: Path) -> None:
    assert without_hooks(claude.launch(seat(tmp_path, tmp_path)._replace(program="/opt/claude"))) == ["/opt/claude"]


@pytest.mark.parametrize("cwd", KEYS)
def test_a_conversation_is_resumed_by_the_key_of_its_folder(tmp_path: Path, cwd: str) -> None:
    keep(tmp_path, KEYS[cwd], "abc", cwd)
    resumed = claude.resume(seat(tmp_path, Path(cwd), "abc")._replace(args=("-x",)))
    assert resumed is not None
    assert without_hooks(resumed) == ["claude", "--resume", "abc", "-x"]
    assert resumed.env == claude.launch(seat(tmp_path, tmp_path)).env


def without_hooks(launch: Launch) -> list[str]:
    argv = list(launch.argv)
    at = argv.index("--settings")
    return argv[:at] + argv[at + 2 :]


def test_its_hooks_are_of_this_session_alone_and_run_the_mam_of_its_seat(tmp_path: Path) -> None:
    argv = claude.launch(seat(tmp_path, tmp_path)._replace(mam="/opt/my mam/mam")).argv
    hooks = json.loads(argv[argv.index("--settings") + 1])["hooks"]

    said = {name: entries[0]["hooks"][0]["command"] for name, entries in hooks.items()}
    assert said == {
        "Notification": "'/opt/my mam/mam' agent-signal permission",
        "Stop": "'/opt/my mam/mam' agent-signal turn_ended",
    }


@pytest.mark.parametrize("own", [("--settings", "mine.json"), ("--settings=mine.json",)])
def test_settings_of_the_users_own_leave_the_hooks_out(tmp_path: Path, own: tuple[str, ...]) -> None:
    argv = claude.launch(seat(tmp_path, tmp_path)._replace(args=own)).argv

    assert list(argv) == ["claude", *own]


def test_a_folder_is_known_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    real = str((tmp_path / "real").resolve())
    keep(tmp_path, "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in real), "abc", real)
    assert claude.resume(seat(tmp_path, tmp_path / "link", "abc")) is not None


def test_nothing_is_resumed_that_claude_does_not_know(tmp_path: Path) -> None:
    assert claude.resume(seat(tmp_path, Path("/srv/x"))) is None
    assert claude.resume(seat(tmp_path, Path("/srv/x"), "abc")) is None


def test_a_folder_with_the_same_key_is_not_taken_for_another(tmp_path: Path) -> None:
    keep(tmp_path, "-srv-a-b", "abc", "/srv/a/b")
    assert claude.resume(seat(tmp_path, Path("/srv/a/b"), "abc")) is not None
    assert claude.resume(seat(tmp_path, Path("/srv/a-b"), "abc")) is None


@pytest.mark.parametrize("content", ["", "no json\n", "[1]\n", '{"type":"mode"}\n', '{"cwd": 3}\n'])
def test_a_file_that_tells_no_folder_is_not_resumed(tmp_path: Path, content: str) -> None:
    keep(tmp_path, "-srv-x", "abc", "/srv/x")
    (tmp_path / ".claude/projects/-srv-x/abc.jsonl").write_text(content, "utf-8")
    assert claude.resume(seat(tmp_path, Path("/srv/x"), "abc")) is None
