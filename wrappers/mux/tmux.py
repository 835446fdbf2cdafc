"""tmux as a Multiplexer: a private socket, panes by `%id`, text through standard input, one tmux session an agent."""

import os
import secrets
from collections.abc import Mapping, Sequence

from mam.agents.protocol import Screen
from mam.wrappers import process
from mam.wrappers.mux.protocol import COLUMNS, ROWS, LookFailed, MuxGone, MuxSilent, Pane, PaneGone, PaneSpec, printable

CARRIED_BYTES = 15_000  # tmux carries each variable in one message of 16 kB
_FORMAT = "#{pane_id}\t#{pane_pid}\t#{pane_dead}\t#{pane_dead_status}\t#{@mam_node}"
# tmux ends with 1 for every trouble, so its words must tell a missing server from other trouble.
_NO_SERVER = ("no server running", "server exited unexpectedly", "lost server")
# Other reasons of "error connecting" (no permission, no more descriptors) prove nothing about the server.
_NOT_THERE = ("No such file or directory", "Connection refused")


class Tmux:
    """
    A Multiplexer over one tmux server of MAM's own.

    The panes of other programs on that server, and the user's own tmux servers, are never touched: each pane of MAM
    carries its tag as a pane option.
    """

    kind = "tmux"

    def __init__(self, server: str, environ: Mapping[str, str], config: str = "/dev/null") -> None:
        """*environ* becomes the environment of a server that is started here; *config* is the tmux.conf to read."""
        self.server = server
        self._env = process.unnested(environ)
        self._base = ["tmux", "-u", "-L", server, "-f", config]

    def __repr__(self) -> str:
        return f"Tmux({self.server})"

    def open(self, spec: PaneSpec) -> Pane:
        # Without sessions a server ends at once; with spec.env in its own environment every later pane would have it.
        self._call("start-server", ";", "set-option", "-s", "exit-empty", "off")
        environ = {**self._env, **spec.env}
        # By name: a command line is readable by anybody, and tmux takes no more than 16 kB of it.
        command = ["set-option", "-g", "update-environment", " ".join(_carried(environ)), ";"]
        command += ["new-session", "-d", "-s", spec.name, "-x", str(COLUMNS), "-y", str(ROWS)]
        # tmux expands formats in this one, and #(…) would be run.
        command += ["-c", _word(str(spec.cwd).replace("#", "##"))]
        command += ["-P", "-F", _FORMAT]
        command += ["--", *map(_word, spec.argv if len(spec.argv) > 1 else ["sh", "-c", 'exec "$0"', *spec.argv])]
        # In one call, since a program that ends at once would take its pane along. Hooks of the user's may have
        # opened another pane meanwhile, so the first one is named.
        command += [";", *_marks(f"={spec.name}:^.{{top-left}}", spec.tag)]
        # Whoever is attached when it ends must not find himself in the pane of another agent.
        command += [";", "set-option", "-t", f"={spec.name}:", "detach-on-destroy", "on"]
        command += [";", "set-option", "-gu", "update-environment", ";", "set-option", "-s", "exit-empty", "on"]
        done = self._run(*command, env=environ)
        pane_id = done.stdout.split("\t", 1)[0].strip()
        try:
            return self._opened(pane_id, spec.tag, done)
        except (LookFailed, PaneGone):
            if pane_id.startswith("%"):
                self._run("kill-pane", "-t", pane_id)  # only this call knows it yet
            self._run("set-option", "-s", "exit-empty", "on")
            raise

    def _opened(self, pane_id: str, tag: str, done: process.Done) -> Pane:
        """Return the pane that was just opened; it alone carries *tag* then. Raises PaneGone, LookFailed."""
        self._check(done)
        for pane in self.panes():
            if pane.id == pane_id and pane.tag == tag:
                return pane
            if pane.tag == tag:
                self._call("set-option", "-pu", "-t", pane.id, "@mam_node")  # of a hook that came in between
        self._pane_call(pane_id, *_marks(pane_id, tag))
        for pane in self.panes():
            if pane.id == pane_id and pane.tag == tag:
                return pane
        raise PaneGone(pane=pane_id, server=f"tmux {self.server}")

    def panes(self) -> list[Pane]:
        listing = ("list-panes", "-a", "-F", _FORMAT)
        done = self._run(*listing)
        if done.code:  # an overloaded server refuses a connection just as a missing one does
            done = self._run(*listing)
        self._check(done)
        found = []
        for line in done.stdout.splitlines():
            pane_id, pid, dead, status, tag = line.split("\t", 4)
            if tag:
                found.append(Pane(pane_id, tag, int(pid or 0), dead == "1", int(status) if status else None))
        return found

    def screen(self, pane_id: str) -> Screen:
        shown = self._pane_call(
            pane_id,
            "display-message",
            "-p",
            "-t",
            pane_id,
            "#{pane_title}",
            ";",
            "capture-pane",
            "-p",
            "-J",
            "-t",
            pane_id,
        )
        title, _, text = shown.partition("\n")
        return Screen(text, title)

    def paste(self, pane_id: str, text: str) -> None:
        data = printable(text).encode("utf-8", "replace")
        if not data:
            return
        buffer = f"mam-{secrets.token_hex(6)}"
        said = self._pane_call(
            pane_id,
            *("copy-mode", "-q", "-t", pane_id),
            *(";", "load-buffer", "-b", buffer, "-"),
            *(";", "if-shell", "-F", "-t", pane_id, "#{pane_dead}"),
            f"delete-buffer -b {buffer} ; display-message -p dead",
            f"paste-buffer -p -r -d -b {buffer} -t {pane_id}",
            stdin=data,
        )
        if said.strip():
            raise PaneGone(pane=pane_id, server=f"tmux {self.server}")

    def press(self, pane_id: str, key: str) -> None:
        self._pane_call(pane_id, "copy-mode", "-q", "-t", pane_id, ";", "send-keys", "-t", pane_id, key)

    def close(self, pane_id: str, tag: str) -> bool:
        try:
            here = any(pane.id == pane_id and pane.tag == tag for pane in self.panes())
            if here:
                condition = f"#{{==:#{{@mam_node}},{tag}}}"
                self._call("if-shell", "-F", "-t", pane_id, condition, f"kill-pane -t {pane_id}")
        except MuxGone:
            return False
        return here

    def attach_command(self, pane_id: str) -> Sequence[str] | None:
        return [*self._base, "attach-session", "-t", pane_id]

    def _pane_call(self, pane_id: str, *command: str, stdin: bytes = b"") -> str:
        try:
            return self._call(*command, stdin=stdin)
        except MuxSilent as error:
            if "can't find pane" in error.why:
                raise PaneGone(pane=pane_id, server=f"tmux {self.server}") from error
            raise

    def _call(self, *command: str, stdin: bytes = b"") -> str:
        done = self._run(*command, stdin=stdin)
        self._check(done)
        return done.stdout

    def _run(self, *command: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> process.Done:
        name = f"tmux server {self.server}"
        argv = [*self._base, *command]
        try:
            return process.run(argv, env=env or self._env, stdin=stdin, timeout_s=10, expect=())
        except process.CommandTimedOut as error:
            raise MuxSilent(server=name, why="no answer within 10 s") from error
        except process.ProgramMissing as error:
            raise MuxSilent(server=name, why="there is no tmux on PATH") from error

    def _check(self, done: process.Done) -> None:
        """Raise MuxGone where the server does not run, and MuxSilent for any other failure."""
        if done.code == 0:
            return
        why = done.stderr.strip() or f"exit code {done.code}"
        connecting = "error connecting" in why and any(words in why for words in _NOT_THERE)
        if connecting or any(words in why for words in _NO_SERVER):
            raise MuxGone(server=f"tmux server {self.server}")
        raise MuxSilent(server=f"tmux server {self.server}", why=why)


def _carried(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that a tmux client can hand to its session. tmux refuses longer ones."""
    plain = (name for name in environ if name.isascii() and name.isidentifier())
    return [name for name in plain if len(os.fsencode(f"{name}={environ[name]}")) < CARRIED_BYTES]


def _marks(pane: str, tag: str) -> list[str]:
    """Return the commands that mark a pane with *tag* and keep it readable after its program has ended."""
    commands = ["set-option", "-p", "-t", pane, "remain-on-exit", "on"]
    commands += [";", "set-option", "-p", "-q", "-t", pane, "remain-on-exit-format", ""]
    return [*commands, ";", "set-option", "-p", "-t", pane, "@mam_node", _word(tag)]


def _word(text: str) -> str:
    """Return *text* as tmux takes it literally. tmux reads a trailing semicolon as the end of a command."""
    return text[:-1] + "\\;" if text.endswith(";") else text


def available(path: str) -> bool:
    """Whether a directory of *path* holds a tmux program."""
    return any(os.access(os.path.join(folder, "tmux"), os.X_OK) for folder in path.split(os.pathsep) if folder)
