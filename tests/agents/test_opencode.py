"""
opencode's screens, as captured from opencode 1.18.33 in tmux and freed of trailing blanks: one file each, the pane's
title on its first line.

A file's name begins with the signal that it must give; `draft` in the name means text in the composer.
"""

from pathlib import Path

import pytest

from mam.agents import opencode
from mam.agents.protocol import Screen, ScreenState
from tests.support.sample_choice import read_now

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


def shown(name: str) -> Screen:
    path = Path(__file__).parent / "screens" / f"opencode-{name}.txt"
    title, _, text = path.read_text("utf-8").partition("\n")
    return Screen(text, title)


def names() -> list[str]:
    """Every recorded screen."""
    return [path.stem.removeprefix("opencode-") for path in SCREENS]


def told(screen: Screen, text: str, *, indent: str = "     ") -> Screen:
    """The screen with *text* as the last words of an agent: indented, above the closing line."""
    lines = screen.text.splitlines()
    closing_line = max(at for at, line in enumerate(lines) if line.startswith("     ▣  "))
    spoken = [(indent + line).rstrip() for line in text.splitlines()]
    return screen._replace(text="\n".join([*lines[:closing_line], *spoken, "", *lines[closing_line:]]))


@pytest.mark.parametrize("name", read_now("opencode"))
def test_trailing_blanks_and_the_title_decide_nothing(name: str) -> None:
    screen = shown(name)
    padded = Screen("\n".join(line.ljust(200) for line in screen.text.splitlines()), "OC | esc interrupt")
    assert opencode.read(padded) is opencode.read(screen)
    assert opencode.draft(padded) is opencode.draft(screen)


@pytest.mark.parametrize("size", ["200x50", "80x24"])
def test_the_captures_cover_every_signal_in_two_sizes(size: str) -> None:
    assert {opencode.read(shown(name)) for name in names() if name.endswith(size)} == set(ScreenState) - {
        ScreenState.STARTING
    }


@pytest.mark.parametrize("said", WORDS)
@pytest.mark.parametrize("name", ["ready-after-turn-200x50", "ready-after-turn-80x24", "ready-resumed-killed-200x50"])
def test_what_an_agent_says_is_no_state(name: str, said: str) -> None:
    screen = told(shown(name), WORDS[said])
    assert opencode.read(screen) is ScreenState.READY
    assert not opencode.draft(screen)


@pytest.mark.parametrize("said", WORDS)
def test_what_a_tool_says_is_no_state_even_where_its_turn_was_cut_off(said: str) -> None:
    output = "\n".join(
        ["  ┃", "  ┃  $ cat notes", "  ┃", *(f"  ┃  {line}" for line in WORDS[said].splitlines()), "  ┃"]
    )
    for name in ("ready-after-turn-200x50", "ready-resumed-killed-200x50"):
        assert opencode.read(told(shown(name), output, indent="")) is ScreenState.READY


@pytest.mark.parametrize("name", ["asking-bash-80x24", "dialog-question-80x24"])
def test_a_picture_of_a_composer_hides_no_question(name: str) -> None:
    screen = told(shown(name), BUSY)
    assert opencode.read(screen) is ScreenState(name.split("-")[0])
    assert not opencode.draft(screen)


def test_a_menu_is_seen_also_where_wide_signs_stand_beside_it() -> None:
    text = shown("dialog-status-80x24").text
    wide = text.replace("     REMEM  Status", "     한글   Status")
    assert wide != text
    assert opencode.read(Screen(wide)) is ScreenState.DIALOG


def test_the_key_that_closes_a_menu_is_no_menu_where_it_stands_in_a_table() -> None:
    keys = "enter   submit\nLeave                                                   esc\ntab     agents"
    lines = told(shown("ready-after-turn-80x24"), keys, indent=" " * 10)
    row = next(line for line in lines.text.splitlines() if "Leave" in line)
    assert row.index("Leave") + len(row) in range(79, 82)  # as far from either side as a menu's head
    assert opencode.read(lines) is ScreenState.READY


def test_a_job_that_was_never_answered_is_no_failure_whatever_stands_above_it() -> None:
    failed = shown("error-401-80x24").text
    prompt = failed.replace("the stand-in answers 401", "[MAM job job-0000000000b3, attempt 1]")
    assert prompt != failed
    assert opencode.read(Screen(prompt)) is ScreenState.READY


@pytest.mark.parametrize("text", ["", "\n\n", "   \n"])
def test_an_empty_screen_is_starting(text: str) -> None:
    assert opencode.read(Screen(text)) is ScreenState.STARTING
    assert not opencode.draft(Screen(text))


def test_a_composer_that_names_no_agent_yet_is_starting() -> None:
    text = shown("ready-new-80x24").text.replace("Build · standin-model Stand-in", "")
    assert opencode.read(Screen(text)) is ScreenState.STARTING


@pytest.mark.parametrize(
    "text", ["dev@box:~$ \n", "Configuration is invalid at /srv/x/opencode.json\n↳ Expected string"]
)
def test_a_shell_prompt_and_a_parting_word_are_gone(text: str) -> None:
    assert opencode.read(Screen(text)) is ScreenState.GONE
