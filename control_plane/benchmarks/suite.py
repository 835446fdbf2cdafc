"""
What the benchmarks share: a control root that is thrown away, rows to fill it, the line that each of them yields.

A benchmark raises NotMeasured where the thing that it measures did not happen: a figure always stands for work that
was done.
"""

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.nats import process as nats_server
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import create, monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import Attempt, Job, Session
from mam.control_plane.sessions import lifecycle


class NotMeasured(MamError):
    """The benchmark could not measure: something did not happen that its figures rest on."""

    what: str
    why: str

    code = "not_measured"
    message = "the benchmark of {what} measured nothing: {why}"
    remedy_text = "run it again on a quiet machine; `mam doctor` tells what is broken"


class Figure(NamedTuple):
    """One line of the table: what was measured, its value and its budget in words, and whether it was met."""

    what: str
    value: str
    budget: str
    met: bool


@contextmanager
def place(**environ: str) -> Generator[Mam]:
    """A control root of its own for one measurement; everything that was started in it is ended."""
    with tempfile.TemporaryDirectory(prefix="mam-bench-") as folder:
        path = Path(folder) / "root"
        path.mkdir()
        settings = config.load()
        values = {k: v for k, v in settings.environ.items() if not k.startswith("MAM_") and k not in config.BINDING}
        settings = config.Settings({**values, **environ}, {**values, **environ}, path)
        mam = Mam(settings, layouts.layout(settings, str(path)), by="bench")
        create.make(mam.layout, mam.settings.environ, in_git=False)
        try:
            yield mam
        finally:
            with mam.registry.view() as view:
                names = [session.name for session in view.sessions() if session.pane]
            for name in names:
                lifecycle.stop(mam, name, force=True)
            monitor_process.end(mam.layout)
            nats_server.stop(mam.layout.broker)


def session_row(name: str, mam: Mam, **more: object) -> Session:
    """A row of a session that runs, by word alone: there is no process and no pane."""
    now = now_ms()
    binding, server_folder = json.dumps(mam.layout.binding()), str(mam.layout.run / "headless")
    fixed = (
        name,
        "scripted",
        "creator",
        "running",
        1,
        "1",
        "headless",
        server_folder,
        "",
        str(mam.layout.root),
        "",
        "[]",
    )
    return Session(*fixed, binding, None, now, now, **more)  # type: ignore[arg-type]


def job_row(job_id: str, mam: Mam, session: str, state: str) -> Job:
    """A row of a job in its first attempt."""
    now = now_ms()
    folder = str(mam.layout.jobs / job_id)
    return Job(job_id, "mam/0/jobs", "bench", session, state, 1, folder, "0" * 64, 120, 60, 3600, 6, now, now)


def fill(mam: Mam, session_count: int, job_count: int) -> None:
    """Rows only: what a reader has to go through."""
    with mam.registry.transaction() as tx:
        for n in range(session_count):
            tx.put(session_row(f"agent-{n}", mam))
        for n in range(job_count):
            job = job_row(f"job-{n:08d}", mam, f"agent-{n % max(1, session_count)}", "reported")
            tx.put(job)
            tx.put(Attempt(job.id, 1, job.session, job.created_at, started_at=job.created_at))
