"""The embedded server: one a folder, private, and gone or back as asked."""

import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from mam.broker.errors import MamError
from mam.broker.host import process_identity
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.broker.nats.process import NoServer, PortInUse, Running, ServerFailed
from mam.wrappers.process import spawn
from tests.broker.conftest import Embedded, Inbox
from tests.support import until

START = """
import sys
from pathlib import Path
from mam.broker.nats import process as server
from mam.wrappers.process import spawn
base = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(*server.start(base / "broker", base / "secrets", sys.argv[2], binary=server.find_binary(None), spawn=spawn))
"""


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o700)
    return path


def gone(pid: int) -> bool:
    return process_identity.of(pid) is None


def test_it_answers_as_each_of_its_users_once_it_has_started(embedded: Embedded) -> None:
    running = embedded.start()
    assert nats_server.running(embedded.folder) == running
    for user in nats_config.USERS:
        embedded.bus(user).wait_ready(30)


def test_starting_twice_gives_the_same_server(embedded: Embedded) -> None:
    assert embedded.start() == embedded.start()


def test_two_processes_that_start_at_once_get_one_server(embedded: Embedded, tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, str(tmp_path), embedded.fingerprint]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    running = nats_server.running(embedded.folder)
    assert running is not None and said[0] == said[1] == [str(part) for part in running]


def test_the_server_outlives_the_process_that_started_it(embedded: Embedded, tmp_path: Path) -> None:
    command = [sys.executable, "-c", START, str(tmp_path), embedded.fingerprint]
    done = subprocess.run(command, input="go\n", capture_output=True, text=True, check=True)
    pid = int(done.stdout.split()[1])
    assert not gone(pid)
    assert embedded.start().pid == pid


def test_the_lock_lives_exactly_as_long_as_the_server(embedded: Embedded) -> None:
    running = embedded.start()
    assert not embedded.lock_is_free()
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: gone(running.pid), "the end of the server")
    until(embedded.lock_is_free, "the end of the lock")
    again = embedded.start()
    assert again.pid != running.pid
    assert not embedded.lock_is_free()


@pytest.mark.skipif(not process_identity.LINUX, reason="looks into /proc")
def test_a_start_that_meets_a_dying_holder_of_the_lock_takes_over(embedded: Embedded) -> None:
    """After kill -9 the lock can outlast the pid for some milliseconds; another start can also fail meanwhile."""
    embedded.folder.mkdir(mode=0o700)
    holder = os.open(embedded.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(holder, fcntl.LOCK_EX)
    found: list[Running | MamError] = []

    def start() -> None:
        try:
            found.append(embedded.start())
        except MamError as error:
            found.append(error)

    other = threading.Thread(target=start)
    other.start()
    looks = iter(range(1000))  # the other start has had the file open for a while, so it has tried the lock
    until(lambda: _opened(embedded.folder / "lock") == 2 and next(looks) > 10, "the second start")
    os.close(holder)
    other.join()
    assert isinstance(found[0], Running), found[0]


def _opened(path: Path) -> int:
    """How many descriptors of this process are open on *path*."""
    return [link.resolve() for link in Path("/proc/self/fd").iterdir()].count(path)


def test_a_server_whose_starter_died_before_it_noted_it_is_ended_by_the_next_start_and_by_stop(
    embedded: Embedded,
) -> None:
    first = embedded.start()
    until(lambda: (embedded.folder / nats_config.PID_FILE).exists())
    (embedded.folder / "server.json").unlink()

    second = embedded.start()
    assert gone(first.pid) and nats_server.running(embedded.folder) == second

    (embedded.folder / "server.json").unlink()
    assert nats_server.stop(embedded.folder) is True and gone(second.pid)


def test_a_second_start_returns_a_server_that_answers_and_no_sooner(embedded: Embedded, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = script(tmp_path / "slow", f'while [ ! -e {gate} ]; do sleep 0.02; done\nexec {embedded.binary} "$@"\n')
    first = threading.Thread(target=lambda: embedded.start(binary=slow))
    first.start()
    try:
        until(lambda: nats_server.running(embedded.folder) is not None, "the first start's record")
        running = nats_server.running(embedded.folder)
        assert running is not None
        port = running.port
        threading.Timer(1.0, gate.touch).start()  # no second start may return before this
        embedded.start()
        with socket.socket() as probe:
            answered = probe.connect_ex((nats_config.HOST, port)) == 0
    finally:
        gate.touch()
        first.join()
    assert answered


def test_a_wanted_port_in_use_names_its_holder_and_leaves_it_alone(embedded: Embedded) -> None:
    with socket.create_server((nats_config.HOST, 0)) as mine:
        port = mine.getsockname()[1]
        with pytest.raises(PortInUse) as caught:
            embedded.start(port=port)
        assert f"(pid {os.getpid()})" in str(caught.value)
        assert str(port) in str(caught.value)
        assert "MAM_BROKER_PORT" in caught.value.remedy
        with socket.create_connection((nats_config.HOST, port)):
            mine.accept()[0].close()
    assert nats_server.running(embedded.folder) is None
    assert embedded.lock_is_free()
    assert embedded.start(port=port).port == port


def test_a_client_that_died_with_the_server_is_forgotten_and_a_living_one_is_not(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch, inbox: type[Inbox]
) -> None:
    monkeypatch.setattr(nats_config, "FORGOTTEN_AFTER_S", 2)
    streams = embedded.folder / "store" / "jetstream" / "$G" / "streams" / "$MQTT_msgs"
    embedded.start()
    dead = embedded.bus("control")
    dead.subscribe("jobs/+", inbox())
    dead.wait_ready(30)
    until(lambda: len(list((streams / "obs").iterdir())) == 1)
    embedded.kill()
    dead.drop()
    embedded.start()
    living, heard = embedded.bus("control"), inbox()
    living.subscribe("monitor/state", heard)
    living.wait_ready(30)
    until(lambda: len(list((streams / "obs").iterdir())) == 2)

    until(lambda: len(list((streams / "obs").iterdir())) == 1, "the end of what nobody reads")

    living.publish("jobs/job-00000001", b"kept for nobody")
    living.publish("monitor/state", b"heard")
    assert heard.next().payload == b"heard"


def test_the_remembered_port_is_used_again_after_stop(embedded: Embedded) -> None:
    port = embedded.start().port
    assert nats_server.stop(embedded.folder)
    assert nats_config.read_state(embedded.folder)["port"] == port
    assert nats_config.proven(embedded.folder, embedded.secrets, "runner") is None
    assert embedded.start().port == port


def test_a_remembered_port_that_somebody_took_is_left_to_them(embedded: Embedded) -> None:
    port = embedded.start().port
    nats_server.stop(embedded.folder)
    with socket.create_server((nats_config.HOST, port)):
        running = embedded.start()
        assert running.port != port
        embedded.bus().wait_ready(30)


def test_stopping_ends_the_server_and_twice_is_harmless(embedded: Embedded) -> None:
    running = embedded.start()
    assert nats_server.stop(embedded.folder) is True
    assert gone(running.pid)
    assert nats_server.running(embedded.folder) is None
    assert nats_server.stop(embedded.folder) is False
    assert nats_server.stop(embedded.folder / "never made") is False


def test_a_process_that_only_has_the_pid_of_the_record_is_never_ended(embedded: Embedded) -> None:
    embedded.folder.mkdir(mode=0o700)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        state = {"pid": child.pid, "start": "1", "boot": process_identity.boot_id(), "port": 1}
        (embedded.folder / "server.json").write_text(json.dumps(state))
        assert nats_server.running(embedded.folder) is None
        assert nats_server.stop(embedded.folder) is False
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


def test_a_process_that_only_has_the_pid_of_the_servers_own_pid_file_is_never_ended(embedded: Embedded) -> None:
    embedded.folder.mkdir(mode=0o700)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (embedded.folder / nats_config.PID_FILE).write_text(f"{child.pid}\n")
        assert nats_server.stop(embedded.folder) is False
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


def test_a_server_that_never_answers_is_ended_by_the_start_that_gives_up(
    embedded: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_server, "START_WITHIN_S", 0.3)
    deaf = script(tmp_path / "deaf", f"echo $$ > {tmp_path}/pid\nexec sleep 600\n")
    with pytest.raises(ServerFailed, match="does not listen"):
        embedded.start(binary=deaf)
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"pid": "x"}', '{"pid": true, "port": "y"}', '{"port": null}']
)
def test_a_record_that_cannot_be_read_is_no_server_and_no_error(embedded: Embedded, content: str) -> None:
    embedded.folder.mkdir(mode=0o700)
    (embedded.folder / "server.json").write_text(content)
    assert nats_server.running(embedded.folder) is None
    assert nats_server.stop(embedded.folder) is False
    assert embedded.start() == nats_server.running(embedded.folder)


def test_a_program_that_ends_at_once_is_reported_with_its_last_words(embedded: Embedded, tmp_path: Path) -> None:
    broken = script(tmp_path / "broken", "echo first\necho the last words >&2\nexit 3\n")
    with pytest.raises(ServerFailed) as caught:
        embedded.start(binary=broken)
    assert "the last words" in str(caught.value)
    assert str(embedded.folder / "nats.log") in caught.value.remedy
    assert nats_server.running(embedded.folder) is None
    assert embedded.start() == nats_server.running(embedded.folder)


def test_a_preferred_program_is_taken_or_refused_by_name(tmp_path: Path) -> None:
    mine = script(tmp_path / "mine", "exit 0\n")
    assert nats_server.find_binary(mine) == mine
    mine.chmod(0o600)
    with pytest.raises(NoServer) as caught:
        nats_server.find_binary(tmp_path / "none")
    assert str(tmp_path / "none") in str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_it_writes_is_private_under_every_umask(embedded: Embedded) -> None:
    before = os.umask(0)
    try:
        embedded.start()
    finally:
        os.umask(before)
    assert mode(embedded.folder) == 0o700
    files = [path for path in embedded.folder.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"lock", "nats.conf", "nats.log", "nats.pid", "server.json"}
    files += list(embedded.secrets.iterdir())
    assert {path.name: oct(mode(path)) for path in files} == {path.name: "0o600" for path in files}
    assert len(list(embedded.secrets.iterdir())) == 3


def test_spawn_is_given_the_lock_and_nothing_secret_on_its_command_line(embedded: Embedded) -> None:
    seen = []

    def watch(argv: Sequence[str], log: Path, cwd: Path, descriptors: Sequence[int]) -> int:
        seen.append((list(argv), [os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in descriptors]))
        return spawn(argv, log, cwd, descriptors)

    nats_server.start(embedded.folder, embedded.secrets, embedded.fingerprint, binary=embedded.binary, spawn=watch)
    assert seen == [([str(embedded.binary), "-c", str(embedded.folder / "nats.conf")], [str(embedded.folder / "lock")])]
