"""A control root in a real repository, driven as a user drives it."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mam.broker.bus.mqtt import MqttBus
from mam.broker.envelope import topics
from mam.broker.host import process_identity
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import create, monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.database import RegistryUnusable
from mam.control_plane.registry.records import Job
from mam.control_plane.registry.transactions import Registry
from mam.control_plane.sessions import lifecycle
from tests.support.commands import Said, run_mam
from tests.support.repositories import repository
from tests.support.sizes import FULL
from tests.support.waiting import until


class Gate:
    """Where an agent stands still in its script until a test lets it go on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def step(self) -> dict[str, Any]:
        """The step of the agent's script that waits."""
        return {"shell": f"until [ -e {shlex.quote(str(self._path))} ]; do sleep 0.05; done"}

    def open(self) -> None:
        """Let whoever stands there go on; later agents find it open."""
        self._path.touch()


class Root:
    """A control root in a real repository."""

    def __init__(self, path: Path, *, mux: str) -> None:
        self.path = path
        self.anew = FULL  # whether each verb begins with the interpreter: what is seen of a process is then the user's
        self._gates: list[Gate] = []
        self.env: dict[str, str] = {"MAM_MUX": mux, "MAM_HEARTBEAT_S": "1"}

    def make(self) -> None:
        """Make the repository, and in it what `mam init` makes."""
        repository(self.path)
        create.make(self.parts.layout, self.parts.settings.environ)

    def settings_file(self, text: str) -> Path:
        """Write `.mam.env` and trust it, as its user does."""
        path = self.path / ".mam.env"
        path.write_text(text, "utf-8")
        assert self.mam("trust", str(path)).code == 0
        return path

    def mam(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, **more: Any) -> Said:
        """Run `mam` in this control root, or in *cwd*; see `run_mam`."""
        return run_mam(*words, cwd=cwd or self.path, env={**self.env, **(env or {})}, **{"anew": self.anew, **more})

    def ok(self, *words: str, **more: Any) -> Any:
        """Run with --json and return the result; fails with the error's text."""
        said = self.mam(*words, "--json", **more)
        assert said.code == 0, f"mam {' '.join(words)} → {said.code}\n{said.err}"
        return said.json

    @property
    def parts(self) -> Mam:
        """The same control root in this process."""
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **self.env}
        settings = config.Settings(environ, environ, self.path)
        return Mam(settings, layouts.layout(settings, str(self.path)), by="test")

    @property
    def registry(self) -> Registry:
        return self.parts.registry

    def gate(self) -> Gate:
        """A gate of its own; the end of the test opens it."""
        gate = Gate(self.path.parent / f"{self.path.name}-gate-{len(self._gates)}")
        self._gates.append(gate)
        return gate

    def agent(
        self, name: str = "writer", *script: dict[str, Any], agent: str = "scripted", role: str = "creator"
    ) -> Any:
        """Create a scripted agent that plays *script* for each job."""
        words = ["agent", "create", name, "--agent", agent, "--role", role, "--json"]
        if script:
            path = self.path.parent / f"{self.path.name}-{name}.json"
            path.write_text(json.dumps(list(script)), "utf-8")
            words += ["--", "--script", str(path)]
        said = self.mam(*words)
        assert said.code == 0, said.err
        return said.json

    def delegate(self, to: str = "writer", task: str = "do it", *words: str) -> str:
        said = self.mam("job", "delegate", "--to", to, "--brief", "-", "--json", *words, stdin=task)
        assert said.code == 0, said.err
        job: str = said.json["id"]
        return job

    def job(self, job_id: str) -> Job:
        """A job's record, which must be there."""
        with self.registry.view() as view:
            found = view.job(job_id)
        assert found is not None, f"there is no job {job_id}"
        return found

    def session(self, name: str) -> Any:
        """An agent's record or None. Any: a test reads what a record has only while its agent runs."""
        with self.registry.view() as view:
            return view.session(name)

    def events(self, scope: str | None = None) -> list[dict[str, Any]]:
        with self.registry.view() as view:
            return view.events(scope=scope, limit=100_000)

    def viewer(self, below: str = "") -> MqttBus:
        """A bus as the user that may only look, *below* a prefix or this root's; the caller closes it."""
        layout = self.parts.layout
        running = nats_server.running(layout.broker)
        assert running is not None
        return MqttBus(
            nats_config.endpoint(layout.secrets, running.port, "viewer"), below or topics.root(self.parts.fingerprint)
        )

    @contextmanager
    def asleep(self, pid: int) -> Generator[None]:
        """The process *pid* stopped (SIGSTOP), but never while it holds the registry's lock: others go on beside it."""
        look = ["ps", "-o", "state=", "-p", str(pid)]
        try:
            with self.registry.locked():
                os.kill(pid, signal.SIGSTOP)
                until(lambda: subprocess.check_output(look, text=True).startswith("T"), what="it is stopped")
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill_monitor(self) -> None:
        known = monitor_process.look(self.parts.layout)
        assert known is not None
        os.kill(known.process.pid, signal.SIGKILL)
        until(lambda: not process_identity.alive(known.process))

    def kill_broker(self) -> None:
        """Kill the server of now; the monitor may start another one at once."""
        running = until(lambda: nats_server.running(self.parts.layout.broker), what="a broker runs")
        os.kill(running.pid, signal.SIGKILL)
        until(lambda: process_identity.start_time(running.pid) is None)

    def clean(self) -> None:
        """End everything that was started here, each by its proven identity."""
        for gate in self._gates:
            gate.open()
        mam = self.parts
        if not mam.layout.database.exists():
            return
        try:
            with mam.registry.view() as view:
                rows = view.sessions()
        except RegistryUnusable:
            rows = []  # a test's doing
        for session in rows:
            lifecycle.stop(mam, session.name, force=True)
        monitor_process.end(mam.layout)
        nats_server.stop(mam.layout.broker)
        if self.env["MAM_MUX"] == "tmux":
            subprocess.run(["tmux", "-L", mam.mux_server("tmux"), "kill-server"], capture_output=True)
