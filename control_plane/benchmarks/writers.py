"""Whether many processes that write the registry at once lose anything, and how long they take."""

import multiprocessing
import time
from pathlib import Path

from mam.control_plane.benchmarks import suite
from mam.control_plane.benchmarks.suite import Figure
from mam.control_plane.registry.transactions import Registry


def writers(count: int = 50, updates: int = 40) -> list[Figure]:
    """Processes that each update the registry in transactions of their own; every update is counted afterwards."""
    with suite.place() as mam:
        context = multiprocessing.get_context("spawn")
        folder = str(mam.layout.mam)
        children = [context.Process(target=_update, args=(folder, f"w{n}", updates)) for n in range(count)]
        began = time.perf_counter()
        for child in children:
            child.start()
        for child in children:
            child.join()
        took_s = time.perf_counter() - began
        with mam.registry.view() as view:
            kept = view.connection.execute("SELECT count(*) FROM audit WHERE key LIKE 'w%'").fetchone()[0]
    lost = count * updates - kept
    value = f"{count} processes × {updates} updates: {lost} lost, {took_s:.1f} s (starts included)"
    return [Figure("registry, writers at once", value, "0 lost", lost == 0)]


def _update(folder: str, name: str, times: int) -> None:
    own = Registry(Path(folder) / "registry.db", Path(folder) / "registry.lock", by=name)
    for n in range(times):
        with own.transaction() as tx:
            tx.set_meta(f"{name}-{n % 20}", str(n))
