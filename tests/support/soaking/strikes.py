"""kill -9 at random, by seed: what is struck when is fixed beforehand; which process that is, the registry says."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import psutil

from mam.broker.errors import MamError
from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import LIVE, Session
from mam.control_plane.sessions import runtime

WEIGHTS = {"broker": 12, "monitor": 14, "runner": 18, "agent": 18, "pane": 12, "tmux": 6, "verb": 12, "producer": 8}
STEADY_FROM = 0.6  # from here on broker and monitor are left alone, so that their memory can be watched for long
AT_ONCE = 0.15  # how many come together with the one before
VERB_WITHIN_S = 3.0
SPARED = 2  # the first agents are never struck themselves: their runners show what a long life costs


class Strike(NamedTuple):
    at_s: float
    what: str
    who: int  # which agent, where *what* is a part of one
    delay_s: float  # how far a producer gets


def plan(seed: int, length_s: float, a_minute: float, agents: int) -> list[Strike]:
    """The strikes of one soak, in their order."""
    dice = random.Random(f"{seed}/strikes")
    strikes, at_s = [], 2.0
    while (at_s := at_s + (0.0 if dice.random() < AT_ONCE else dice.expovariate(a_minute / 60))) < length_s:
        what = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        who, delay_s = dice.randrange(SPARED, agents), round(dice.uniform(0.02, 0.5), 3)
        if at_s < length_s * STEADY_FROM or what not in ("broker", "monitor"):
            strikes.append(Strike(round(at_s, 2), what, who, delay_s))
    return strikes


class Striker(threading.Thread):
    """Strikes as planned, from a thread of its own: also in the middle of a resume or a delegate."""

    def __init__(self, mam: Mam, strikes: list[Strike], agents: list[str], timeline: Path) -> None:
        super().__init__(name="striker", daemon=True)
        self._mam, self._strikes, self._agents, self._timeline = mam, strikes, agents, timeline
        self._began = time.monotonic()
        self._halt = threading.Event()
        self.producer_dies_after_s: list[float] = []  # taken by the orchestrator's next delegate
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        for strike in self._strikes:
            if self._halt.wait(max(0.0, self._began + strike.at_s - time.monotonic())):
                return
            try:
                hit = self._strike(strike)
            except (MamError, OSError, psutil.Error) as error:
                hit = f"missed: {error}"
            if not hit.startswith("missed"):
                self.done[strike.what] += 1
            self.note({**strike._asdict(), "hit": hit})

    def halt(self) -> None:
        self._halt.set()
        self.join()

    def note(self, what: dict[str, object]) -> None:
        with self._timeline.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"t": round(time.monotonic() - self._began, 2), **what}) + "\n")

    def _strike(self, strike: Strike) -> str:
        layout = self._mam.layout
        if strike.what == "producer":
            self.producer_dies_after_s.append(strike.delay_s)
            return f"the next delegate dies after {strike.delay_s} s"
        if strike.what == "broker":
            running = nats_server.running(layout.broker)
            return _kill(process_identity.of(running.pid) if running else None)
        if strike.what == "monitor":
            known = monitor_process.look(layout)
            return _kill(known.process if known else None)
        if strike.what == "tmux":
            return _kill(tmux_server(self._mam))
        name = self._agents[strike.who]
        if strike.what == "verb":
            return self._verb(strike.who)
        with self._mam.registry.view() as view:
            session = view.session(name)
        if session is None or session.status not in LIVE:
            return f"missed: {name} is not alive"
        return f"{name}: {_kill(self._part(session, strike.what))}"

    def _part(self, session: Session, what: str) -> ProcessId | None:
        if what == "agent":
            return runtime.agent_id(session)
        if what == "pane" and session.mux == "headless":
            return pane_host(session)
        return runtime.runner_id(session)  # a tmux pane has no process but its runner

    def _verb(self, first: int) -> str:
        """Kill an agent's own `mam job …` while it runs; the agent itself lives on."""
        deadline = time.monotonic() + VERB_WITHIN_S
        while time.monotonic() < deadline and not self._halt.is_set():
            with self._mam.registry.view() as view:
                rows = {row.name: row for row in view.sessions()}
            for name in self._agents[first:] + self._agents[:first]:
                agent = runtime.agent_id(rows[name]) if name in rows else None
                for child in (
                    psutil.Process(agent.pid).children(recursive=True)
                    if agent and process_identity.alive(agent)
                    else []
                ):
                    words = child.cmdline()
                    if self._mam.command in words and "job" in words:
                        return f"{name}: {_kill(process_identity.of(child.pid))} {' '.join(words[2:4])}"
            time.sleep(0.02)
        return "missed: no verb ran"


def pane_host(session: Session) -> ProcessId | None:
    """Who holds the terminal of a headless pane."""
    try:
        state = json.loads((Path(session.mux_server) / session.pane / "state.json").read_text("utf-8"))
        return ProcessId(int(state["host"]), str(state["host_start"]), str(state["boot"]))
    except (OSError, ValueError, KeyError):
        return None


def tmux_server(mam: Mam) -> ProcessId | None:
    """The tmux server of this control root."""
    argv = ["tmux", "-L", mam.mux_server("tmux"), "display-message", "-p", "#{pid}"]
    pid = subprocess.run(argv, capture_output=True).stdout.strip()
    return process_identity.of(int(pid)) if pid.isdigit() else None


def _kill(process: ProcessId | None) -> str:
    if process is None or not process_identity.alive(process):
        return "missed: it does not run"
    os.kill(process.pid, signal.SIGKILL)
    return f"killed pid {process.pid}"
