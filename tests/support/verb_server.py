"""
Runs `mam` in a process of its own that need not start an interpreter and import MAM first: it is forked from this one.

Run by path with the number of a socket. Each request on it is a packet of JSON (argv, directory, environment) with
four descriptors: standard input, output, error, and a socket for the answer. The answer is the verb's process id, then
its exit code, or minus the signal that ended it. The server ends when the socket is closed.
"""

import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import sys
from typing import TextIO

import mam.control_plane.cli
from mam.control_plane.cli import main

PACKET_BYTES = 200_000


def import_everything() -> None:
    """Import each module of the verbs, so that no verb has to."""
    for found in pkgutil.walk_packages(mam.control_plane.cli.__path__, "mam.control_plane.cli."):
        importlib.import_module(found.name)


def serve(control: socket.socket) -> list[str] | None:
    """Fork for each request. Returns the words of its verb in a forked process, None at the end of the server."""
    while True:
        text, descriptors, _flags, _address = socket.recv_fds(control, PACKET_BYTES, 4)
        if not text:
            return None
        if os.fork() == 0:
            control.close()
            return mind(json.loads(text), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        while True:  # those that minded earlier verbs
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    break
            except ChildProcessError:
                break


def mind(request: dict[str, object], descriptors: list[int]) -> list[str]:
    """Return in the verb's process; beside it, wait for its end, answer, and end."""
    answer = socket.socket(fileno=descriptors[3])
    verb = os.fork()
    if verb:
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        _say(answer, verb)
        _, status = os.waitpid(verb, 0)
        _say(answer, os.waitstatus_to_exitcode(status))
        os._exit(0)
    answer.close()
    become(request, descriptors)
    return sys.argv[1:]


def _say(answer: socket.socket, number: int) -> None:
    try:
        answer.sendall(f"{number}\n".encode())
    except BrokenPipeError:
        pass  # who asked waits no more


def become(request: dict[str, object], descriptors: list[int]) -> None:
    """Take the directory, the environment and the standard streams of the request."""
    for standard, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    sys.stdin = fresh(0, sys.stdin)
    sys.stdout = fresh(1, sys.stdout)
    sys.stderr = fresh(2, sys.stderr)
    os.chdir(str(request["cwd"]))
    environ = request["environ"]
    assert isinstance(environ, dict)
    os.environ.clear()
    os.environ.update(environ)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    argv = request["argv"]
    assert isinstance(argv, list)
    sys.argv = argv


def fresh(descriptor: int, like: TextIO) -> TextIO:
    """A standard stream as the interpreter opens it at its start: one that remembers nothing of another file."""
    mode = "r" if descriptor == 0 else "w"
    unbuffered = descriptor == 2
    stream = open(descriptor, mode, encoding=like.encoding, errors=like.errors, closefd=False)  # noqa: SIM115
    assert isinstance(stream, io.TextIOWrapper)
    stream.reconfigure(line_buffering=unbuffered)
    return stream


if __name__ == "__main__":
    import_everything()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        sys.exit(main(wanted))
