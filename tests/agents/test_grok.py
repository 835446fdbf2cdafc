"""
grok's screens, as captured from grok 0.2.111 in tmux: one file each, the pane's title on its first line.

A file's name begins with the signal that it must give; `draft` in the name means text in the composer.
"""

import re
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest

from mam.agents import grok
from mam.agents.protocol import Screen, ScreenState, Seat
from tests.support.sample_choice import read_now

SCREENS = sorted((Path(__file__).parent / "screens").glob("grok-*.txt"))
PERMISSION = """\
  ┃  rm -rf build
  ┃
  ┃  1 (●) Yes, and don't ask again for anything (always-approve mode)
  ┃  2 (○) Yes, proceed
  ┃  3 (○) No, reject (type to add feedback)
  ┃
  1/3:select  │  Ctrl+o:always-approve  │  Ctrl+c:cancel"""
BUSY = """\
    ⠹ Waiting for response… 2.1s                               2.3s ⇣55 [stop]
  ╭──────────────────────────────────────────────────────────────────────────╮
  │ ❯ half a prompt                                                          │
  ╰────────────────────────────────────────────────────────── standin-model ─╯
  Enter:queue  │  Alt+Enter:newline  │  Shift+Tab:mode  │  Esc:cancel  │"""
FAILURES = """\
     Authentication required — your session has expired.
     Retry failed: rate_limit_exceeded: 429"""
LOGIN = """\
                         Do you trust the contents of this directory?
                         Login with Grok              l
                         No, quit                     n
                                                      Grok Build  0.2.111 Beta
Resume this session with:
dev@box:~$"""
WORDS = {"permission": PERMISSION, "busy": BUSY, "failures": FAILURES, "login": LOGIN}


def shown(name: str) -> Screen:
    path = Path(__file__).parent / "screens" / f"grok-{name}.txt"
    title, _, text = path.read_text("utf-8").partition("\n")
    return Screen(text, title)


def names() -> list[str]:
    """Every recorded screen."""
    return [path.stem.removeprefix("grok-") for path in SCREENS]


def told(screen: Screen, text: str) -> Screen:
    """The screen with *text* in its transcript, where an agent's words stand: above the closing line."""
    lines = screen.text.splitlines()
    closing = max(at for at, line in enumerate(lines) if "Worked for" in line)
    return screen._replace(text="\n".join([*lines[:closing], *text.splitlines(), "", *lines[closing:]]))


def seat(home: Path, cwd: Path, conversation: str | None = None) -> Seat:
    return Seat("w", cwd, home, "", conversation=conversation)


@pytest.mark.parametrize("name", read_now("grok"))
def test_the_screen_decides_without_its_title(name: str) -> None:
    assert grok.read(shown(name)._replace(title="")) is grok.read(shown(name))


def test_the_captures_cover_every_signal_in_two_sizes() -> None:
    wide = {grok.read(shown(name)) for name in names() if name.endswith("200x50")}
    small = {grok.read(shown(name)) for name in names() if name.endswith("80x24")}
    assert wide == small == set(ScreenState) - {ScreenState.STARTING}


@pytest.mark.parametrize("said", ["permission", "busy", "failures", "login"])
@pytest.mark.parametrize("name", ["ready-after-turn-200x50", "ready-after-turn-80x24"])
def test_what_an_agent_says_is_no_state(name: str, said: str) -> None:
    screen = told(shown(name), WORDS[said])
    assert grok.read(screen) is ScreenState.READY
    assert not grok.draft(screen)


@pytest.mark.parametrize("said", ["permission", "busy", "login"])
def test_a_resumed_conversation_has_no_closing_line_and_is_ready_all_the_same(said: str) -> None:
    lines = shown("ready-resumed-200x50").text.splitlines()
    box = max(at for at, line in enumerate(lines) if "╭" in line)
    spoken = ["     " + line for line in WORDS[said].splitlines()]
    assert grok.read(Screen("\n".join([*lines[: box - 1], *spoken, "", *lines[box:]]))) is ScreenState.READY


def test_a_failure_that_an_agent_quotes_is_stamped_and_so_no_failure() -> None:
    screen = shown("error-429-200x50")
    quoted = re.sub(r"(Retry failed: .*?answers 429)\s*$", r"\1          9:03 AM", screen.text, flags=re.M)
    assert quoted != screen.text
    assert grok.read(screen._replace(text=quoted)) is ScreenState.READY


def test_a_passing_remark_over_the_composer_hides_no_failure() -> None:
    lines = shown("error-429-200x50").text.splitlines()
    top = max(at for at, line in enumerate(lines) if line.startswith("  ╭"))
    lines[top - 1] = "  Copied to clipboard"
    assert grok.read(Screen("\n".join(lines))) is ScreenState.ERROR


def test_a_pane_too_narrow_for_its_hints_tells_a_turn_by_the_spinner() -> None:
    narrow = shown("working-36x14")
    cut = narrow.text.replace("│  Esc:cancel  │", "│")
    assert cut != narrow.text
    assert grok.read(narrow._replace(text=cut)) is ScreenState.WORKING


def test_a_title_that_a_prompt_made_is_no_state() -> None:
    for title in ("⚠ Action Required - grok", "⠧ - Waiting for response… - grok"):
        assert grok.read(shown("ready-after-turn-80x24")._replace(title=title)) is ScreenState.READY


def test_a_title_tells_of_a_permission_whose_hints_are_unknown() -> None:
    assert grok.read(Screen("  a new kind of menu", "⚠ Action Required - ⠋ - x - grok")) is ScreenState.ASKING


@pytest.mark.parametrize("text", ["", "\n\n", "   \n"])
def test_an_empty_screen_is_starting(text: str) -> None:
    assert grok.read(Screen(text)) is ScreenState.STARTING
    assert not grok.draft(Screen(text))


def test_a_typed_text_that_reads_like_the_placeholder_is_a_draft() -> None:
    text = shown("draft-line-200x50").text.replace("❯ what do you remember?", "❯ Build anything         ")
    assert "❯ Build anything" in text
    assert grok.draft(Screen(text))


def test_a_new_conversation_gets_its_id_at_launch(tmp_path: Path) -> None:
    chosen = grok.new_conversation()
    assert chosen is not None and str(uuid.UUID(chosen)) == chosen
    launch = grok.launch(seat(tmp_path, tmp_path, chosen)._replace(args=("-m", "some-model")))
    expected = ["grok", "--session-id", chosen, "--always-approve", "--no-subagents", "-m", "some-model"]
    assert list(launch.argv) == expected
    assert launch.env == {"GROK_DISABLE_AUTOUPDATER": "1"}


def test_a_program_of_the_users_own_is_run_instead(tmp_path: Path) -> None:
    assert grok.launch(seat(tmp_path, tmp_path)._replace(program="/opt/grok")).argv[0] == "/opt/grok"
    assert "--session-id" not in grok.launch(seat(tmp_path, tmp_path)).argv


def test_nothing_is_resumed_that_grok_does_not_know(tmp_path: Path) -> None:
    assert grok.resume(seat(tmp_path, tmp_path)) is None
    assert grok.resume(seat(tmp_path, tmp_path, str(uuid.uuid4()))) is None


def test_a_conversation_is_resumed_by_the_real_path_of_its_folder(tmp_path: Path) -> None:
    real = tmp_path / "ü n'i_x.y~z(1)+&"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    name = quote(str(real.resolve()), safe="")
    assert name.endswith("%C3%BC%20n%27i_x.y~z%281%29%2B%26")
    (tmp_path / ".grok/sessions" / name / "abc").mkdir(parents=True)
    for cwd in (real, tmp_path / "link"):
        launch = grok.resume(seat(tmp_path, cwd, "abc"))
        assert launch is not None
        assert list(launch.argv) == ["grok", "--resume", "abc", "--always-approve", "--no-subagents"]
    assert grok.resume(seat(tmp_path, tmp_path, "abc")) is None


def test_a_long_folder_is_found_by_the_note_beside_its_sessions(tmp_path: Path) -> None:
    cwd = tmp_path / "/".join(["p q" * 25] * 3)
    kept = tmp_path / ".grok/sessions/p-qp-q-315a0863163e2255"
    (kept / "abc").mkdir(parents=True)
    (kept / ".cwd").write_text(str(cwd))
    assert grok.resume(seat(tmp_path, cwd, "abc")) is not None
    assert grok.resume(seat(tmp_path, tmp_path, "abc")) is None
