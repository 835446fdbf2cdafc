"""The host of one headless pane: it runs the program, keeps its screen, and types what is sent to it."""

import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyte

from mam.broker.host import atomic_files, process_identity
from mam.wrappers.mux.protocol import COLUMNS, ROWS

_BRACKETED = 2004 << 5  # pyte keeps private modes shifted
_KEYS = {"Enter": b"\r", "Escape": b"\x1b", "C-c": b"\x03", "C-d": b"\x04", "C-z": b"\x1a"}
# Sequences that pyte takes for others: key and cursor protocols that change no text.
_FOREIGN = re.compile(rb"\x1b\[[<>=][0-9;:]*[ -/]*[@-~]|\x1b\[\?[0-9;]*[ -/]*[^hl0-9; -/]|\x1b[PX^_][^\x1b]*\x1b\\")
_CSI = re.compile(rb"(\x1b\[[0-9;:<=>?]*[ -/]*[@-~])")
_UNFINISHED = re.compile(rb"\x1b(\[[0-9;:<>=?]*[ -/]*)?\Z")


class _Screen(pyte.Screen):
    """A screen that answers the program's questions about the terminal."""

    def __init__(self) -> None:
        super().__init__(COLUMNS, ROWS)
        self.answers = b""

    def write_process_input(self, data: str) -> None:
        self.answers += data.encode()


class PaneHost:
    """
    The terminal of one program, until that program ends.

    It answers requests in the order in which they arrive. A request that is not JSON is skipped.
    """

    def __init__(self, folder: Path, inherited: Mapping[str, str]) -> None:
        self._folder = folder
        spec = json.loads((folder / "spec.json").read_text("utf-8"))
        self._tag = str(spec["tag"])
        # Opened for reading and writing, so that it never ends between two writers.
        self._requests = os.open(folder / "in", os.O_RDWR | os.O_NONBLOCK)
        self._pid, self._master = _start(spec, inherited)
        self._screen = _Screen()
        self._stream = pyte.ByteStream(self._screen)
        self._held = b""
        self._line = b""
        self._typed = b""
        self._write_state(None)

    def run(self) -> int:
        """Serve until the program ends. Then state.json holds its exit code, and screen.json its last screen."""
        while self._serve_once():
            pass
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._write_screen(0)
        self._write_state(code)
        return 0

    def _serve_once(self) -> bool:
        writers = [self._master] if self._typed else []
        readable, writable, _ = select.select([self._master, self._requests], writers, [])
        if writable:
            self._typed = self._typed[os.write(self._master, self._typed[:1024]) :]
        if self._master in readable:  # before the requests: an answer must show what was printed before it
            try:
                data = os.read(self._master, 65536)
            except OSError as error:
                if error.errno != errno.EIO:  # Linux raises EIO when the last writer has gone
                    raise
                return False
            if not data:
                return False
            self._feed(data)
        if self._requests in readable:
            self._take_requests()
        return True

    def _feed(self, data: bytes) -> None:
        data = self._held + data
        cut = _UNFINISHED.search(data)
        self._held = data[cut.start() :] if cut else b""
        if cut:
            data = data[: cut.start()]
        for piece in _CSI.split(_FOREIGN.sub(b"", data)):
            try:
                self._stream.feed(piece)
            except Exception:  # noqa: BLE001 (a foreign parser: no output of a program may end its pane)
                self._stream = pyte.ByteStream(self._screen)  # pyte's parser ends with its first error
        self._typed += self._screen.answers if len(self._typed) < 65536 else b""
        self._screen.answers = b""

    def _take_requests(self) -> None:
        *lines, self._line = (self._line + os.read(self._requests, 65536)).split(b"\n")
        for line in lines:
            try:
                request: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if "look" in request:
                self._write_screen(int(request["look"]))
            elif "paste" in request:
                self._typed += self._bracketed(str(request["paste"]))
            elif "press" in request:
                self._typed += _KEYS.get(str(request["press"]), b"")

    def _bracketed(self, text: str) -> bytes:
        data = text.encode("utf-8", "replace")
        if _BRACKETED in self._screen.mode:
            return b"\x1b[200~" + data + b"\x1b[201~"
        return data

    def _write_screen(self, number: int) -> None:
        text = "\n".join(line.rstrip() for line in self._screen.display)
        self._write("screen.json", {"look": number, "text": text, "title": self._screen.title})

    def _write_state(self, exit_code: int | None) -> None:
        own = process_identity.me()
        state = {"tag": self._tag, "host": own.pid, "host_start": own.start, "boot": own.boot, "pid": self._pid}
        self._write("state.json", {**state, "exit_code": exit_code})

    def _write(self, name: str, content: dict[str, object]) -> None:
        try:
            atomic_files.write_note(self._folder / name, content)
        except OSError:
            pass  # the disk is full: the request stays unanswered, and the program keeps its terminal


def _start(spec: dict[str, Any], inherited: Mapping[str, str]) -> tuple[int, int]:
    pid, master = pty.fork()  # noqa: TID251 (the child gets a terminal of its own, which we hold)
    if pid == 0:
        _become(spec, inherited)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    os.set_blocking(master, False)
    return pid, master


def _become(spec: dict[str, Any], inherited: Mapping[str, str]) -> None:
    """Become the program, in the child of the fork. Never returns."""
    try:
        for name in (signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(name, signal.SIG_DFL)
        os.chdir(spec["cwd"])
        # The host's own environment is what a terminal server would give its panes.
        env = {**inherited, **spec["env"], "TERM": "xterm-256color", "MAM_PANE": spec["pane"]}
        os.execvpe(spec["argv"][0], spec["argv"], env)  # noqa: TID251 (the other half of the fork above)
    except OSError as error:
        os.write(2, f"mam: cannot start {spec['argv'][0]}: {error}\r\n".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def main(folder: Path, inherited: Mapping[str, str]) -> int:
    """The verb `mam pane-host`: hold the pane in *folder* until its program ends."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return PaneHost(folder, inherited).run()
