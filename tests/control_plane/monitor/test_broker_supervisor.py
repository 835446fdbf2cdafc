"""The monitor's hold on its broker: it is brought back, and not for ever at any price."""

import pytest

from mam.broker.bus.protocol import Will
from mam.broker.nats import process as nats_server
from mam.control_plane.monitor import broker_supervisor
from mam.control_plane.monitor.broker_supervisor import STARTS_A_MINUTE, BrokerSupervisor
from tests.support.desk import Desk


def test_a_broker_that_ends_at_once_is_started_five_times_a_minute_and_then_said_to_fail(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []

    def start(mam: object) -> nats_server.Running:
        starts.append("one")
        raise nats_server.ServerFailed(why="it ended", log="nats.log")

    monkeypatch.setattr(broker_supervisor, "start_server", start)
    kept = BrokerSupervisor(
        desk.mam, lambda *_: pytest.fail("nothing to connect to"), Will("t", b""), print, lambda: None
    )

    for _ in range(STARTS_A_MINUTE + 3):
        kept.tend()
    assert len(starts) == STARTS_A_MINUTE and "five times within a minute" in kept.problem

    kept._starts = type(kept._starts)(at - 61 for at in kept._starts)  # a minute later
    kept.tend()
    assert len(starts) == STARTS_A_MINUTE + 1
