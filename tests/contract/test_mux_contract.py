"""What every multiplexer owes: programs arrive as they were given, panes are told apart, and the dead stay readable."""

import os

import pytest

from mam.broker.host import process_identity
from mam.wrappers.mux.protocol import COLUMNS, MuxGone, PaneGone
from tests.support import until
from tests.support.panes import Panes

# What a terminal server adds by itself: about the terminal, nothing about the program.
TERMINAL = {"TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "TMUX_PANE", "MAM_PANE", "SHELL", "PWD"}
WORDS = [
    *("two words", "'", '"', "$HOME", "`id`", "ends;", ";", "\\;", "ends\\", "", "-n", "--", "*", "~"),
    *("#{pane_id}", "#(id)", "%H", "{", "}", "한국어 ✓", "line\nbreak", "tab\there", "\x1b[31m", "\udcff", "x" * 4000),
]


class TestMultiplexer:
    def test_words_of_a_command_arrive_unchanged(self, panes: Panes) -> None:
        assert panes.told(*WORDS)["words"] == WORDS

    def test_a_command_of_one_word_is_no_shell_line(self, panes: Panes) -> None:
        program = panes.folder / "my $HOME; program"
        program.write_text("#!/bin/sh\necho started as it is named\n", "utf-8")
        program.chmod(0o755)
        panes.await_text(panes.open(str(program)), "started as it is named")

    @pytest.mark.parametrize(
        "name",
        ["two words", "semi;", "$HOME", "line\nbreak", "한국어", "a##b", "#{pane_id}", "#S", "%H", "'\"", "-c"],
    )
    def test_a_program_runs_in_the_directory_that_was_asked_for(self, panes: Panes, name: str) -> None:
        cwd = panes.folder / name
        cwd.mkdir()
        assert panes.told(cwd=cwd)["cwd"] == str(cwd)

    def test_the_name_of_a_directory_is_never_run_as_a_command(self, panes: Panes) -> None:
        planted = panes.folder / "planted"
        cwd = panes.folder / "#(touch $PLANTED)"
        cwd.mkdir()
        panes.told(cwd=cwd, mux=panes.client({**panes.environ, "PLANTED": str(planted)}))
        panes.told(cwd=cwd)  # a second time, so that what the name started had its turn
        assert not planted.exists()

    def test_a_program_gets_the_given_environment_on_top_of_the_servers_and_nothing_else(self, panes: Panes) -> None:
        given = {"ONE": "with space; $HOME 'q' \"d\"", "TWO": "ends;", "THREE": "line\nbreak", "ABOVE": "replaced"}
        seen = panes.told(env=given)["env"]
        assert {key: value for key, value in seen.items() if key not in TERMINAL} == {**panes.environ, **given}

    def test_the_environment_of_a_pane_reaches_no_other_pane(self, panes: Panes) -> None:
        first, second = panes.told(env={"FIRST": "1"})["env"], panes.told(env={"SECOND": "2"})["env"]
        assert first.get("FIRST") == "1" and "SECOND" not in first
        assert second.get("SECOND") == "2" and "FIRST" not in second

    @pytest.mark.req("M29")
    def test_a_server_that_lacks_the_variables_still_gives_them_to_a_new_pane(self, panes: Panes) -> None:
        panes.told()
        later = panes.client({"PATH": panes.environ["PATH"]})
        seen = panes.told(env={"WORKSPACE_ROOT": "/somewhere/한 곳"}, mux=later)["env"]
        assert seen["WORKSPACE_ROOT"] == "/somewhere/한 곳"

    def test_a_variable_of_20_kb_reaches_the_program(self, panes: Panes) -> None:
        mux = panes.client({**panes.environ, "LONG": "v" * 20_000})
        assert panes.told(mux=mux)["env"]["LONG"] == "v" * 20_000

    def test_an_agent_around_us_does_not_show_in_the_pane(self, panes: Panes) -> None:
        nested = {"CLAUDECODE": "1", "TMUX_PANE": "%77", "HERDR_PANE_ID": "w1:p1", "TMUX": "/tmp/other,1,0"}
        seen = panes.told(mux=panes.client({**panes.environ, **nested}))["env"]
        assert not {key for key, value in nested.items() if seen.get(key) == value}

    def test_a_program_that_ends_at_once_leaves_its_code_and_its_last_words(self, panes: Panes) -> None:
        pane = panes.saying("last words", 7)
        assert panes.await_code(pane) == 7
        assert "last words" in panes.mux.screen(pane.id).text

    def test_a_program_that_ended_well_has_the_code_0(self, panes: Panes) -> None:
        assert panes.await_code(panes.saying("done", 0)) == 0

    def test_a_program_that_does_not_exist_is_a_dead_pane_with_a_bad_code(self, panes: Panes) -> None:
        assert panes.await_code(panes.open("/nonexistent/program", "word")) > 0

    def test_a_screen_shows_text_and_title(self, panes: Panes) -> None:
        pane = panes.saying("\\x1b]2;my \\u2733 title\\x07\\x1b[31mred\\x1b[0m text \\ud55c\\uad6d\\uc5b4 \\u276f")
        assert "red text 한국어 ❯" in panes.await_text(pane, "❯")
        assert panes.mux.screen(pane.id).title == "my ✳ title"

    def test_a_screen_is_as_wide_as_agents_expect(self, panes: Panes) -> None:
        line = "w" * COLUMNS
        shown = panes.await_text(panes.saying(f"{line}\\r\\nend"), "end")
        assert line in shown.splitlines()

    def test_an_open_pane_is_listed_with_its_tag_and_its_programs_pid(self, panes: Panes) -> None:
        pane = panes.saying("here")
        assert pane in panes.mux.panes()
        assert not pane.dead and pane.tag.startswith("tag-")
        assert process_identity.of(pane.pid) is not None

    def test_a_server_without_panes_has_none_to_list_or_says_that_it_is_gone(self, panes: Panes) -> None:
        if panes.kind == "headless":
            assert panes.mux.panes() == []
        else:
            with pytest.raises(MuxGone):
                panes.mux.panes()

    def test_a_pane_closes_only_for_its_own_tag(self, panes: Panes) -> None:
        pane, other = panes.saying("one"), panes.saying("two")
        assert panes.mux.close(pane.id, other.tag) is False
        assert {found.id for found in panes.mux.panes()} == {pane.id, other.id}
        assert panes.mux.close(pane.id, pane.tag) is True
        assert [found.id for found in panes.mux.panes()] == [other.id]

    def test_closing_twice_is_harmless(self, panes: Panes) -> None:
        pane, other = panes.saying("one"), panes.saying("two")
        assert [panes.mux.close(pane.id, pane.tag) for _ in range(2)] == [True, False]
        assert panes.mux.close(other.id, other.tag) is True
        assert panes.mux.close(other.id, other.tag) is False  # the last pane of its server is gone too

    def test_closing_a_pane_ends_its_program(self, panes: Panes) -> None:
        panes.saying("keeps the server")
        pane = panes.saying("here")
        panes.await_text(pane, "here")
        program = process_identity.of(pane.pid)
        assert program is not None
        panes.mux.close(pane.id, pane.tag)
        until(lambda: not process_identity.alive(program))

    def test_a_dead_pane_can_be_closed(self, panes: Panes) -> None:
        panes.saying("keeps the server")
        pane = panes.await_dead(panes.saying("gone", 1))
        assert panes.mux.close(pane.id, pane.tag) is True
        assert panes.look(pane) is None

    def test_a_closed_pane_is_gone_to_every_question(self, panes: Panes) -> None:
        panes.saying("keeps the server")
        pane = panes.saying("here")
        panes.mux.close(pane.id, pane.tag)
        with pytest.raises(PaneGone):
            panes.mux.screen(pane.id)
        with pytest.raises(PaneGone):
            panes.mux.paste(pane.id, "text")
        with pytest.raises(PaneGone):
            panes.mux.press(pane.id, "Enter")

    def test_a_paste_into_a_dead_pane_is_refused_and_harms_no_other(self, panes: Panes) -> None:
        neighbour = panes.saying("neighbour")
        pane = panes.await_dead(panes.saying("gone", 1))
        with pytest.raises(PaneGone):
            panes.mux.paste(pane.id, "text")
        seen = panes.look(neighbour)
        assert seen is not None and not seen.dead

    def test_names_that_begin_alike_are_told_apart(self, panes: Panes) -> None:
        short, long, longest = (panes.reader(name=name) for name in ("rev", "rev-2", "reviewer"))
        for reader in (longest, short, long):
            panes.mux.paste(reader.pane.id, f"for {reader.pane.id}")
        for reader in (short, long, longest):
            assert reader.await_end(b"\x1b[201~") == f"\x1b[200~for {reader.pane.id}\x1b[201~".encode()
        panes.mux.close(short.pane.id, short.pane.tag)
        assert {pane.id for pane in panes.mux.panes()} == {long.pane.id, longest.pane.id}

    def test_a_second_client_sees_the_same_panes(self, panes: Panes) -> None:
        pane = panes.saying("shared")
        panes.await_text(pane, "shared")
        other = panes.client({"PATH": os.environ["PATH"]})
        assert [found.id for found in other.panes()] == [pane.id]
        assert "shared" in other.screen(pane.id).text

    @pytest.mark.parametrize(
        "output",
        [
            *("\\x1b[1;2;3A", "\\x1b[1;2A", "\\x1b[1;5u", "\\x1b[?6n", "\\x1b[?5W", "\\x1b[>4;2m", "\\x1b[=1;1u"),
            *("\\x1b[22;0;0t", "\\x1b[14t", "\\x1b[2 q", "\\x1b[!p", "\\x1b[c", "\\x1b[5n", "\\x1bP$qm\\x1b\\\\"),
            *(
                "\\x1b]8;;http://x\\x1b\\\\link\\x1b]8;;\\x1b\\\\",
                "\\x1b]11;?\\x07",
                "\\x1b_Gi=1\\x1b\\\\",
                "\\x1b[38;5m",
            ),
            *("\\x1b[99999999999999;99999999H", "\\x1b[;;;;r", "\\x1b[50;1r", "\\x1b[?1049h\\x1b[?1049l", "\\x9b5;1H"),
        ],
    )
    def test_no_output_of_a_program_takes_its_pane_away(self, panes: Panes, output: str) -> None:
        pane = panes.saying(f"{output}\\x1b[0m\\r\\n\\r\\nafterwards")
        panes.await_text(pane, "afterwards")
        seen = panes.look(pane)
        assert seen is not None and not seen.dead

    def test_a_program_that_asks_its_terminal_and_never_reads_keeps_its_pane(self, panes: Panes) -> None:
        pane = panes.program("nag", "60000")
        panes.await_text(pane, "still here")
        seen = panes.look(pane)
        assert seen is not None and not seen.dead
