"""
A Multiplexer for machines without tmux, for CI and for tests: a small host process holds the terminal of each pane.

A pane is a folder with spec.json (what to run), state.json (the process that runs it), in (a FIFO of requests, one JSON
object a line), and screen.json (the answer to the last look).
"""

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mam.agents.protocol import Screen
from mam.broker.host import atomic_files, process_identity
from mam.broker.host.process_identity import ProcessId
from mam.wrappers import process
from mam.wrappers.mux.protocol import MuxSilent, Pane, PaneGone, PaneSpec, printable

_START_WITHIN_S = 10.0
_ANSWER_WITHIN_S = 5.0


class Headless:
    """
    A Multiplexer whose server is a folder. Any number of processes may use the same folder.

    A pane lives as long as its host process, and needs no other process. It cannot be shown to a person.
    """

    kind = "headless"

    def __init__(self, folder: Path, environ: Mapping[str, str], mam: str) -> None:
        """*folder* holds the panes. *mam* is the path of the `mam` command, whose verb `pane-host` holds one pane."""
        self.server = str(folder)
        self._folder = folder
        self._env = process.unnested(environ)
        self._mam = mam

    def __repr__(self) -> str:
        return f"Headless({self.server})"

    def open(self, spec: PaneSpec) -> Pane:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pane_id = f"p{secrets.token_hex(6)}"
        folder = self._folder / pane_id
        folder.mkdir(mode=0o700)
        os.mkfifo(folder / "in", 0o600)
        content = {
            "tag": spec.tag,
            "cwd": str(spec.cwd),
            "env": dict(spec.env),
            "argv": list(spec.argv),
            "pane": pane_id,
        }
        (folder / "spec.json").write_text(json.dumps(content), "utf-8")
        process.spawn([self._mam, "pane-host", str(folder)], folder / "host.log", folder, env=self._env)
        deadline = time.monotonic() + _START_WITHIN_S
        while time.monotonic() < deadline:
            if (folder / "state.json").exists():
                return self._pane(folder)
            time.sleep(0.01)
        raise MuxSilent(server="headless", why=f"no pane came up in {folder} within {_START_WITHIN_S:g} s")

    def panes(self) -> list[Pane]:
        if not self._folder.is_dir():
            return []
        folders = sorted(p for p in self._folder.iterdir() if (p / "state.json").exists())
        return [self._pane(folder) for folder in folders]

    def screen(self, pane_id: str) -> Screen:
        folder = self._known(pane_id)
        number = secrets.randbits(48)
        if not self._ask(folder, {"look": number}):
            return self._last_screen(folder)
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        while time.monotonic() < deadline:
            answer = atomic_files.read(folder / "screen.json")
            if answer.get("look") == number:
                return Screen(str(answer["text"]), str(answer["title"]))
            if self._pane(folder).dead:
                return self._last_screen(folder)
            time.sleep(0.003)
        raise MuxSilent(server="headless", why=f"pane {pane_id} gave no answer within {_ANSWER_WITHIN_S:g} s")

    def paste(self, pane_id: str, text: str) -> None:
        if not self._ask(self._known(pane_id), {"paste": printable(text)}):
            raise PaneGone(pane=pane_id, server="headless")

    def press(self, pane_id: str, key: str) -> None:
        if not self._ask(self._known(pane_id), {"press": key}):
            raise PaneGone(pane=pane_id, server="headless")

    def close(self, pane_id: str, tag: str) -> bool:
        folder = self._folder / pane_id
        if not (folder / "state.json").exists() or self._pane(folder).tag != tag:
            return False
        host = _host(atomic_files.read(folder / "state.json"))
        if host is not None and process_identity.alive(host):
            process.end_group(host, wait_s=2.0)
        shutil.rmtree(folder, ignore_errors=True)
        return True

    def attach_command(self, pane_id: str) -> Sequence[str] | None:
        return None

    def _known(self, pane_id: str) -> Path:
        folder = self._folder / pane_id
        if not folder.is_dir():
            raise PaneGone(pane=pane_id, server="headless")
        return folder

    def _pane(self, folder: Path) -> Pane:
        state = atomic_files.read(folder / "state.json")
        host = _host(state)
        ended = state.get("exit_code")
        dead = ended is not None or host is None or not process_identity.alive(host)
        pid = state.get("pid")
        return Pane(
            folder.name,
            str(state.get("tag", "")),
            pid if isinstance(pid, int) else 0,
            dead,
            ended if isinstance(ended, int) else None,
        )

    def _last_screen(self, folder: Path) -> Screen:
        answer = atomic_files.read(folder / "screen.json")
        return Screen(str(answer.get("text", "")), str(answer.get("title", "")))

    def _ask(self, folder: Path, request: dict[str, object]) -> bool:
        """Send one whole request; False where no host listens. A lock keeps writers apart, since long lines mix."""
        if self._pane(folder).dead:
            return False
        line = b"\n" + json.dumps(request).encode() + b"\n"  # the first line break ends what a killed client left
        try:
            lock = os.open(folder / "in.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return False
        except OSError as error:  # a disk that is read-only says nothing about the pane
            raise MuxSilent(server="headless", why=f"pane {folder.name}: {error.strerror or error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                fifo = os.open(folder / "in", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return False
            try:
                return _write_all(fifo, line)
            finally:
                os.close(fifo)
        finally:
            os.close(lock)


def _write_all(fifo: int, line: bytes) -> bool:
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while line:
        try:
            line = line[os.write(fifo, line) :]
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        except BrokenPipeError:
            return False
    return True


def _host(state: dict[str, object]) -> ProcessId | None:
    pid = state.get("host")
    return ProcessId(pid, str(state.get("host_start")), str(state.get("boot"))) if isinstance(pid, int) else None
