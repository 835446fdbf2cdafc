"""A multiplexer server of a test's own, of either kind, with small programs in its panes."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mam.broker.host import ending, process_identity
from mam.broker.host.process_identity import ProcessId
from mam.control_plane.control_root.installation import mam_command
from mam.wrappers.mux.headless import Headless
from mam.wrappers.mux.protocol import Multiplexer, MuxGone, Pane, PaneSpec
from mam.wrappers.mux.tmux import Tmux
from tests.support import until

PROGRAMS = str(Path(__file__).with_name("pane_programs.py"))


def tmux(server: str, *words: str) -> str:
    """Ask a tmux server ourselves, past the class under test."""
    done = subprocess.run(["tmux", "-L", server, *words], capture_output=True, text=True, check=True)
    return done.stdout


class Reader(NamedTuple):
    """A pane whose program keeps every byte that it reads."""

    pane: Pane
    out: Path

    @property
    def got(self) -> bytes:
        return self.out.read_bytes()

    def await_end(self, end: bytes) -> bytes:
        """Wait until what was read ends with *end* and return all of it."""
        until(lambda: self.got.endswith(end), what=f"read up to {end!r}")
        return self.got


class Panes:
    """One server: nothing of it is shared with another test."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.server = f"mam-test-{secrets.token_hex(6)}" if kind == "tmux" else str(folder / "panes")
        # No home, no locale, no TERM: what a service manager gives. The last one keeps Python from adding to it.
        self.environ = {"PATH": os.environ["PATH"], "ABOVE": "the server's", "PYTHONCOERCECLOCALE": "0"}
        self.mux = self.client(self.environ)
        self._programs: list[ProcessId] = []

    def client(self, environ: Mapping[str, str], config: str = "/dev/null") -> Multiplexer:
        """Another client of the same server."""
        if self.kind == "tmux":
            return Tmux(self.server, environ, config)
        return Headless(Path(self.server), environ, mam_command())

    def open(
        self,
        *argv: str,
        name: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        mux: Multiplexer | None = None,
    ) -> Pane:
        name = name or f"n{secrets.token_hex(4)}"
        spec = PaneSpec(f"tag-{secrets.token_hex(4)}", name, cwd or self.folder, env or {}, argv)
        pane = (mux or self.mux).open(spec)
        program = process_identity.of(pane.pid)
        if program is not None:
            self._programs.append(program)
        return pane

    def program(self, *words: str, **more: Any) -> Pane:
        return self.open(sys.executable, PROGRAMS, *words, **more)

    def told(self, *words: str, **more: Any) -> Any:
        """What a program sees that was started with *words*: its words, env and cwd."""
        out = self.folder / f"told-{secrets.token_hex(4)}"
        self.program("tell", str(out), *words, **more)
        until(out.exists, what="the program told what it sees")
        return json.loads(out.read_text("utf-8"))

    def reader(self, *, bracketed: bool = True, **more: Any) -> Reader:
        out = self.folder / f"read-{secrets.token_hex(4)}"
        pane = self.program("read", str(out), "bracketed" if bracketed else "plain", **more)
        self.await_text(pane, "listening")
        return Reader(pane, out)

    def saying(self, text: str, code: int | None = None) -> Pane:
        return self.program("say", text, "" if code is None else str(code))

    def await_text(self, pane: Pane, text: str) -> str:
        """Wait until the screen shows *text* and return all that it shows."""
        found: str = until(
            lambda: (s := self.mux.screen(pane.id).text) and text in s and s, what=f"{text!r} on the screen"
        )
        return found

    def look(self, pane: Pane) -> Pane | None:
        return next((found for found in self.mux.panes() if found.id == pane.id), None)

    def await_dead(self, pane: Pane) -> Pane:
        found: Pane = until(lambda: (now := self.look(pane)) and now.dead and now, what="the pane is dead")
        return found

    def await_code(self, pane: Pane) -> int:
        """Wait for the exit code of a dead pane; a pane can be seen dead shortly before its code is known."""

        def known() -> Pane | None:
            now = self.look(pane)
            if now and now.dead and now.exit_code is None and self.kind == "tmux":
                # tmux 3.3a overlooks about every twelfth child's end until another child ends.
                tmux(self.server, "run-shell", "true")
            return now if now and now.exit_code is not None else None

        dead = until(known, what="an exit code")
        assert dead.dead
        code: int = dead.exit_code
        return code

    def clear(self) -> None:
        """End the server, then each program that outlived its pane."""
        self._end_server()
        for program in self._programs:
            ending.end_group(program, wait_s=1)

    def _end_server(self) -> None:
        if self.kind == "tmux":
            subprocess.run(["tmux", "-L", self.server, "kill-server"], capture_output=True)
            folder = Path("/tmp") / f"tmux-{os.getuid()}"
            (folder / self.server).unlink(missing_ok=True)
            return
        try:
            for pane in self.mux.panes():
                self.mux.close(pane.id, pane.tag)
        except MuxGone:
            pass
