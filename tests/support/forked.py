"""`mam` in a process that is forked from one which has imported MAM already: what an interpreter costs is paid once."""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PROGRAM = Path(__file__).with_name("verb_server.py")
# What an interpreter reads as it starts, so that a process that is forked from another one would not know of it.
AT_START = ("LANG", "LC_", "PYTHON", "LD_")
PACKET_BYTES = 100_000


class Verb:
    """
    One forked `mam`, with those members of `subprocess.Popen` that tests use; its streams are text.

    A timeout raises subprocess.TimeoutExpired. In `communicate` it ends the verb, as subprocess.run does.
    """

    def __init__(self, control: socket.socket, argv: Sequence[str], packet: bytes) -> None:
        self.args = argv
        self.returncode: int | None = None
        their_in, mine_in = os.pipe()
        mine_out, their_out = os.pipe()
        mine_err, their_err = os.pipe()
        self._answer, their_answer = socket.socketpair()
        with their_answer:
            theirs = [their_in, their_out, their_err]
            socket.send_fds(control, [packet], [*theirs, their_answer.fileno()])
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin = open(mine_in, "w", encoding="utf-8", newline="")  # noqa: SIM115
        self.stdout = open(mine_out, encoding="utf-8", newline="")  # noqa: SIM115
        self.stderr = open(mine_err, encoding="utf-8", newline="")  # noqa: SIM115
        self._numbers = self._answer.makefile("r")
        told = self._numbers.readline()
        assert told, "the server that verbs are forked from has ended: its last words are on standard error"
        self.pid = int(told)

    def poll(self) -> int | None:
        """The exit code, minus the signal that ended it, or None while it runs."""
        if self.returncode is None and select.select([self._answer], [], [], 0)[0]:
            self._learn()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return what `poll` returns then."""
        if self.returncode is None:
            if not select.select([self._answer], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._learn()
        assert self.returncode is not None
        return self.returncode

    def _learn(self) -> None:
        self.returncode = int(self._numbers.readline())
        self._numbers.close()
        self._answer.close()

    def communicate(self, given: bytes = b"", timeout: float | None = None) -> tuple[str, str]:
        """Write *given*, read until it and everything that has its output has ended, and return the output."""
        said = {"stdout": "", "stderr": ""}

        def read(name: str) -> None:
            stream = getattr(self, name)
            if not stream.closed:
                with stream:
                    said[name] = stream.read()

        readers = [threading.Thread(target=read, args=(name,), daemon=True) for name in said]
        writer = threading.Thread(target=self._write, args=(given,), daemon=True)
        for thread in (*readers, writer):
            thread.start()
        for thread in (*readers, writer):
            thread.join(timeout)
            if thread.is_alive():
                self.kill()
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        return said["stdout"], said["stderr"]

    def _write(self, given: bytes) -> None:
        if self.stdin.closed:
            return
        with suppress(BrokenPipeError):  # it reads no more
            self.stdin.buffer.write(given)
        with suppress(BrokenPipeError):
            self.stdin.close()

    def send_signal(self, number: int) -> None:
        """Signal it, unless its end is known."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that verbs are forked from (verb_server.py); it ends with this one."""

    def __init__(self) -> None:
        self._began_with = _of_the_start(os.environ)
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, str(PROGRAM), str(other.fileno())]
        with other:
            self._process = subprocess.Popen(argv, pass_fds=[other.fileno()], stdin=-3, stdout=-3, cwd="/")
        atexit.register(self._end)

    def fork(self, argv: Sequence[str], cwd: str, environ: Mapping[str, str]) -> Verb | None:
        if _of_the_start(environ) != self._began_with or shutil.which("git", path=environ.get("PATH")) is None:
            return None
        try:
            request = json.dumps({"argv": argv, "cwd": cwd, "environ": environ}, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return None  # bytes that are no text
        if len(request) > PACKET_BYTES or not os.path.isdir(cwd):
            return None
        return Verb(self._control, argv, request)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


_servers: list[_Server] = []
_one = threading.Lock()


def fork_mam(argv: Sequence[str], cwd: str, environ: Mapping[str, str]) -> Verb | None:
    """Fork `mam` with *argv*; None where it must begin with the interpreter to be what a user has."""
    with _one:
        if not _servers:
            _servers.append(_Server())
    return _servers[0].fork(argv, cwd, environ)


def _of_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(AT_START)}
