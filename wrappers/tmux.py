"""tmux as a Multiplexer: a private socket, `%id` targets, text through stdin, one session an agent."""

import os
import secrets
from collections.abc import Mapping, Sequence

from mam.agents.base import Screen
from mam.wrappers import process
from mam.wrappers.mux import COLUMNS, ROWS, LookFailed, MuxGone, Pane, PaneGone, PaneSpec, printable

_FORMAT = "#{pane_id}\t#{pane_pid}\t#{pane_dead}\t#{pane_dead_status}\t#{@mam_node}"
# rc is 1 for everything, so the words must tell "there is no server" from other trouble.
_NO_SERVER = ("no server running", "error connecting", "server exited unexpectedly", "lost server")


class Tmux:
    kind = "tmux"

    def __init__(self, server: str, environ: Mapping[str, str], config: str = "/dev/null") -> None:
        """*environ* becomes the server's own where it is started; *config* is a tmux.conf of the user's choice."""
        self.server = server
        self._env = process.unnested(environ)
        self._base = ["tmux", "-u", "-L", server, "-f", config]

    def __repr__(self) -> str:
        return f"Tmux({self.server})"

    def open(self, spec: PaneSpec) -> Pane:
        command = ["new-session", "-d", "-s", spec.name, "-x", str(COLUMNS), "-y", str(ROWS)]
        # tmux expands formats in this one, and #(…) would be run.
        command += ["-c", _word(str(spec.cwd).replace("#", "##"))]
        command += ["-P", "-F", _FORMAT]
        for key, value in spec.env.items():
            command += ["-e", _word(f"{key}={value}")]
        command += ["--", *map(_word, spec.argv if len(spec.argv) > 1 else ["sh", "-c", 'exec "$0"', *spec.argv])]
        # In one call, since a program that ends at once would take its pane along.
        command += [";", "set-option", "-p", "remain-on-exit", "on"]
        command += [";", "set-option", "-p", "-q", "remain-on-exit-format", ""]
        command += [";", "set-option", "-p", "@mam_node", _word(spec.tag)]
        done = self._call(*command)
        pane_id = done.split("\t", 1)[0].strip()
        for pane in self.panes():
            if pane.id == pane_id and pane.tag == spec.tag:
                return pane
        raise PaneGone(pane=pane_id, server=f"tmux {self.server}")

    def panes(self) -> list[Pane]:
        found = []
        for line in self._call("list-panes", "-a", "-F", _FORMAT).splitlines():
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
        except MuxGone:
            raise
        except LookFailed as error:
            if "can't find pane" in str(error.data["why"]):
                raise PaneGone(pane=pane_id, server=f"tmux {self.server}") from error
            raise

    def _call(self, *command: str, stdin: bytes = b"") -> str:
        name = f"tmux server {self.server}"
        try:
            done = process.run([*self._base, *command], env=self._env, stdin=stdin, timeout_s=10, expect=())
        except process.CommandTimedOut as error:
            raise LookFailed(server=name, why="no answer within 10 s") from error
        except process.ProgramMissing as error:
            raise LookFailed(server=name, why="there is no tmux on PATH") from error
        if done.code == 0:
            return done.stdout
        why = done.stderr.strip() or f"exit code {done.code}"
        if any(words in why for words in _NO_SERVER):
            raise MuxGone(server=name)
        raise LookFailed(server=name, why=why)


def _word(text: str) -> str:
    """A word that tmux takes literally: it reads a trailing semicolon as the end of a command."""
    return text[:-1] + "\\;" if text.endswith(";") else text


def available(path: str) -> bool:
    """Whether a tmux program stands on *path*."""
    return any(os.access(os.path.join(folder, "tmux"), os.X_OK) for folder in path.split(os.pathsep) if folder)
