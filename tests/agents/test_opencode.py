"""
opencode's screens, as captured from opencode 1.18.33 in tmux and freed of trailing blanks: one file each, the pane's
title on its first line.

A file's name begins with the signal that it must give; `draft` in the name means text in the composer.
"""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mam.agents import opencode
from mam.agents.base import Grant, Launch, Screen, Seat, Signal

SCREENS = sorted((Path(__file__).parent / "screens").glob("opencode-*.txt"))
PERMISSION = """\
┃  △ Permission required
┃    # Shell command
┃
┃  $ rm -rf build
┃
┃   Allow once   Allow always   Reject"""
BUSY = """\
┃  half a prompt
┃
┃  Build · standin-model Stand-in
╹▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀
⬝⬝■■■■■■  esc interrupt                         tab agents  ctrl+p commands"""
FAILURES = """\
┃
┃  the stand-in answers 401
┃

▣  Build · standin-model"""
MENU = """\
Connect a provider                                               esc

Search

No provider selected
Continue  opencode -s ses_dd39e9fadffeRoEIZhWakgnkuL
dev@box:~$"""
WORDS = {"permission": PERMISSION, "busy": BUSY, "failures": FAILURES, "menu": MENU}
A, B = "ses_dd39e9fadffeRoEIZhWakgnkuL", "ses_dd3a535b4ffeGseDJWGAeqCSm6"
LAUNCHED = 1_796_000_000.0


def shown(name: str) -> Screen:
    path = Path(__file__).parent / "screens" / f"opencode-{name}.txt"
    title, _, text = path.read_text("utf-8").partition("\n")
    return Screen(text, title)


def names() -> list[str]:
    return [path.stem.removeprefix("opencode-") for path in SCREENS]


def told(screen: Screen, text: str, *, indent: str = "     ") -> Screen:
    """The screen with *text* as the last words of an agent: indented, above the closing line."""
    lines = screen.text.splitlines()
    closing_line = max(at for at, line in enumerate(lines) if line.startswith("     ▣  "))
    spoken = [(indent + line).rstrip() for line in text.splitlines()]
    return screen._replace(text="\n".join([*lines[:closing_line], *spoken, "", *lines[closing_line:]]))


@pytest.mark.parametrize("name", names())
def test_every_captured_screen_gives_the_signal_of_its_name(name: str) -> None:
    kind = name.split("-")[0]
    expected = Signal.READY if kind == "draft" else Signal(kind)
    assert opencode.read(shown(name)) is expected


@pytest.mark.parametrize("name", names())
def test_a_draft_is_seen_exactly_where_text_waits_in_the_composer(name: str) -> None:
    assert opencode.draft(shown(name)) is ("draft" in name)


@pytest.mark.parametrize("name", names())
def test_trailing_blanks_and_the_title_decide_nothing(name: str) -> None:
    screen = shown(name)
    padded = Screen("\n".join(line.ljust(200) for line in screen.text.splitlines()), "OC | esc interrupt")
    assert opencode.read(padded) is opencode.read(screen)
    assert opencode.draft(padded) is opencode.draft(screen)


@pytest.mark.parametrize("size", ["200x50", "80x24"])
def test_the_captures_cover_every_signal_in_two_sizes(size: str) -> None:
    assert {opencode.read(shown(name)) for name in names() if name.endswith(size)} == set(Signal) - {Signal.STARTING}


@pytest.mark.parametrize("said", WORDS)
@pytest.mark.parametrize("name", ["ready-after-turn-200x50", "ready-after-turn-80x24", "ready-resumed-killed-200x50"])
def test_what_an_agent_says_is_no_state(name: str, said: str) -> None:
    screen = told(shown(name), WORDS[said])
    assert opencode.read(screen) is Signal.READY
    assert not opencode.draft(screen)


@pytest.mark.parametrize("said", WORDS)
def test_what_a_tool_says_is_no_state_even_where_its_turn_was_cut_off(said: str) -> None:
    output = "\n".join(
        ["  ┃", "  ┃  $ cat notes", "  ┃", *(f"  ┃  {line}" for line in WORDS[said].splitlines()), "  ┃"]
    )
    for name in ("ready-after-turn-200x50", "ready-resumed-killed-200x50"):
        assert opencode.read(told(shown(name), output, indent="")) is Signal.READY


def test_a_menu_is_seen_also_where_wide_signs_stand_beside_it() -> None:
    text = shown("dialog-status-80x24").text
    wide = text.replace("     REMEM  Status", "     한글   Status")
    assert wide != text
    assert opencode.read(Screen(wide)) is Signal.DIALOG


def test_the_key_that_closes_a_menu_is_no_menu_where_it_stands_in_a_table() -> None:
    keys = "enter   submit\nLeave                                                   esc\ntab     agents"
    lines = told(shown("ready-after-turn-80x24"), keys, indent=" " * 10)
    row = next(line for line in lines.text.splitlines() if "Leave" in line)
    assert row.index("Leave") + len(row) in range(79, 82)  # as far from either side as a menu's head
    assert opencode.read(lines) is Signal.READY


def test_a_job_that_was_never_answered_is_no_failure_whatever_stands_above_it() -> None:
    failed = shown("error-401-80x24").text
    prompt = failed.replace("the stand-in answers 401", "[MAM job job-0000000000b3, attempt 1]")
    assert prompt != failed
    assert opencode.read(Screen(prompt)) is Signal.READY


@pytest.mark.parametrize("text", ["", "\n\n", "   \n"])
def test_an_empty_screen_is_starting(text: str) -> None:
    assert opencode.read(Screen(text)) is Signal.STARTING
    assert not opencode.draft(Screen(text))


def test_a_composer_that_names_no_agent_yet_is_starting() -> None:
    text = shown("ready-new-80x24").text.replace("Build · standin-model Stand-in", "")
    assert opencode.read(Screen(text)) is Signal.STARTING


@pytest.mark.parametrize(
    "text", ["dev@box:~$ \n", "Configuration is invalid at /srv/x/opencode.json\n↳ Expected string"]
)
def test_a_shell_prompt_and_a_parting_word_are_gone(text: str) -> None:
    assert opencode.read(Screen(text)) is Signal.GONE


# -- launching and coming back ----------------------------------------------------


def seat(home: Path, conversation: str | None = None, cwd: Path | None = None) -> Seat:
    run_dir = home / "run"
    run_dir.mkdir(exist_ok=True)
    return Seat("w", cwd or home, home, "", ("-m", "x/y"), conversation, run_dir)


def database(home: Path) -> sqlite3.Connection:
    """What adapters may rely on of opencode's own database, which is kept in WAL mode as well."""
    folder = home / ".local/share/opencode"
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "opencode.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, time_created INTEGER)"
    )
    connection.execute("CREATE TABLE IF NOT EXISTS part (session_id TEXT, data TEXT)")
    return connection


def keep(
    home: Path, conversation: str, *, cwd: Path, began: float = LAUNCHED + 5, parent: str | None = None, said: str = ""
) -> None:
    with closing(database(home)) as kept, kept:
        kept.execute("INSERT INTO session VALUES (?, ?, ?, ?)", (conversation, parent, str(cwd), int(began * 1000)))
        kept.execute("INSERT INTO part VALUES (?, ?)", (conversation, json.dumps({"type": "text", "text": said})))


def launched(home: Path, *argv: str) -> None:
    path = home / "run/launch.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"argv": argv}), "utf-8")
    os.utime(path, (LAUNCHED, LAUNCHED))


def resumed(home: Path, conversation: str | None = None) -> str | None:
    launch = opencode.resume(seat(home, conversation))
    if launch is None:
        return None
    assert [*launch.argv[:2], *launch.argv[3:]] == ["opencode", "--session", "-m", "x/y"]
    assert launch.env == opencode.launch(seat(home)).env
    return launch.argv[2]


def test_opencode_draws_its_own_id_and_is_kept_from_replacing_itself(tmp_path: Path) -> None:
    assert opencode.new_conversation() is None
    assert opencode.launch(seat(tmp_path)) == Launch(["opencode", "-m", "x/y"], {"OPENCODE_DISABLE_AUTOUPDATE": "1"})
    assert opencode.launch(seat(tmp_path)._replace(program="/opt/opencode")).argv[0] == "/opt/opencode"
    assert opencode.grants(Grant([tmp_path], [tmp_path])) == ()


def test_nothing_is_resumed_where_nothing_was_kept(tmp_path: Path) -> None:
    assert resumed(tmp_path) is None
    assert resumed(tmp_path, A) is None
    assert not (tmp_path / ".local").exists()


def test_a_known_conversation_is_resumed_in_its_own_folder_only(tmp_path: Path) -> None:
    keep(tmp_path, A, cwd=tmp_path)
    keep(tmp_path, B, cwd=tmp_path / "other")
    assert resumed(tmp_path, A) == A
    assert resumed(tmp_path, B) is None


def test_the_conversation_that_began_here_since_the_launch_is_found(tmp_path: Path) -> None:
    launched(tmp_path, "opencode")
    keep(tmp_path, A, cwd=tmp_path, began=LAUNCHED - 60)
    assert resumed(tmp_path) is None
    keep(tmp_path, B, cwd=tmp_path)
    assert resumed(tmp_path) == B


def test_what_the_last_launch_continued_is_continued_again(tmp_path: Path) -> None:
    launched(tmp_path, "opencode", "--session", A, "-m", "x/y")
    keep(tmp_path, A, cwd=tmp_path, began=LAUNCHED - 60)
    keep(tmp_path, B, cwd=tmp_path)
    assert resumed(tmp_path) == A


def test_among_several_the_one_with_a_job_of_this_seat_is_found(tmp_path: Path) -> None:
    launched(tmp_path, "opencode")
    keep(tmp_path, A, cwd=tmp_path, said="[MAM job job-0123456789ab, attempt 1]\nRead the brief")
    keep(tmp_path, B, cwd=tmp_path, said="[MAM job job-ba9876543210, attempt 1]\nRead the brief")
    assert resumed(tmp_path) is None
    (tmp_path / "run/deliveries").mkdir()
    (tmp_path / "run/deliveries/job-0123456789ab-1").write_text("{}", "utf-8")
    assert resumed(tmp_path) == A


def test_what_a_sub_agent_did_on_the_side_does_not_count(tmp_path: Path) -> None:
    launched(tmp_path, "opencode")
    keep(tmp_path, A, cwd=tmp_path)
    keep(tmp_path, B, cwd=tmp_path, parent=A)
    assert resumed(tmp_path) == A


def test_a_conversation_that_its_user_named_is_not_named_twice(tmp_path: Path) -> None:
    launched(tmp_path, "opencode", "-s", A)
    keep(tmp_path, A, cwd=tmp_path)
    for args in (["-s", A], ["--session", A], [f"--session={A}"], ["--continue"]):
        launch = opencode.resume(seat(tmp_path)._replace(args=args))
        assert launch is not None
        assert list(launch.argv) == ["opencode", *args]


def test_a_folder_is_known_by_its_real_path_as_well(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    keep(tmp_path, A, cwd=(tmp_path / "real").resolve())
    assert opencode.resume(seat(tmp_path, A, tmp_path / "link")) is not None


def test_what_was_written_last_is_read_while_opencode_still_holds_its_database(tmp_path: Path) -> None:
    with closing(database(tmp_path)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        busy.execute("INSERT INTO session VALUES (?, NULL, ?, ?)", (A, str(tmp_path), int(LAUNCHED * 1000)))
        assert resumed(tmp_path, A) is None
        busy.commit()
        assert resumed(tmp_path, A) == A


@pytest.mark.parametrize("content", [b"", b"no database\n" * 100])
def test_a_database_that_cannot_be_read_holds_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert resumed(tmp_path, A) is None


def test_a_home_with_odd_signs_in_its_path_is_found(tmp_path: Path) -> None:
    home = tmp_path / "50% of ü? #1"
    home.mkdir()
    keep(home, A, cwd=home)
    assert resumed(home, A) == A
