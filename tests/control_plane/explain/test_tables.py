"""What people read: tables as wide as their terminal, times as they say them, places as they are reached."""

import io
import re
from pathlib import Path

import pytest

from mam.broker.host import terminal
from mam.broker.host.text import cut, width
from mam.control_plane.cli import VERBS, main
from mam.control_plane.explain import tables

TOP = Path(__file__).parents[3]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_table_is_no_wider_than_the_terminal_and_keeps_ids_whole(columns: int) -> None:
    rows = [["job-0123456789ab", "/a/very/long/way/to/some/directory/of/a/project", "漢字 " * 30]]

    shown = tables.table(("JOB", "DIRECTORY", "TITLE"), rows, columns).splitlines()

    assert max(map(width, shown)) <= max(columns, 16 + 2 * tables.LEAST + 4)
    assert "job-0123456789ab" in shown[1] and "project" in shown[1] and shown[1].endswith("…")
    assert "…" not in tables.table(("JOB", "DIRECTORY", "TITLE"), rows), "what is piped is whole"


def test_a_cell_is_cut_by_what_it_takes_on_the_screen() -> None:
    assert (cut("漢字漢字", 5), cut("漢字漢字", 8), cut("/a/b/c", 4, keep_end=True)) == ("漢字…", "漢字漢字", "…b/c")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (4.25, "4.2 s"), (45, "45 s"), (60, "1 min"), (378, "6 min 18 s"), (3599.9, "1 h"),
     (14_400, "4 h"), (4800, "1 h 20 min"), (86_399, "1 d"), (187_200, "2 d 4 h")],
)  # fmt: skip
def test_a_time_is_told_as_people_say_it(seconds: float, said: str) -> None:
    assert tables.span(seconds) == said


def test_a_place_is_named_as_it_is_reached_from_the_control_root() -> None:
    named = [tables.near(path, "/home/me/repo") for path in ("/home/me/repo", "/home/me/repo.worktrees/a", "/x")]

    assert named == [".", "../repo.worktrees/a", "/x"]


def test_only_a_terminal_whose_user_wants_it_gets_colours() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert terminal.may_colour(Screen(), {"TERM": "xterm"})
    for stream, environ in (
        (Screen(), {"TERM": "xterm", "NO_COLOR": "1"}),
        (Screen(), {}),
        (io.StringIO(), {"TERM": "xterm"}),
    ):
        assert not terminal.may_colour(stream, environ)
        assert terminal.columns(stream) is None


def test_every_table_of_the_command_line_is_made_for_its_terminal() -> None:
    found = {path.name for path in (TOP / "control_plane" / "cli").glob("*.py") if "tables.table(" in path.read_text()}

    assert found == {"output.py"}


@pytest.mark.parametrize("noun", ["agent", "job", "loop", "worktree", "registry", "events", "monitor"])
def test_the_help_of_a_noun_says_what_each_of_its_verbs_is_for(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([noun, "--help"]) == 0

    lines = capsys.readouterr().out.splitlines()
    verbs = [line for line in lines if re.match(r"  [a-z]+ ", line)]
    assert len(verbs) >= 2 and all(len(line.split()) > 1 for line in verbs)


def test_a_mistyped_verb_is_told_what_was_perhaps_meant(capsys: pytest.CaptureFixture[str]) -> None:
    for words, meant in ((["stauts"], "`mam status`"), (["job", "delegat"], "`delegate`")):
        assert main(words) == 2
        assert f"did you mean {meant}?" in capsys.readouterr().err
    main(["zzzzzz"])
    assert "did you mean" not in capsys.readouterr().err and "status" in VERBS
