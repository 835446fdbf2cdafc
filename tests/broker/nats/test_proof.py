"""A password is sent to the server that was started, and to no other program that listens on its port."""

import ast
import os
import socket
import threading
from pathlib import Path

import pytest

from mam.broker.bus.mqtt import MqttBus
from mam.broker.envelope.topics import root
from mam.broker.errors import BrokerUnreachable
from mam.broker.host import listener, process_identity
from mam.broker.host.listener import Listener
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from tests.broker.conftest import Embedded
from tests.support import until

REPOSITORY = Path(__file__).parents[3]
pytestmark = pytest.mark.hostile


class Impostor:
    """Another program that took a port of 127.0.0.1, and keeps what it is told."""

    def __init__(self, port: int = 0) -> None:
        self.heard = b""
        self.calls = 0
        self._door = socket.create_server((nats_config.HOST, port))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                caller, _ = self._door.accept()
                with caller:
                    while said := caller.recv(4096):
                        self.heard += said
                self.calls += 1
        except OSError:
            return  # the door was closed

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()


def test_a_client_whose_server_ended_tells_nothing_to_who_takes_the_port(embedded: Embedded) -> None:
    embedded.start()
    there = nats_config.proven(embedded.folder, embedded.secrets, "runner")
    assert there is not None
    bus = MqttBus(there, root(embedded.fingerprint))
    bus.wait_ready(30)

    nats_server.stop(embedded.folder)
    impostor = Impostor(there.port)
    try:
        until(lambda: impostor.calls >= 2, within_s=30, what="the bus connects again")
        with pytest.raises(BrokerUnreachable, match="not the process"):
            bus.wait_ready(0.1)
        assert nats_config.proven(embedded.folder, embedded.secrets, "runner") is None
        assert impostor.heard == b""
    finally:
        bus.close()
        impostor.close()


def test_a_server_that_was_started_anew_on_its_port_has_another_endpoint(embedded: Embedded) -> None:
    embedded.start()
    before = nats_config.proven(embedded.folder, embedded.secrets, "runner")
    nats_server.stop(embedded.folder)
    embedded.start()

    after = nats_config.proven(embedded.folder, embedded.secrets, "runner")

    assert before is not None and after is not None
    assert after.port == before.port and after != before


def test_a_port_without_a_listener_or_of_another_user_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = Impostor()
    try:
        seen = Listener(process_identity.me(), impostor.port)
        assert seen.proven()
        assert not seen._replace(process=seen.process._replace(start="1")).proven()
        if process_identity.LINUX:
            monkeypatch.setattr(os, "geteuid", lambda: 4711)
            assert not seen.proven()
            monkeypatch.undo()
    finally:
        impostor.close()
    if process_identity.LINUX:
        until(lambda: not seen.proven(), what="nobody listens")


def test_where_the_system_does_not_tell_owners_the_process_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_TABLE", Path("/nonexistent"))

    assert Listener(process_identity.me(), 1).proven()


def test_every_client_of_mams_own_proves_the_embedded_server() -> None:
    """Only `proven` itself may make an endpoint of a port alone."""
    unproven = set()
    for room in ("broker", "wrappers", "control_plane"):
        for path in (REPOSITORY / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("endpoint", "nats_config.endpoint"):
                    unproven.add(str(path.relative_to(REPOSITORY)))
    assert unproven == {"broker/nats/config.py"}
