"""A monitor from outside: as a service, with its registry removed, and clearing cards that no job has."""

import os
import shutil
import signal
from pathlib import Path

from mam.broker.bus.mqtt import MqttBus
from mam.broker.envelope import topics
from mam.broker.host import process_identity
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from tests.support import Root, until


def test_a_card_of_a_job_that_nobody_knows_is_cleared_from_the_broker(root: Root) -> None:
    root.ok("up")
    layout, topic = root.parts.layout, "jobs/job-99999999/state"
    running = until(lambda: nats_server.running(layout.broker))
    bus = MqttBus(nats_config.endpoint(layout.secrets, running.port, "control"), topics.root(root.parts.fingerprint))
    seen: list[bytes] = []
    try:
        bus.subscribe("jobs/+/state", lambda message: seen.append(message.payload) if message.topic == topic else None)
        bus.wait_ready(60)
        bus.publish(topic, b"left of somebody", retain=True)

        until(lambda: seen == [b"left of somebody", b""])
    finally:
        bus.close()


def test_a_service_file_is_printed_installed_and_removed(root: Root) -> None:
    printed = root.ok("monitor", "install", "--print")
    assert str(root.path) in printed["text"] and not Path(printed["path"]).exists()

    assert root.mam("monitor", "install", "--no-start").code == 0
    assert Path(printed["path"]).read_text("utf-8") == printed["text"]

    assert root.ok("monitor", "uninstall")["removed"] is True
    assert root.ok("monitor", "uninstall")["removed"] is False


def test_a_monitor_whose_registry_was_removed_ends(root: Root) -> None:
    root.mam("up")
    known = monitor_process.look(root.parts.layout)
    assert known is not None

    shutil.rmtree(root.path / ".mam")

    until(lambda: not process_identity.alive(known.process), what="the monitor ended")
    for pid in pids_below(root.path):
        os.kill(pid, signal.SIGKILL)


def pids_below(folder: Path) -> list[int]:
    """Processes that work below *folder*: what nobody's files name any more."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(f"{folder}/"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
