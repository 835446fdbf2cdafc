"""Trouble around the monitor: a database, a multiplexer or a password file that fails."""

import sqlite3

import pytest

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.monitor import broker_supervisor, job_checks, monitor
from mam.control_plane.sessions import runtime
from mam.wrappers.mux.protocol import MuxSilent
from tests.support.desk import Desk


def test_the_password_file_is_written_once_and_replaced_whole(desk: Desk) -> None:
    def keep(password: str) -> tuple[int, str]:
        values = {**desk.mam.settings.values, "MAM_BROKER_PASSWORD": password}
        desk.mam.settings = desk.mam.settings._replace(values=values)
        broker_supervisor._keep_password(desk.mam)
        path = desk.mam.layout.secrets / "broker-own.password"
        return path.stat().st_mtime_ns, path.read_text().strip()

    first = keep("one")

    assert keep("one") == first
    assert keep("two")[1] == "two"


def test_trouble_with_the_database_does_not_end_the_monitor(desk: Desk) -> None:
    def locked() -> None:
        raise sqlite3.OperationalError("database is locked")

    monitor.Monitor(desk.mam)._guarded(locked)


def test_a_multiplexer_that_does_not_answer_is_asked_once_a_look(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        desk.session(name, status="starting", updated_at=now_ms() - 20_000)
    asked = []

    class Wedged:
        def panes(self) -> None:
            asked.append(1)
            raise MuxSilent(server="s", why="no answer within 10 s")

    monkeypatch.setattr(runtime, "multiplexer", lambda *_: Wedged())

    with desk.mam.registry.view() as view:
        assert job_checks.ended_sessions(desk.mam, view.sessions()) == []
    assert len(asked) == 1
