"""The container of nats-docker/: TLS and users as they are shipped."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.broker.bus.mqtt import MqttBus
from mam.broker.bus.url import Endpoint
from mam.broker.envelope.topics import root
from mam.broker.errors import BrokerUnreachable
from tests.broker.conftest import Inbox
from tests.broker.nats.container import PASSWORDS, ContainerRig

FINGERPRINT = "0123456789ab"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def container(tmp_path: Path, port: int) -> Iterator[ContainerRig]:
    rig = ContainerRig(tmp_path, port, FINGERPRINT)
    try:
        rig.bus()
        yield rig
    finally:
        rig.end()


def test_a_client_without_tls_gets_nowhere(container: ContainerRig, port: int) -> None:
    bus = MqttBus(Endpoint("127.0.0.1", port, "control", PASSWORDS["control"]), root(FINGERPRINT))
    try:
        with pytest.raises(BrokerUnreachable):
            bus.wait_ready(2)
    finally:
        bus.close(flush_s=0)


def test_a_client_that_does_not_trust_the_certificate_gets_nowhere(container: ContainerRig, port: int) -> None:
    bus = MqttBus(Endpoint("127.0.0.1", port, "control", PASSWORDS["control"], tls=True), root(FINGERPRINT))
    try:
        with pytest.raises(BrokerUnreachable):
            bus.wait_ready(2)
    finally:
        bus.close(flush_s=0)


def test_the_listener_speaks_nothing_older_than_tls_1_2(container: ContainerRig, port: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as wrapped:
        assert wrapped.version() in ("TLSv1.2", "TLSv1.3")


def test_the_viewer_may_look_and_nothing_else(container: ContainerRig, inbox: type[Inbox]) -> None:
    seen = inbox()
    viewer, runner = container.bus(user="viewer"), container.bus(user="runner")
    viewer.subscribe("jobs/+", seen)
    viewer.wait_ready(30)

    viewer.publish("jobs/job-00000001", b"forged")
    runner.publish("jobs/job-00000001", b"from a runner")

    assert seen.next().payload == b"from a runner"


def test_a_runner_cannot_listen_to_jobs(container: ContainerRig, inbox: type[Inbox]) -> None:
    runner = container.bus(user="runner")
    runner.subscribe("jobs/+", inbox())

    with pytest.raises(BrokerUnreachable, match="refused"):
        runner.wait_ready(15)
