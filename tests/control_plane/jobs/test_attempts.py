"""Jobs that are tried again, archived, or answered with what was meant for an earlier attempt."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from mam.broker.envelope import topics
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.messaging.inbox import Inbox
from mam.control_plane.monitor import job_checks
from mam.control_plane.registry.records import Job
from tests.support import until
from tests.support.desk import Desk


def test_a_verdict_on_one_attempt_does_not_end_the_next(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    jobs.cancel(desk.mam, job.id)
    delegation.retry(desk.mam, job.id)

    job_checks.act(desk.mam.registry, [], [job_checks.PresumedEnd(job.id, 1, "lost", "its agent is gone")])

    assert desk.row(job.id).state == "queued"


def test_a_retry_that_fails_leaves_the_report_where_it_was(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.session()
    job = desk.job()
    desk.take(job.id, desk.report(job))

    def full(*_: Any) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(delegation, "write_record", full)
    with pytest.raises(OSError, match="no space"):
        delegation.retry(desk.mam, job.id)

    assert desk.row(job.id).state == "reported"
    assert Path(job.report_path).exists()


def test_a_report_that_became_a_fifo_holds_up_nobody(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    wire = desk.report(job)
    Path(job.report_path).unlink()
    os.mkfifo(job.report_path)

    assert desk.take(job.id, wire) == ["report_altered"]


def test_what_comes_while_a_job_is_archived_is_not_deleted_unseen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.session()
    job = desk.job()
    desk.take(job.id, desk.report(job))
    outcomes: list[str] = []
    late = desk.wire(job.id, "progress", {"note": "late"})

    def record() -> None:
        inbox = Inbox(desk.mam.registry, desk.keyring)  # as another process has one
        outcomes.extend(settling.outcome for settling in inbox.take([(topics.job(job.id), late)]))
        inbox.close()

    meanwhile = threading.Thread(target=record)
    real = jobs._export
    lock = str(desk.mam.layout.registry_lock)

    def waits_or_done() -> bool:
        opened = [file.path for file in psutil.Process().open_files()]
        return opened.count(lock) > 1 or not meanwhile.is_alive()

    def export(*args: Any) -> None:
        real(*args)
        meanwhile.start()
        until(waits_or_done, what="it waits for the registry's lock")

    monkeypatch.setattr(jobs, "_export", export)
    jobs.archive(desk.mam, job.id)
    meanwhile.join()

    assert outcomes[0] in ("expired", "unknown_job")
    with desk.mam.registry.view() as view:
        assert view.events(scope=topics.job(job.id)) == []


def test_an_archived_job_is_not_tried_again(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    desk.take(job.id, desk.report(job))
    jobs.archive(desk.mam, job.id)

    with pytest.raises(jobs.JobArchived):
        delegation.retry(desk.mam, job.id)

    assert desk.row(job.id).state == "reported"


def test_a_record_names_the_attempt_of_now(desk: Desk) -> None:
    desk.session()
    job: Job = desk.job()
    jobs.cancel(desk.mam, job.id)
    delegation.retry(desk.mam, job.id)

    assert json.loads((Path(job.folder) / "job.json").read_text())["attempt"] == 2
