"""Foreign text in a terminal: harmless, and as wide as the terminal makes it."""

import subprocess
import sys

import pytest

from mam.broker.host.text import clean, width


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
