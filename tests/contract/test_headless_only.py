"""What only headless panes have: a host process each, and a FIFO that anybody of ours may break."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from mam.broker.host import locks, process_identity
from mam.broker.host.process_identity import ProcessId
from mam.wrappers.mux import headless
from mam.wrappers.mux.protocol import LookFailed, Pane, PaneGone
from tests.support import until
from tests.support.panes import Panes


def folder(panes: Panes, pane: Pane) -> Path:
    return Path(panes.server) / pane.id


def host(panes: Panes, pane: Pane) -> ProcessId:
    state = json.loads((folder(panes, pane) / "state.json").read_text("utf-8"))
    return ProcessId(state["host"], state["host_start"], state["boot"])


def test_a_pane_whose_host_was_killed_is_dead_with_an_unknown_code(headless_panes: Panes) -> None:
    pane = headless_panes.saying("before the end")
    headless_panes.await_text(pane, "before the end")
    program, holder = process_identity.of(pane.pid), host(headless_panes, pane)
    assert program is not None and process_identity.alive(holder)
    os.kill(holder.pid, signal.SIGKILL)
    dead = headless_panes.await_dead(pane)
    assert dead.exit_code is None
    assert "before the end" in headless_panes.mux.screen(pane.id).text
    with pytest.raises(PaneGone):
        headless_panes.mux.press(pane.id, "Enter")
    until(lambda: not process_identity.alive(program))
    assert headless_panes.mux.close(pane.id, pane.tag) is True
    assert headless_panes.mux.panes() == []


def test_a_killed_host_takes_no_other_pane_along(headless_panes: Panes) -> None:
    pane, other = headless_panes.saying("one"), headless_panes.saying("two")
    os.kill(host(headless_panes, pane).pid, signal.SIGKILL)
    headless_panes.await_dead(pane)
    seen = headless_panes.look(other)
    assert seen is not None and not seen.dead
    headless_panes.await_text(other, "two")


def test_a_request_that_was_cut_off_does_not_end_the_pane(headless_panes: Panes) -> None:
    reader = headless_panes.reader()
    fifo = os.open(folder(headless_panes, reader.pane) / "in", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fifo, b'{"paste": "a client that was killed while')
    os.close(fifo)
    for _ in range(2):  # the first request after it may be lost with it, the pane may not
        try:
            headless_panes.mux.press(reader.pane.id, "Enter")
        except PaneGone:
            break
    assert until(lambda: reader.got) in (b"\r", b"\r\r")
    seen = headless_panes.look(reader.pane)
    assert seen is not None and not seen.dead


def test_a_pane_whose_requests_another_writer_holds_up_is_one_that_nobody_can_look_at(
    headless_panes: Panes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pane = headless_panes.saying("here")
    monkeypatch.setattr(headless, "_ANSWER_WITHIN_S", 0.2)

    with locks.hold(folder(headless_panes, pane) / "in.lock"), pytest.raises(LookFailed, match=r"in\.lock"):
        headless_panes.mux.press(pane.id, "Enter")

    headless_panes.await_text(pane, "here")


def test_what_a_pane_was_given_is_private(headless_panes: Panes) -> None:
    pane = headless_panes.saying("here")
    assert stat.S_IMODE(folder(headless_panes, pane).stat().st_mode) == 0o700
    assert stat.S_IMODE((folder(headless_panes, pane) / "in").stat().st_mode) == 0o600


def test_a_host_outlives_who_opened_it_and_leaves_its_session(headless_panes: Panes) -> None:
    pane = headless_panes.saying("here")
    holder = host(headless_panes, pane)
    assert os.getsid(holder.pid) == holder.pid != os.getsid(0)
    assert os.getsid(pane.pid) == pane.pid


def test_a_reused_pid_is_not_taken_for_the_host(headless_panes: Panes) -> None:
    pane = headless_panes.saying("here")
    state = folder(headless_panes, pane) / "state.json"
    content = json.loads(state.read_text("utf-8"))
    real = host(headless_panes, pane)
    state.write_text(json.dumps({**content, "host_start": "1"}), "utf-8")
    try:
        seen = headless_panes.look(pane)
        assert seen is not None and seen.dead
        headless_panes.mux.close(pane.id, pane.tag)
        assert process_identity.alive(real)  # not proven to be ours, so it was not touched
    finally:
        os.kill(real.pid, signal.SIGKILL)


def test_a_hang_up_does_not_end_a_host(headless_panes: Panes) -> None:
    pane = headless_panes.saying("here")
    os.kill(host(headless_panes, pane).pid, signal.SIGHUP)
    headless_panes.await_text(pane, "here")
    seen = headless_panes.look(pane)
    assert seen is not None and not seen.dead


def test_nobody_can_attach_to_a_headless_pane(headless_panes: Panes) -> None:
    assert headless_panes.mux.attach_command(headless_panes.saying("here").id) is None
