"""The three buses behind one face, and an embedded server on a folder of its own; each ends what it started."""

import base64
import contextlib
import fcntl
import hmac
import os
import queue
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mam.broker.bus.memory import MemoryBroker, MemoryBus
from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.protocol import Message, Will
from mam.broker.bus.url import Endpoint
from mam.broker.envelope.topics import root
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.wrappers.process import spawn
from tests.broker.nats.container import ContainerRig
from tests.support import until
from tests.support.services import need

LONG_S = 60.0  # only a broken claim waits this long
FINGERPRINT = "0123456789ab"


class Inbox:
    """A handler that keeps what it is given, to be awaited."""

    def __init__(self) -> None:
        self._got: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def __call__(self, message: Message) -> None:
        self._got.put(message)

    def next(self) -> Message:
        try:
            return self._got.get(timeout=LONG_S)
        except queue.Empty:
            pytest.fail("no message came")

    def upto(self, topic: str, payload: bytes) -> list[tuple[str, bytes]]:
        """What came before the given message."""
        seen = []
        while (got := self.next()[:2]) != (topic, payload):
            seen.append(got)
        return seen


@pytest.fixture
def inbox() -> type[Inbox]:
    return Inbox


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Embedded:
    """One control root's embedded server, and buses as its users."""

    fingerprint = FINGERPRINT

    def __init__(self, base: Path) -> None:
        self.folder, self.secrets = base / "broker", base / "secrets"
        self.secrets.mkdir(mode=0o700)
        self.binary = nats_server.find_binary(None)
        self._buses: list[MqttBus] = []

    def start(self, *, binary: Path | None = None, port: int | None = None) -> nats_server.Running:
        return nats_server.start(
            self.folder, self.secrets, FINGERPRINT, binary=binary or self.binary, spawn=spawn, port=port
        )

    def bus(
        self, user: str = "control", *, under: str = root(FINGERPRINT), password: str = "", **options: Any
    ) -> MqttBus:
        """A bus as *user*; nobody awaited its connection yet."""
        found = nats_server.running(self.folder)
        assert found is not None
        there = nats_config.endpoint(self.secrets, found.port, user)
        bus = MqttBus(there._replace(password=password) if password else there, under, **options)
        self._buses.append(bus)
        return bus

    def lock_is_free(self) -> bool:
        with (self.folder / "lock").open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def kill(self) -> None:
        """kill -9, and return when the kernel has taken back what the server held."""
        found = nats_server.running(self.folder)
        assert found is not None
        os.kill(found.pid, signal.SIGKILL)
        until(lambda: nats_server.running(self.folder) is None and self.lock_is_free(), "the end of the server")

    def end(self) -> None:
        for bus in self._buses:
            bus.close(flush_s=0)
        found = nats_server.running(self.folder)
        if found is not None:
            nats_server.stop(self.folder)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(found.pid, 0)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    """An embedded server that nobody has started yet."""
    mine = Embedded(tmp_path)
    try:
        yield mine
    finally:
        mine.end()


class MemoryRig:
    """The bus in one process."""

    name = "memory"

    def __init__(self, _base: Path) -> None:
        self._broker = MemoryBroker()

    def bus(self, *, will: Will | None = None, on_connect: Callable[[], None] | None = None) -> MemoryBus | MqttBus:
        return MemoryBus(self._broker, will=will, on_connect=on_connect)

    def crash(self) -> None:
        self._broker.up = False

    def restart(self) -> None:
        self._broker.up = True

    def end(self) -> None:
        self._broker.close()


class NatsRig:
    """MqttBus on the embedded server."""

    name = "nats"

    def __init__(self, base: Path) -> None:
        self._server = Embedded(base)
        self._server.start()

    def bus(self, *, will: Will | None = None, on_connect: Callable[[], None] | None = None) -> MemoryBus | MqttBus:
        bus = self._server.bus(will=will, on_connect=on_connect)
        bus.wait_ready(LONG_S)
        return bus

    def crash(self) -> None:
        self._server.kill()

    def restart(self) -> None:
        self._server.start()

    def end(self) -> None:
        self._server.end()


class MosquittoRig:
    """MqttBus on a mosquitto of its own."""

    name = "mosquitto"

    def __init__(self, base: Path) -> None:
        self._program = need("mosquitto")
        self._port = _free_port()
        self._config = base / "mosquitto.conf"
        self._config.write_text(f"listener {self._port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
        self._log = base / "mosquitto.log"
        self._buses: list[MqttBus] = []
        self.restart()

    def bus(self, *, will: Will | None = None, on_connect: Callable[[], None] | None = None) -> MemoryBus | MqttBus:
        there = Endpoint("127.0.0.1", self._port)
        bus = MqttBus(there, root(FINGERPRINT), will=will, on_connect=on_connect)
        self._buses.append(bus)
        bus.wait_ready(LONG_S)
        return bus

    def crash(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([self._program, "-c", self._config], stdout=log, stderr=log)
        until(self._listens, "mosquitto")

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def end(self) -> None:
        for bus in self._buses:
            bus.close(flush_s=0)
        self.crash()


Rig = MemoryRig | NatsRig | MosquittoRig | ContainerRig


def _container(base: Path) -> ContainerRig:
    return ContainerRig(base, _free_port(), FINGERPRINT)


REAL = pytest.mark.end_to_end


@pytest.fixture(
    params=[
        pytest.param(MemoryRig, id="memory"),
        pytest.param(NatsRig, id="nats", marks=REAL),
        pytest.param(MosquittoRig, id="mosquitto", marks=REAL),
        pytest.param(_container, id="nats-docker", marks=REAL),
    ]
)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    mine: Rig = request.param(tmp_path)
    try:
        yield mine
    finally:
        mine.end()


def _forge(body: bytes, *, token: bytes, use: str, scope: str, topic: str, kid: str = "k1") -> bytes:
    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    parts = (b"v1", kid.encode(), topic.encode(), body)
    data = b"MAM1" + struct.pack("<Q", len(parts)) + b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    key = hmac.new(token, b"mam/v1/" + use.encode() + b"\0" + scope.encode(), "sha256").digest()
    sig = text(hmac.new(key, data, "sha256").digest())
    return f'{{"v":1,"kid":"{kid}","body":"{text(body)}","sig":"v1,{sig}"}}'.encode()


@pytest.fixture(scope="session")
def forge() -> Callable[..., bytes]:
    """The envelope once more, written from the design and not from the source: it signs any bytes."""
    return _forge
