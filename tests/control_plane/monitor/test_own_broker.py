"""A broker of the user's own, and what plain MQTT clients see."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mam.broker.bus.protocol import Message
from mam.broker.nats import process as nats_server
from tests.support import Root, until
from tests.support.services import need

README = Path(__file__).parents[3] / "README.md"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts a real mosquitto on loopback and ends it afterwards; returns its port."""
    program = need("mosquitto")
    children: list[subprocess.Popen[bytes]] = []

    def start(*lines: str) -> int:
        port = free_port()
        config = tmp_path / f"mosquitto-{port}.conf"
        config.write_text("\n".join([f"listener {port} 127.0.0.1", "persistence false", *lines]) + "\n")
        children.append(subprocess.Popen([program, "-c", str(config)], stdout=-3, stderr=-3))
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, what="mosquitto listens")
        return port

    yield start
    for child in children:
        child.send_signal(signal.SIGTERM)
        child.wait(120)


def test_a_job_travels_over_a_broker_of_ones_own(root: Root, mosquitto: Callable[..., int]) -> None:
    root.env["MAM_BROKER_URL"] = f"mqtt://127.0.0.1:{mosquitto('allow_anonymous true')}"
    root.agent()

    done = root.mam("job", "wait", root.delegate(), "--timeout", "30", "--json")

    assert done.code == 0, done.err
    assert nats_server.running(root.parts.layout.broker) is None
    assert root.mam("doctor").code == 0


@pytest.mark.parametrize("where", ["file", "env file"])
def test_the_password_of_ones_own_broker_comes_from_a_private_place(
    root: Root, mosquitto: Callable[..., int], tmp_path: Path, where: str
) -> None:
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), "team", "s3cret-canary"], check=True)
    shutil.chown(passwords, "mosquitto") if os.geteuid() == 0 else None
    for folder in tmp_path.parents:
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    port = mosquitto("allow_anonymous false", f"password_file {passwords}")
    lines = [f"MAM_BROKER_URL=mqtt://team@127.0.0.1:{port}"]
    if where == "file":
        secret = tmp_path / "secret"
        secret.write_text("s3cret-canary\n")
        secret.chmod(0o600)
        lines.append(f"MAM_BROKER_PASSWORD_FILE={secret}")
    else:
        lines.append("MAM_BROKER_PASSWORD='s3cret-canary'")
    root.settings_file("\n".join(lines) + "\n")
    root.agent()

    assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0

    for pid in (root.session("writer").pid, root.session("writer").agent_pid):
        for name in ("environ", "cmdline"):
            assert b"s3cret-canary" not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_a_broker_that_is_not_there_is_named_and_the_job_is_kept(root: Root) -> None:
    root.agent()
    root.mam("down")
    nowhere = {"MAM_BROKER_URL": f"mqtt://127.0.0.1:{free_port()}"}

    up = root.mam("up", "--json", env=nowhere)
    job = root.delegate()

    assert up.code == 6
    assert "127.0.0.1" in up.json["problem"]
    assert any(f["state"] == "broken" for f in root.mam("doctor", "--json").json["findings"])
    root.mam("down")
    root.mam("up")
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0


def test_a_wanted_port_that_is_in_use_names_its_holder_and_leaves_it_alone(root: Root) -> None:
    root.mam("down")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]

        up = root.mam("up", "--json", env={"MAM_BROKER_PORT": str(port)})

        assert up.code == 6
        assert f"pid {os.getpid()}" in up.json["problem"]
        assert holder.getsockname()[1] == port


def test_a_viewer_sees_the_events_of_a_job_and_its_card(root: Root) -> None:
    root.agent()
    seen: list[Message] = []
    bus = root.viewer()
    bus.subscribe("#", seen.append)
    bus.wait_ready(60)

    job = root.delegate()
    root.mam("job", "wait", job)

    until(lambda: {f"jobs/{job}", f"jobs/{job}/state"} <= {m.topic for m in seen}, what="events and card")
    bus.close()
    late = root.viewer()
    cards: list[Message] = []
    late.subscribe("jobs/+/state", cards.append)
    until(lambda: any(m.retained and m.topic == f"jobs/{job}/state" for m in cards), what="the card was retained")
    late.close()


def test_the_ten_lines_of_the_readme_tail_jobs(root: Root, tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)[0]
    root.agent()
    out = tmp_path / "out"
    with out.open("w") as file:
        argv = [sys.executable, "-u", "-c", code]
        tail = subprocess.Popen(argv, cwd=root.path, stdout=file, stderr=file, env={**os.environ, **root.env})
    try:
        until(lambda: _seen(root, out), what="the report is printed")
    finally:
        tail.kill()
        tail.wait()
    assert "Traceback" not in out.read_text("utf-8")


def _seen(root: Root, out: Path) -> bool:
    root.mam("job", "wait", root.delegate(), "--timeout", "20")
    return " report " in out.read_text("utf-8")


def test_a_broker_of_ones_own_that_goes_away_is_said(root: Root, mosquitto: Callable[..., int]) -> None:
    root.env["MAM_BROKER_URL"] = f"mqtt://127.0.0.1:{mosquitto('allow_anonymous true')}"
    assert root.mam("up").code == 0
    holder = subprocess.run(["pgrep", "-f", "mosquitto -c .*" + root.env["MAM_BROKER_URL"][-5:]], capture_output=True)

    os.kill(int(holder.stdout), signal.SIGKILL)

    until(lambda: "not connected" in root.ok("status")["monitor"]["problem"])
    assert root.mam("up").code == 6


def test_an_agent_does_not_inherit_the_password_of_the_broker(root: Root, mosquitto: Callable[..., int]) -> None:
    root.env["MAM_BROKER_URL"] = f"mqtt://127.0.0.1:{mosquitto('allow_anonymous true')}"
    root.env["MAM_BROKER_PASSWORD"] = "do-not-tell"
    root.agent()

    for pid in (root.session("writer").agent_pid, root.session("writer").pid):
        assert b"do-not-tell" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_two_control_roots_with_equal_names_share_a_broker_and_never_meet(
    make_root: Callable[..., Root], mosquitto: Callable[..., int]
) -> None:
    """The same agent name and the same job id in both: only the fingerprint keeps them apart."""
    url = f"mqtt://127.0.0.1:{mosquitto('allow_anonymous true')}"
    one, two = make_root("one"), make_root("two")
    for root, words in ((one, "of the first"), (two, "of the second")):
        root.env["MAM_BROKER_URL"] = url
        root.agent("writer", {"started": {}}, {"report": {"text": words}})
    for root in (one, two):
        root.delegate("writer", "do it", "--id", "job-of-both")

    for root, words in ((one, "of the first"), (two, "of the second")):
        assert root.mam("job", "wait", "job-of-both", "--timeout", "30").code == 0
        assert words in Path(root.job("job-of-both").report_path).read_text("utf-8")
        assert [event["kind"] for event in root.events("jobs/job-of-both")] == ["started", "report"]
        assert root.mam("verify", "job-of-both").code == 0
        assert root.ok("status")["findings"] == []
