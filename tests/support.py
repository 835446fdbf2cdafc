"""What many tests need: a control root driven as a user drives it, and waiting for things to become true."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mam.broker.bus.mqtt import MqttBus
from mam.broker.envelope import topics
from mam.broker.host import process_identity
from mam.broker.nats import process as nats_server
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.database import RegistryUnusable
from mam.control_plane.registry.transactions import Registry
from mam.control_plane.sessions import lifecycle

MAM = str(Path(sys.executable).parent / "mam")
FULL = bool(os.environ.get("MAM_TEST_FULL"))
FIGURES = os.environ.get("MAM_TEST_FIGURES")


def size(usual: int, full: int) -> int:
    """How much of something: *usual* in `make test`, *full* in `make reliability` (MAM_TEST_FULL=1)."""
    return full if FULL else usual


def until(true: Callable[[], Any], what: str = "", *, within_s: float = 120.0) -> Any:
    """Wait until *true* returns something true and return that; fail where it does not."""
    deadline = time.monotonic() + within_s
    while True:
        found = true()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"did not become true within {within_s:g} s: {what or true}")
        time.sleep(0.02)


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The typed error that `--json` put on standard error."""
        return json.loads(self.err.strip().splitlines()[-1])["error"]


def run_mam(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", timeout_s: float = 60
) -> Said:
    """Run the real `mam` in a process of its own."""
    environ = {**os.environ, **(env or {})}
    done = subprocess.run(
        [MAM, *words],
        cwd=cwd,
        env=environ,
        input=stdin.encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=timeout_s,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def git(cwd: Path, *words: str) -> str:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *words], cwd=cwd, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def repository(path: Path) -> Path:
    """A real repository with one commit."""
    path.mkdir(parents=True)
    git(path, "init", "-q")
    (path / "README").write_text("a project\n", "utf-8")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    return path


class Root:
    """A control root in a real repository."""

    def __init__(self, path: Path, *, mux: str) -> None:
        self.path = path
        self.env: dict[str, str] = {"MAM_MUX": mux, "MAM_HEARTBEAT_S": "1"}

    def make(self) -> None:
        repository(self.path)
        assert self.mam("init").code == 0

    def mam(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, **more: Any) -> Said:
        return run_mam(*words, cwd=cwd or self.path, env={**self.env, **(env or {})}, **more)

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
        return Mam(settings, config.layout(settings, str(self.path)), by="test")

    @property
    def registry(self) -> Registry:
        return self.parts.registry

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

    def job(self, job_id: str) -> Any:
        with self.registry.view() as view:
            return view.job(job_id)

    def session(self, name: str) -> Any:
        with self.registry.view() as view:
            return view.session(name)

    def events(self, scope: str | None = None) -> list[dict[str, Any]]:
        with self.registry.view() as view:
            return view.events(scope=scope, limit=100_000)

    def viewer(self) -> MqttBus:
        """A bus as the user that may only look; the caller closes it."""
        layout = self.parts.layout
        running = nats_server.running(layout.broker)
        assert running is not None
        return MqttBus(
            nats_server.endpoint(layout.secrets, running.port, "viewer"), topics.root(self.parts.fingerprint)
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
