"""What only tmux has: a server that can die, modes that swallow keys, a user's own configuration."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from mam.broker.host import process_identity
from mam.wrappers.mux.protocol import LookFailed, MuxGone, PaneGone
from mam.wrappers.mux.tmux import Tmux, available
from tests.contract.panes import Desk, tmux
from tests.support import until

END = b"\x1b[201~"


def kill_server(desk: Desk) -> None:
    server = process_identity.of(int(tmux(desk.server, "display-message", "-p", "#{pid}")))
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not process_identity.alive(server))


def test_a_server_that_could_not_be_asked_is_not_called_gone(tmux_desk: Desk) -> None:
    unreachable = Tmux("x" * 200, os.environ)  # its socket's name is too long for the system

    with pytest.raises(LookFailed) as caught:
        unreachable.panes()

    assert not isinstance(caught.value, MuxGone)
    with pytest.raises(MuxGone):
        Tmux("mam-never-there", os.environ).panes()


@pytest.mark.parametrize("mode", ["copy-mode", "clock-mode", "choose-tree", "choose-buffer"])
def test_a_pane_in_a_mode_still_gets_the_whole_paste_and_the_enter(tmux_desk: Desk, mode: str) -> None:
    reader = tmux_desk.reader()
    tmux(tmux_desk.server, "set-buffer", "something to choose")
    tmux(tmux_desk.server, mode, "-t", reader.pane.id)
    assert tmux(tmux_desk.server, "display-message", "-p", "-t", reader.pane.id, "#{pane_in_mode}") == "1\n"
    tmux_desk.mux.paste(reader.pane.id, "to be\ndone")
    tmux_desk.mux.press(reader.pane.id, "Enter")
    assert reader.await_end(b"\r") == b"\x1b[200~to be\ndone" + END + b"\r"


def test_enter_reaches_a_pane_that_went_into_copy_mode_after_the_paste(tmux_desk: Desk) -> None:
    reader = tmux_desk.reader()
    tmux_desk.mux.paste(reader.pane.id, "text")
    tmux(tmux_desk.server, "copy-mode", "-t", reader.pane.id)
    tmux_desk.mux.press(reader.pane.id, "Enter")
    assert reader.await_end(b"\r").endswith(END + b"\r")


def test_a_killed_server_is_gone_and_not_a_list_of_dead_panes(tmux_desk: Desk) -> None:
    pane = tmux_desk.saying("here")
    kill_server(tmux_desk)
    with pytest.raises(MuxGone):
        tmux_desk.mux.panes()
    with pytest.raises(MuxGone):
        tmux_desk.mux.screen(pane.id)
    with pytest.raises(MuxGone):
        tmux_desk.mux.paste(pane.id, "text")
    assert tmux_desk.mux.close(pane.id, pane.tag) is False


def test_a_pane_opens_again_where_the_server_was_killed(tmux_desk: Desk) -> None:
    tmux_desk.saying("before")
    kill_server(tmux_desk)
    pane = tmux_desk.saying("afterwards")
    tmux_desk.await_text(pane, "afterwards")
    assert [found.id for found in tmux_desk.mux.panes()] == [pane.id]


def test_an_answer_that_nobody_knows_is_no_proof_that_the_server_is_gone(tmp_path: Path) -> None:
    program = tmp_path / "tmux"
    program.write_text("#!/bin/sh\necho 'something new' >&2\nexit 1\n", "utf-8")
    program.chmod(0o755)
    with pytest.raises(LookFailed, match="something new") as caught:
        Tmux("mam-test-none", {"PATH": f"{tmp_path}:{os.defpath}"}).panes()
    assert not isinstance(caught.value, MuxGone)


def test_the_users_own_configuration_is_not_read(tmux_desk: Desk) -> None:
    home = tmux_desk.folder / "home"
    home.mkdir()
    (home / ".tmux.conf").write_text("set -g @read yes\nset -g base-index 7\n", "utf-8")
    mux = tmux_desk.client({**tmux_desk.environ, "HOME": str(home)})
    tmux_desk.told(mux=mux)
    assert tmux(tmux_desk.server, "show-options", "-gqv", "@read") == ""
    assert tmux(tmux_desk.server, "show-options", "-gv", "base-index") == "0\n"


def test_a_configuration_of_the_users_choice_is_read_and_changes_no_address(tmux_desk: Desk) -> None:
    config = tmux_desk.folder / "own.conf"
    lines = ["base-index 5", "pane-base-index 3", "renumber-windows on", "remain-on-exit off", "mode-keys vi"]
    config.write_text("".join(f"set -g {line}\n" for line in [*lines, "@read yes"]), "utf-8")
    tmux_desk.mux = tmux_desk.client(tmux_desk.environ, str(config))
    first, second = tmux_desk.reader(), tmux_desk.reader()
    assert tmux(tmux_desk.server, "show-options", "-gv", "@read") == "yes\n"
    tmux_desk.mux.paste(second.pane.id, "for the second")
    assert second.await_end(END) == b"\x1b[200~for the second" + END
    assert first.got == b""
    ended = tmux_desk.saying("last words", 4)
    assert tmux_desk.await_code(ended) == 4
    assert tmux_desk.mux.close(first.pane.id, first.pane.tag) is True
    assert {pane.id for pane in tmux_desk.mux.panes()} == {second.pane.id, ended.id}


def test_a_later_clients_environment_reaches_its_own_pane_and_no_other(tmux_desk: Desk) -> None:
    tmux_desk.told()
    later = tmux_desk.client({**tmux_desk.environ, "LATER": "1; '$x'"})
    seen = tmux_desk.told(env={"GIVEN": "1"}, mux=later)["env"]
    assert (seen.get("GIVEN"), seen.get("LATER")) == ("1", "1; '$x'")
    after = tmux_desk.told()["env"]
    assert not {"GIVEN", "LATER"} & after.keys()


def test_a_variable_that_is_too_long_for_a_running_server_costs_only_itself(tmux_desk: Desk) -> None:
    tmux_desk.told()
    later = tmux_desk.client({**tmux_desk.environ, "LATER": "1", "LONG": "v" * 20_000})
    seen = tmux_desk.told(mux=later)["env"]
    assert (seen.get("LATER"), seen.get("LONG")) == ("1", None)


def test_a_pane_of_somebody_else_on_our_server_is_not_listed(tmux_desk: Desk) -> None:
    pane = tmux_desk.saying("ours")
    tmux(tmux_desk.server, "new-session", "-d", "sleep", "3600")
    assert len(tmux(tmux_desk.server, "list-panes", "-a").splitlines()) == 2
    assert [found.id for found in tmux_desk.mux.panes()] == [pane.id]


def test_a_paste_leaves_no_buffer_behind(tmux_desk: Desk) -> None:
    reader = tmux_desk.reader()
    tmux_desk.mux.paste(reader.pane.id, "a prompt")
    with pytest.raises(PaneGone):
        tmux_desk.mux.paste("%999", "another prompt")
    assert tmux(tmux_desk.server, "list-buffers") == ""


def test_a_paste_leaves_the_persons_own_buffers_alone(tmux_desk: Desk) -> None:
    reader = tmux_desk.reader()
    tmux(tmux_desk.server, "set-buffer", "a person's")
    tmux_desk.mux.paste(reader.pane.id, "text")
    reader.await_end(END)
    assert tmux(tmux_desk.server, "show-buffer") == "a person's"


def test_a_name_in_use_is_no_second_pane(tmux_desk: Desk) -> None:
    pane = tmux_desk.program("say", "first", "", name="writer")
    with pytest.raises(LookFailed, match="duplicate session"):
        tmux_desk.program("say", "second", "", name="writer")
    assert [found.id for found in tmux_desk.mux.panes()] == [pane.id]


def test_a_pane_of_the_same_name_on_another_server_is_another_pane(tmux_desk: Desk) -> None:
    pane = tmux_desk.program("say", "ours", "", name="writer")
    other = Desk("tmux", tmux_desk.folder)
    try:
        theirs = other.program("say", "theirs", "", name="writer")
        other.await_text(theirs, "theirs")
        tmux_desk.await_text(pane, "ours")
        assert theirs.id == pane.id and tmux_desk.mux.close(theirs.id, theirs.tag) is False
    finally:
        other.clear()
    assert tmux_desk.look(pane) is not None


def test_the_attach_command_names_the_exact_pane(tmux_desk: Desk) -> None:
    pane = tmux_desk.saying("here")
    command = tmux_desk.mux.attach_command(pane.id)
    assert command is not None
    done = subprocess.run(
        command, env={**tmux_desk.environ, "TERM": "xterm"}, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert "not a terminal" in done.stderr  # the target was found, only a person's terminal is missing


def test_without_tmux_on_path_a_look_says_so(tmp_path: Path) -> None:
    assert not available(str(tmp_path))
    with pytest.raises(LookFailed, match="no tmux on PATH"):
        Tmux("mam-test-none", {"PATH": str(tmp_path)}).panes()
