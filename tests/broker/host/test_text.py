"""Foreign text in a terminal: harmless, and as wide as the terminal makes it."""

import subprocess
import sys

import pytest

from mam.broker.host.text import clean, clean_lines, fold, width


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\ufeff"], ids=ascii)
def test_what_could_move_the_cursor_or_reorder_text_is_shown_as_a_dot(char: str) -> None:
    assert clean(f"a{char}b") == "a·b"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("plain", 5),
        ("한글", 4),
        ("e\u0301", 1),
        ("a\u200bb", 2),
        ("👩\u200d👩\u200d👧", 2),
        ("👍🏽", 2),
        ("🇰🇷", 2),
        ("\x1b한", 3),
        ("\udc80é", 2),
        ("· … –", 5),
    ],
    ids=ascii,
)
def test_a_text_is_as_wide_as_a_terminal_shows_it(text: str, columns: int) -> None:
    assert width(text) == columns


def test_the_width_of_plain_text_costs_no_foreign_module() -> None:
    code = "import sys; from mam.broker.host.text import width; print(width('plain'), 'wcwidth' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"5 False\n"


def test_a_long_text_is_cut_to_its_first_lines_and_says_how_many_are_left_out() -> None:
    assert clean_lines("a\tb\n\x1b[31mc\n\n", lines=9) == ["a   b", "·[31mc"]
    assert clean_lines("a\nb\nc\nd\n", lines=2) == ["a", "b", "… 2 more lines"]
    assert clean_lines("x" * 50, lines=1, columns=10) == ["x" * 10]


def test_a_text_is_folded_between_words_and_loses_none_of_them() -> None:
    text = "  - one two three 漢字漢字漢字 " + "w" * 30 + " four  five"

    folded = fold(text, 14, indent="  ")
    assert [width(line) <= 14 for line in folded.splitlines()].count(False) == 1, "the word that is longer"
    assert folded.replace("\n  ", " ") == text and fold(text, None) == text
