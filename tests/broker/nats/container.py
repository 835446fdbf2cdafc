"""nats-docker/ as one more bus: its image, its users, TLS; only port and certificate are the test's."""

import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException
from filelock import FileLock
from testcontainers.core.container import DockerContainer

from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.protocol import Will
from mam.broker.bus.url import Endpoint
from mam.broker.envelope.topics import root
from tests.support.services import unavailable

SOURCE = Path(__file__).parents[3] / "nats-docker"
IMAGE = "mam-nats:test"
PASSWORDS = {"control": "c0ntrol-pw", "runner": "runn3r-pw", "viewer": "vi3wer-pw"}


def engine() -> "docker.DockerClient":
    """A Docker engine that answers; a skip at home, a failure in CI."""
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        unavailable(f"no Docker engine answers: {error}")
    return client


def image(client: "docker.DockerClient") -> str:
    """The image as nats-docker/Makefile builds it, built by one of the workers."""
    with FileLock(Path(tempfile.gettempdir()) / "mam-nats-image.lock", timeout=120):
        if not client.images.list(IMAGE):
            with tempfile.TemporaryDirectory() as folder:
                for name in ("Dockerfile", "nats.conf"):
                    shutil.copy(SOURCE / name, folder)
                shutil.copy(Path(sysconfig.get_path("scripts")) / "nats-server", folder)
                client.images.build(path=folder, tag=IMAGE)
    return IMAGE


def certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1, signed by itself; returns what a client trusts."""
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    argv += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
    subprocess.run(argv, check=True, capture_output=True)
    (folder / "server.key").chmod(0o644)
    return folder / "server.crt"


class ContainerRig:
    """MqttBus over TLS on the container; its configuration is the shipped one but for the port."""

    name = "nats-docker"

    def __init__(self, base: Path, port: int, fingerprint: str) -> None:
        tag = image(engine())
        self._port, self._prefix = port, root(fingerprint)
        tls = base / "tls"
        tls.mkdir()
        self._ca = certificate(tls)
        config = base / "nats.conf"
        text = (SOURCE / "nats.conf").read_text("utf-8")
        config.write_text(
            text.replace("0.0.0.0:8883", f"127.0.0.1:{port}").replace('"127.0.0.1:4222"', '"127.0.0.1:-1"'), "utf-8"
        )
        self._container: Any = DockerContainer(tag).with_kwargs(network_mode="host")
        for user, password in PASSWORDS.items():
            self._container = self._container.with_env(f"MAM_{user.upper()}_PASSWORD", password)
        self._container = self._container.with_volume_mapping(str(config), "/etc/nats.conf", "ro")
        self._container = self._container.with_volume_mapping(str(tls), "/tls", "ro")
        self._container.start()
        self._buses: list[MqttBus] = []

    def bus(
        self,
        *,
        user: str = "control",
        will: Will | None = None,
        on_connect: Callable[[], None] | None = None,
        ready: bool = True,
    ) -> MqttBus:
        there = Endpoint("127.0.0.1", self._port, user, PASSWORDS[user], tls=True, ca_file=self._ca)
        bus = MqttBus(there, self._prefix, will=will, on_connect=on_connect)
        self._buses.append(bus)
        if ready:
            bus.wait_ready(30)
        return bus

    def crash(self) -> None:
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        self._container.get_wrapped_container().start()

    def end(self) -> None:
        for bus in self._buses:
            bus.close(flush_s=0)
        self._container.stop()
