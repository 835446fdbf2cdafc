"""What the monitor says of adapters and multiplexers that fail, and what it does not conclude from it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor.checks import MonitorChecks
from mam.control_plane.registry.records import Finding
from mam.control_plane.sessions.activity import PATHS_KEPT_MS, Activity
from mam.wrappers.mux import catalog as mux_catalog
from mam.wrappers.mux.border import MuxBorder
from tests.support.desk import Desk

NEWCOMER = Path(__file__).parents[2] / "support" / "newcomer"


class FailingMux:
    def panes(self) -> Any:
        raise IndexError("list index out of range")


def look(desk: Desk) -> list[Finding]:
    spools = SpoolSweep(desk.mam.layout.run, desk.inbox)
    looking = MonitorChecks(desk.mam, desk.mam.registry, spools, desk.inbox, lambda: desk.clock)
    for _ in range(2):  # the second look finds what the first one noted
        with desk.mam.registry.view() as view:
            looking.tick(view, "", [])
    with desk.mam.registry.view() as view:
        return view.findings()


def test_a_multiplexer_whose_own_code_fails_is_a_finding_and_ends_no_session(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = desk.session(updated_at=desk.clock - 3_600_000)
    failing = MuxBorder(session.mux, session.mux_server, lambda: FailingMux())  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(mux_catalog, "make", lambda *_: failing)

    found = look(desk)

    assert [(each.code, each.subject) for each in found] == [("mux_failed", session.mux_server)]
    assert "panes: IndexError: list index out of range" in found[0].text and found[0].text.endswith("; mam doctor")
    with desk.mam.registry.view() as view:
        after = view.session("writer")
    assert after is not None and after.status == "running"


def test_a_screen_that_cannot_be_read_is_a_finding_with_the_command_that_tries_the_adapter(desk: Desk) -> None:
    desk.session(screen="unreadable", screen_text="the adapter failed in read: IndexError")

    assert [(each.code, each.subject, each.text) for each in look(desk)] == [
        ("adapter_failed", "writer", "the adapter failed in read: IndexError; mam agent check scripted")
    ]


@pytest.mark.parametrize("kind", ["broken-parrot", "uninstalled"])
def test_files_that_an_adapter_cannot_tell_are_a_finding_until_it_can(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.syspath_prepend(NEWCOMER)
    signs = Activity(desk.mam)
    session = desk.session(agent=kind)

    signs.written_at(session, desk.clock)
    assert repr(kind) in signs.trouble["writer"]
    signs.written_at(replace(session, agent="scripted"), desk.clock + PATHS_KEPT_MS + 1)
    assert signs.trouble == {}
