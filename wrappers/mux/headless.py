"""
A Multiplexer for machines without tmux, for CI and for tests: a small host process holds the terminal of each pane.

A pane is a folder with spec.json (what to run), state.json (the process that runs it), in (a FIFO of requests, one JSON
object a line), and screen.json (the answer to the last look).
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mam.agents.protocol import Screen
from mam.broker.errors import Busy
from mam.broker.host import atomic_files, ending, locks, process_identity
from mam.broker.host.ending import DoesNotEnd
from mam.broker.host.process_identity import ProcessId
from mam.broker.host.waiting import wait_until
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
        if not wait_until((folder / "state.json").exists, _START_WITHIN_S, every_s=0.01):
            raise MuxSilent(server="headless", why=f"no pane came up in {folder} within {_START_WITHIN_S:g} s")
        return self._pane(folder)

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

        def answered() -> bool:
            return atomic_files.read(folder / "screen.json").get("look") == number or self._pane(folder).dead

        if not wait_until(answered, _ANSWER_WITHIN_S, every_s=0.003):
            raise MuxSilent(server="headless", why=f"pane {pane_id} gave no answer within {_ANSWER_WITHIN_S:g} s")
        return self._last_screen(folder)

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
            try:
                ending.end_group(host, wait_s=2.0)
            except DoesNotEnd as error:
                raise MuxSilent(server="headless", why=f"the host of pane {pane_id}: {error}") from error
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
            with locks.hold(folder / "in.lock", wait_s=_ANSWER_WITHIN_S):
                return _send(folder / "in", line)
        except FileNotFoundError:
            return False  # its folder was removed meanwhile
        except (OSError, Busy) as error:  # a disk that is read-only says nothing about the pane
            why = error.strerror if isinstance(error, OSError) else None
            raise MuxSilent(server="headless", why=f"pane {folder.name}: {why or error}") from error


def _send(path: Path, line: bytes) -> bool:
    try:
        fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return _write_all(fifo, line)
    finally:
        os.close(fifo)


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
