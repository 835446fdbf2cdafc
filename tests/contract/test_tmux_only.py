"""What only tmux has: a server that can die, modes that swallow keys, a user's own configuration."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from mam.broker.host import process_identity
from mam.wrappers.mux.protocol import LookFailed, MuxGone, PaneGone
from mam.wrappers.mux.tmux import Tmux, available
from tests.support import until
from tests.support.panes import Panes, tmux

END = b"\x1b[201~"


def kill_server(panes: Panes) -> None:
    server = process_identity.of(int(tmux(panes.server, "display-message", "-p", "#{pid}")))
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not process_identity.alive(server))


def test_a_server_that_could_not_be_asked_is_not_called_gone(tmux_panes: Panes) -> None:
    unreachable = Tmux("x" * 200, os.environ)  # its socket's name is too long for the system

    with pytest.raises(LookFailed) as caught:
        unreachable.panes()

    assert not isinstance(caught.value, MuxGone)
    with pytest.raises(MuxGone):
        Tmux("mam-never-there", os.environ).panes()


@pytest.mark.parametrize("mode", ["copy-mode", "clock-mode", "choose-tree", "choose-buffer"])
def test_a_pane_in_a_mode_still_gets_the_whole_paste_and_the_enter(tmux_panes: Panes, mode: str) -> None:
    reader = tmux_panes.reader()
    tmux(tmux_panes.server, "set-buffer", "something to choose")
    tmux(tmux_panes.server, mode, "-t", reader.pane.id)
    assert tmux(tmux_panes.server, "display-message", "-p", "-t", reader.pane.id, "#{pane_in_mode}") == "1\n"
    tmux_panes.mux.paste(reader.pane.id, "to be\ndone")
    tmux_panes.mux.press(reader.pane.id, "Enter")
    assert reader.await_end(b"\r") == b"\x1b[200~to be\ndone" + END + b"\r"


def test_enter_reaches_a_pane_that_went_into_copy_mode_after_the_paste(tmux_panes: Panes) -> None:
    reader = tmux_panes.reader()
    tmux_panes.mux.paste(reader.pane.id, "text")
    tmux(tmux_panes.server, "copy-mode", "-t", reader.pane.id)
    tmux_panes.mux.press(reader.pane.id, "Enter")
    assert reader.await_end(b"\r").endswith(END + b"\r")


def test_a_killed_server_is_gone_and_not_a_list_of_dead_panes(tmux_panes: Panes) -> None:
    pane = tmux_panes.saying("here")
    kill_server(tmux_panes)
    with pytest.raises(MuxGone):
        tmux_panes.mux.panes()
    with pytest.raises(MuxGone):
        tmux_panes.mux.screen(pane.id)
    with pytest.raises(MuxGone):
        tmux_panes.mux.paste(pane.id, "text")
    assert tmux_panes.mux.close(pane.id, pane.tag) is False


def test_a_pane_opens_again_where_the_server_was_killed(tmux_panes: Panes) -> None:
    tmux_panes.saying("before")
    kill_server(tmux_panes)
    pane = tmux_panes.saying("afterwards")
    tmux_panes.await_text(pane, "afterwards")
    assert [found.id for found in tmux_panes.mux.panes()] == [pane.id]


def test_an_answer_that_nobody_knows_is_no_proof_that_the_server_is_gone(tmp_path: Path) -> None:
    program = tmp_path / "tmux"
    program.write_text("#!/bin/sh\necho 'something new' >&2\nexit 1\n", "utf-8")
    program.chmod(0o755)
    with pytest.raises(LookFailed, match="something new") as caught:
        Tmux("mam-test-none", {"PATH": f"{tmp_path}:{os.defpath}"}).panes()
    assert not isinstance(caught.value, MuxGone)


def test_the_users_own_configuration_is_not_read(tmux_panes: Panes) -> None:
    home = tmux_panes.folder / "home"
    home.mkdir()
    (home / ".tmux.conf").write_text("set -g @read yes\nset -g base-index 7\n", "utf-8")
    mux = tmux_panes.client({**tmux_panes.environ, "HOME": str(home)})
    tmux_panes.told(mux=mux)
    assert tmux(tmux_panes.server, "show-options", "-gqv", "@read") == ""
    assert tmux(tmux_panes.server, "show-options", "-gv", "base-index") == "0\n"


def test_a_configuration_of_the_users_choice_is_read_and_changes_no_address(tmux_panes: Panes) -> None:
    config = tmux_panes.folder / "own.conf"
    lines = ["base-index 5", "pane-base-index 3", "renumber-windows on", "remain-on-exit off", "mode-keys vi"]
    config.write_text("".join(f"set -g {line}\n" for line in [*lines, "@read yes"]), "utf-8")
    tmux_panes.mux = tmux_panes.client(tmux_panes.environ, str(config))
    first, second = tmux_panes.reader(), tmux_panes.reader()
    assert tmux(tmux_panes.server, "show-options", "-gv", "@read") == "yes\n"
    tmux_panes.mux.paste(second.pane.id, "for the second")
    assert second.await_end(END) == b"\x1b[200~for the second" + END
    assert first.got == b""
    ended = tmux_panes.saying("last words", 4)
    assert tmux_panes.await_code(ended) == 4
    assert tmux_panes.mux.close(first.pane.id, first.pane.tag) is True
    assert {pane.id for pane in tmux_panes.mux.panes()} == {second.pane.id, ended.id}


def test_a_later_clients_environment_reaches_its_own_pane_and_no_other(tmux_panes: Panes) -> None:
    tmux_panes.told()
    later = tmux_panes.client({**tmux_panes.environ, "LATER": "1; '$x'"})
    seen = tmux_panes.told(env={"GIVEN": "1"}, mux=later)["env"]
    assert (seen.get("GIVEN"), seen.get("LATER")) == ("1", "1; '$x'")
    after = tmux_panes.told()["env"]
    assert not {"GIVEN", "LATER"} & after.keys()


def test_a_variable_that_is_too_long_for_a_running_server_costs_only_itself(tmux_panes: Panes) -> None:
    tmux_panes.told()
    later = tmux_panes.client({**tmux_panes.environ, "LATER": "1", "LONG": "v" * 20_000})
    seen = tmux_panes.told(mux=later)["env"]
    assert (seen.get("LATER"), seen.get("LONG")) == ("1", None)


def test_a_pane_of_somebody_else_on_our_server_is_not_listed(tmux_panes: Panes) -> None:
    pane = tmux_panes.saying("ours")
    tmux(tmux_panes.server, "new-session", "-d", "sleep", "3600")
    assert len(tmux(tmux_panes.server, "list-panes", "-a").splitlines()) == 2
    assert [found.id for found in tmux_panes.mux.panes()] == [pane.id]


def test_a_paste_leaves_no_buffer_behind(tmux_panes: Panes) -> None:
    reader = tmux_panes.reader()
    tmux_panes.mux.paste(reader.pane.id, "a prompt")
    with pytest.raises(PaneGone):
        tmux_panes.mux.paste("%999", "another prompt")
    assert tmux(tmux_panes.server, "list-buffers") == ""


def test_a_paste_leaves_the_persons_own_buffers_alone(tmux_panes: Panes) -> None:
    reader = tmux_panes.reader()
    tmux(tmux_panes.server, "set-buffer", "a person's")
    tmux_panes.mux.paste(reader.pane.id, "text")
    reader.await_end(END)
    assert tmux(tmux_panes.server, "show-buffer") == "a person's"


def test_a_name_in_use_is_no_second_pane(tmux_panes: Panes) -> None:
    pane = tmux_panes.program("say", "first", "", name="writer")
    with pytest.raises(LookFailed, match="duplicate session"):
        tmux_panes.program("say", "second", "", name="writer")
    assert [found.id for found in tmux_panes.mux.panes()] == [pane.id]


def test_a_pane_of_the_same_name_on_another_server_is_another_pane(tmux_panes: Panes) -> None:
    pane = tmux_panes.program("say", "ours", "", name="writer")
    other = Panes("tmux", tmux_panes.folder)
    try:
        theirs = other.program("say", "theirs", "", name="writer")
        other.await_text(theirs, "theirs")
        tmux_panes.await_text(pane, "ours")
        assert theirs.id == pane.id and tmux_panes.mux.close(theirs.id, theirs.tag) is False
    finally:
        other.clear()
    assert tmux_panes.look(pane) is not None


def test_the_attach_command_names_the_exact_pane(tmux_panes: Panes) -> None:
    pane = tmux_panes.saying("here")
    command = tmux_panes.mux.attach_command(pane.id)
    assert command is not None
    done = subprocess.run(
        command, env={**tmux_panes.environ, "TERM": "xterm"}, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert "not a terminal" in done.stderr  # the target was found, only a person's terminal is missing


def test_without_tmux_on_path_a_look_says_so(tmp_path: Path) -> None:
    assert not available(str(tmp_path))
    with pytest.raises(LookFailed, match="no tmux on PATH"):
        Tmux("mam-test-none", {"PATH": str(tmp_path)}).panes()
