"""A control root with one session that has no pane: its runner is a carrier that tests start and kill."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from mam.broker.envelope import keys
from mam.broker.envelope.payloads import now_ms
from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.registry import audit
from mam.control_plane.registry.records import Session
from mam.control_plane.sessions import runtime
from mam.wrappers.runner import launch_spec
from mam.wrappers.runner.launch_spec import LaunchSpec
from tests.support import Root

HERE = Path(__file__).parent
JOB = "job-00000001"


class Road:
    """Producer, carrier, broker and monitor of one job, each a process that can be killed."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.mam = root.parts
        self._make_session()
        self.job = delegation.delegate(self.mam, "writer", "say much", job_id=JOB)
        self.outbox = self.mam.layout.run_dir("writer") / "outbox"
        self._answers = root.path.parent / "answers"
        self._answers.touch()
        self.children: list[subprocess.Popen[str]] = []
        self.producers: list[subprocess.Popen[str]] = []
        self.shares: list[tuple[int, int]] = []
        self.carrier = self.carry()

    def _make_session(self) -> None:
        layout = self.mam.layout
        run_dir = layout.run_dir("writer")
        (run_dir / "outbox").mkdir(parents=True)
        os.mkfifo(run_dir / "wake")
        keys.create(layout.session_key("writer"))
        now = now_ms()
        fixed = ("writer", "scripted", "creator", "running", 1, "1", "headless", "none", "", str(layout.root), "", "[]")
        with self.mam.registry.transaction() as tx:
            row = Session(*fixed, json.dumps(layout.binding()), None, now, now)
            tx.put(replace(row, pid=os.getpid(), pid_start=_start(), boot_id=_boot()))
        spec = LaunchSpec(
            session="writer",
            fingerprint=self.mam.fingerprint,
            incarnation="1",
            agent="scripted",
            argv=[],
            env={},
            cwd=str(layout.root),
            mux="headless",
            mux_server="none",
            run_dir=str(run_dir),
            session_key=str(layout.session_key("writer")),
            log="",
            mam=self.mam.command,
            heartbeat_s=10,
            broker=runtime.broker_ref(self.mam),
        )
        launch_spec.write(spec, run_dir / "launch.json")

    def carry(self) -> "subprocess.Popen[str]":
        argv = [sys.executable, str(HERE / "carrier.py"), str(self.outbox.parent / "launch.json")]
        self.carrier = subprocess.Popen(argv, stdout=-3, stderr=-3, text=True)
        self.children.append(self.carrier)
        return self.carrier

    def speak(self, count: int, *, speakers: int = 4) -> None:
        """Let *speakers* agents say *count* events, each its share, at once: verbs of one agent overlap as well."""
        share = count // speakers
        self.shares = [(n * share, (n + 1) * share) for n in range(speakers)]
        self.producers = [self._produce(*share) for share in self.shares]

    def _produce(self, first: int, last: int) -> "subprocess.Popen[str]":
        key = str(self.mam.layout.job_key(JOB))
        argv = [sys.executable, str(HERE / "producer.py"), str(self.outbox), key, JOB, str(first), str(last)]
        with self._answers.open("a") as file:
            child = subprocess.Popen(argv, stdout=file, text=True)
        self.children.append(child)
        return child

    def spoken(self) -> None:
        """Wait until all speakers have said their share."""
        assert [producer.wait(120) for producer in self.producers] == [0] * len(self.producers)

    def said(self) -> dict[str, int]:
        """The events whose verb has answered: their ids, and which number each was."""
        lines = [line.split() for line in self._answers.read_text().splitlines()]
        return {words[1]: int(words[0]) for words in lines if len(words) == 2 and len(words[1]) == 32}

    def recorded(self) -> list[str]:
        """Ids of the stored events of the job."""
        with self.mam.registry.view() as view:
            query = "SELECT id FROM events WHERE scope = ?"
            return [row[0] for row in view.connection.execute(query, (f"jobs/{JOB}",))]

    def count(self) -> int:
        """How many events are stored."""
        with self.mam.registry.view() as view:
            return view.last_event()

    def audited(self) -> list[str]:
        """Ids of the events that audit.jsonl names; fails where its chain is broken."""
        lines = list(audit.read(self.mam.layout.mam / "audit.jsonl"))
        assert [line for line in lines if line.damage] == []
        return [line.entry["event"]["id"] for line in lines if "event" in line.entry]

    def strike(self, what: str) -> None:
        """kill -9 one part, and bring it back as its user or its keeper would."""
        if what == "broker":
            self.root.kill_broker()
        elif what == "monitor":
            self.root.kill_monitor()
            monitor_process.ensure(self.mam, wait_s=60)
        elif what == "producer":
            self._strike_producer()
        else:
            self.carrier.send_signal(signal.SIGKILL)
            self.carrier.wait()
            self.carry()

    def _strike_producer(self) -> None:
        """kill -9 a speaker in the middle; who called its verb calls it again with what got no answer."""
        index = next((n for n, producer in enumerate(self.producers) if producer.poll() is None), None)
        if index is None:
            return  # all is said
        self.producers[index].kill()
        self.producers[index].wait()
        first, last = self.shares[index]
        done = [number for number in self.said().values() if first <= number < last]
        self.producers[index] = self._produce(max(done, default=first - 1) + 1, last)

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()


def _start() -> str:
    return process_identity.me().start


def _boot() -> str:
    return process_identity.boot_id()
