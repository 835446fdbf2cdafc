"""What an onlooker of the same machine sees while MAM works: processes, the wire, panes, files, tables."""

import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

LOOK_EVERY_S = 0.02
PROC = Path("/proc")


class Seen(NamedTuple):
    """One thing that was seen. *kind* is the sort of place, *place* says which."""

    kind: str
    place: str
    data: bytes


class Processes:
    """Command lines and environments of every process that was started meanwhile, looked at again and again."""

    def __init__(self) -> None:
        self._before = set(_pids())
        self._looks: dict[int, int] = {}
        self._seen: set[Seen] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            for pid in _pids():
                if pid not in self._before:
                    looks = self._looks[pid] = self._looks.get(pid, 0) + 1
                    if looks < 8 or looks % 100 == 0:  # a fork becomes another program a little later
                        self._read(pid)

    def _read(self, pid: int) -> None:
        try:
            argv, environ = (PROC / str(pid) / "cmdline").read_bytes(), (PROC / str(pid) / "environ").read_bytes()
        except OSError:
            return  # it is gone
        words = argv.replace(b"\0", b" ").decode("utf-8", "replace")[:200]
        self._seen |= {Seen("argv", f"argv of {words}", argv), Seen("environ", f"environ of {words}", environ)}

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def seen(self) -> list[Seen]:
        return list(self._seen)

    @property
    def count(self) -> int:
        return len(self._looks)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit() and int(name) != os.getpid()]


class Tap:
    """Reads every topic of a broker, as a user without limits."""

    def __init__(self, port: int, user: str, password: str) -> None:
        self._messages: list[Seen] = []
        self._ready = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id="tap", protocol=paho.MQTTv311)
        self._client.username_pw_set(user, password)
        self._client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self._client.on_subscribe = self._granted
        self._client.on_message = self._note
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self._ready.wait(120), "the tap was not let in"

    def _granted(
        self, _client: paho.Client, _data: object, _mid: int, reasons: list[ReasonCode], _more: Properties | None
    ) -> None:
        if not any(reason.is_failure for reason in reasons):
            self._ready.set()

    def _note(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self._messages.append(
            Seen("wire", f"a message on {message.topic}", message.topic.encode() + b"\n" + message.payload)
        )

    def seen(self) -> list[Seen]:
        return list(self._messages)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def files(*folders: Path) -> Iterator[Seen]:
    """Every plain file below *folders*; the place is its path."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    yield Seen("file", str(path), path.read_bytes())
            except FileNotFoundError:
                pass  # it was there only for a moment


def tables(database: Path) -> Iterator[Seen]:
    """Every cell of every table: in the file itself a long one may be cut in pieces."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {table}"):
                cells = (cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)
                yield Seen("table", f"table {table}", b"\n".join(cells))
    finally:
        connection.close()


def tmux(server: str) -> Iterator[Seen]:
    """What a tmux server tells: environments, scrollbacks, buffers, how its panes were started."""

    def ask(*words: str) -> bytes:
        return subprocess.run(["tmux", "-L", server, *words], capture_output=True, check=True).stdout

    yield Seen("tmux environment", "tmux show-environment -g", ask("show-environment", "-g"))
    for session in ask("list-sessions", "-F", "#{session_id}").decode().split():
        yield Seen("tmux environment", f"tmux show-environment -t {session}", ask("show-environment", "-t", session))
    for pane in ask("list-panes", "-a", "-F", "#{pane_id}").decode().split():
        yield Seen("scrollback", f"tmux pane {pane}", ask("capture-pane", "-p", "-J", "-S", "-", "-t", pane))
    yield Seen("tmux", "tmux panes", ask("list-panes", "-a", "-F", "#{pane_start_command} #{pane_title} #{@mam_node}"))
    for buffer in ask("list-buffers", "-F", "#{buffer_name}").decode().split():
        yield Seen("tmux", "a tmux buffer", ask("show-buffer", "-b", buffer))
    yield Seen("tmux", "tmux options", ask("show-options", "-g") + ask("show-options", "-s"))
