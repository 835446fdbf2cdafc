"""
The agent as a child of the runner, in the pane's own terminal: a process group of its own, in the foreground.

The runner sees no byte of its input or output. The runner leads the terminal's session, so the kernel sends SIGHUP to
the agent when the runner dies.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mam.broker.host import ending, process_identity
from mam.broker.host.process_identity import ProcessId

_EXEC_FAILED = 127


SHELLS = frozenset(
    ("sh", "bash", "rbash", "zsh", "dash", "ash", "ksh", "mksh", "fish", "csh", "tcsh", "nu", "xonsh", "pwsh", "elvish")
)
_WITH_A_VALUE = ("--rcfile", "--init-file", "--init-command", "--emulate", "-o", "+o", "-O", "+O", "-C")
_WITH_COMMANDS = ("--command", "-command", "-file")


def bare_shell(argv: Sequence[str]) -> bool:
    """Whether *argv* is a shell that reads commands from its terminal. It would run a prompt line by line."""
    words = argv[1:] if argv and os.path.basename(argv[0]) == "busybox" else argv
    if not words or os.path.basename(words[0]).lstrip("-") not in SHELLS:
        return False
    options = iter(words[1:])
    for word in options:
        if word in _WITH_A_VALUE:
            next(options, None)
        elif word[:1] not in ("-", "+") or word.partition("=")[0].lower() in _WITH_COMMANDS:
            return False  # a script, or a command
        elif not word.startswith("--") and word[0] == "-":
            if "c" in word:
                return False
            if "s" in word:
                return True  # the words after it belong to the script, and the script is what is typed
    return True


class Exited(NamedTuple):
    """The agent has ended. *code* is negative where a signal ended it."""

    code: int


class Stopped(NamedTuple):
    """The agent was stopped (SIGSTOP, SIGTSTP) and can go on."""


class AgentProcess:
    """
    One agent from its start to its end.

    Where the program cannot be run, the object is made all the same: the agent then ends with code 127 and a message on
    its terminal.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, tty: int) -> None:
        """Start *argv*. It must be called before any thread is started, since a fork copies only the calling one."""
        self._tty = tty
        # A background group that sets the foreground would be stopped by this signal.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        pid = os.fork()  # noqa: TID251 (the child takes the foreground of our terminal before it becomes the agent)
        if pid == 0:
            _become(argv, env, cwd, tty)
        try:
            os.setpgid(pid, pid)  # parent and child both do it, since either may come first
        except (PermissionError, ProcessLookupError):
            pass  # the child runs its program already, or has ended
        self.pid = pid
        self.identity = process_identity.of(pid) or ProcessId(pid, "0", process_identity.boot_id())
        self.exited: Exited | None = None

    def poll(self) -> Exited | Stopped | None:
        """Return what has happened to the agent since the last call: its end, once; a stop; or None."""
        if self.exited is not None:
            return None
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            self.exited = Exited(0)
            return self.exited
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            return Stopped()
        self.exited = Exited(os.waitstatus_to_exitcode(status))
        return self.exited

    def in_foreground(self) -> bool:
        """Whether typed text would reach the agent now, and not a shell or a tool that the agent runs."""
        if self.exited is not None:
            return False
        try:
            return os.tcgetpgrp(self._tty) == self.pid and not bare_shell(process_identity.command_line(self.pid))
        except OSError:
            return False

    def wake_up(self) -> None:
        """Give the terminal back to a stopped agent, and let it go on."""
        try:
            os.tcsetpgrp(self._tty, self.pid)
            os.killpg(self.pid, signal.SIGCONT)
        except OSError:
            pass  # the agent has ended meanwhile, and poll will say so

    def end(self, wait_s: float) -> None:
        """End the agent's process group: TERM, then KILL after *wait_s*. Children that outlived the agent end too."""
        ending.end_group(self.identity, wait_s=wait_s)


def _become(argv: Sequence[str], env: Mapping[str, str], cwd: str, tty: int) -> None:
    """Become the agent, in the child of the fork. Never returns."""
    try:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.tcsetpgrp(tty, os.getpid())
        for name in (signal.SIGTTOU, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        for name in (signal.SIGPIPE, signal.SIGXFSZ):  # Python itself ignores these
            signal.signal(name, signal.SIG_DFL)
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: TID251 (the other half of the fork above)
    except OSError as error:
        os.write(2, f"mam: cannot start {argv[0]}: {error}\r\n".encode("utf-8", "replace"))
    finally:
        os._exit(_EXEC_FAILED)
