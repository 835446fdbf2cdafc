"""Memory and open files of the long-lived processes, looked at every few seconds."""

import statistics
import threading
import time
from collections import defaultdict
from typing import NamedTuple

import psutil

from mam.broker.errors import MamError
from mam.broker.host import process_identity
from mam.broker.host.process_identity import ProcessId
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import LIVE
from mam.control_plane.sessions import runtime

EVERY_S = 3.0
MB = 2**20


class Sample(NamedTuple):
    at_s: float
    rss_mb: float
    open_files: int


class Trend(NamedTuple):
    """Medians of the first and the last quarter of some samples."""

    what: str
    lasted_s: float
    samples: int
    rss_mb: tuple[float, float]
    open_files: tuple[float, float]

    def text(self) -> str:
        return (
            f"{self.what:28} {self.lasted_s:6.0f} s {self.samples:5} samples"
            f"   RSS {self.rss_mb[0]:6.1f} -> {self.rss_mb[1]:6.1f} MB"
            f"   open files {self.open_files[0]:4.0f} -> {self.open_files[1]:4.0f}"
        )


class Sampler(threading.Thread):
    def __init__(self, mam: Mam) -> None:
        super().__init__(name="sampler", daemon=True)
        self._mam = mam
        self._halt = threading.Event()
        self._began = time.monotonic()
        self._lives: dict[tuple[str, ProcessId], list[Sample]] = defaultdict(list)

    def run(self) -> None:
        while not self._halt.wait(EVERY_S):
            for role, process in self._processes():
                try:
                    seen = psutil.Process(process.pid)
                    sample = Sample(time.monotonic() - self._began, seen.memory_info().rss / MB, seen.num_fds())
                except psutil.Error:
                    continue  # it was struck in this moment
                if process_identity.alive(process):
                    self._lives[role, process].append(sample)

    def halt(self) -> None:
        self._halt.set()
        self.join()

    def _processes(self) -> list[tuple[str, ProcessId]]:
        found: list[tuple[str, ProcessId]] = []
        known, running = monitor_process.look(self._mam.layout), nats_server.running(self._mam.layout.broker)
        broker = process_identity.of(running.pid) if running else None
        found += [("monitor", known.process)] if known else []
        found += [("broker", broker)] if broker else []
        try:
            with self._mam.registry.view() as view:
                runners = [runtime.runner_id(row) for row in view.sessions() if row.status in LIVE]
        except MamError:
            runners = []
        return found + [
            ("runner", runner) for runner in runners if runner is not None and process_identity.alive(runner)
        ]

    def trends(self) -> list[Trend]:
        """For each role: all its processes over the whole soak, and its longest life alone."""
        found = []
        for role in ("monitor", "broker", "runner"):
            lives = [samples for (of, _), samples in self._lives.items() if of == role]
            everything = sorted((sample for samples in lives for sample in samples), key=lambda sample: sample.at_s)
            longest = max(lives, key=len, default=[])
            for what, samples in ((f"{role}, all lives", everything), (f"{role}, longest life", longest)):
                if len(samples) >= 4:
                    found.append(_trend(what, samples))
        return found


def _trend(what: str, samples: list[Sample]) -> Trend:
    begins, ends = samples[0].at_s, samples[-1].at_s
    quarter = (ends - begins) / 4
    first = [sample for sample in samples if sample.at_s <= begins + quarter]
    last = [sample for sample in samples if sample.at_s >= ends - quarter]

    def medians(name: str) -> tuple[float, float]:
        begin, end = (statistics.median(float(getattr(s, name)) for s in part) for part in (first, last))
        return begin, end

    return Trend(what, ends - begins, len(samples), medians("rss_mb"), medians("open_files"))
