"""Reports, retries and archives that die, or that the disk refuses, at any of their files: the next call converges."""

from pathlib import Path

import pytest

from mam.control_plane.registry.records import Job
from tests.support import Root, until
from tests.support.strikes import HANG, dies, is_refused, struck


@pytest.fixture
def begun(root: Root) -> Job:
    """A job whose agent began it and leaves its report to the test."""
    root.agent("writer", *HANG)
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    Path(root.job(job).report_path).write_text("first\n")
    found: Job = root.job(job)
    return found


def report(root: Root, job: Job, text: str = "first\n") -> list[str]:
    (root.path / "report.md").write_text(text)
    where = ["--registry-dir", str(root.parts.layout.jobs), "--job", job.id, "--attempt", str(job.attempt)]
    return ["job", "report", *where, "--result", "done", "--file", str(root.path / "report.md")]


@pytest.mark.parametrize("point", ["report.fsync:1", "report.rename:1", "report.rename:2", "report.rename:3"])
def test_a_report_that_dies_or_is_refused_at_any_of_its_files_is_said_by_the_next_call(
    root: Root, begun: Job, point: str
) -> None:
    is_refused(root, f"verb@{point}", *report(root, begun))
    dies(root, f"verb@{point}", *report(root, begun))

    assert root.mam(*report(root, begun)).code == 0

    until(lambda: root.job(begun.id).state == "reported")
    assert (root.job(begun.id).result, root.mam("verify", begun.id).code) == ("done", 0)


def test_a_refused_report_that_dies_on_its_way_aside_leaves_both_texts(root: Root, begun: Job) -> None:
    assert root.mam(*report(root, begun)).code == 0
    until(lambda: root.job(begun.id).state == "reported")
    place = Path(begun.report_path)
    place.write_text("second\n")
    words = report(root, begun, "second\n")

    is_refused(root, "verb@report.other:1", *words)
    dies(root, "verb@report.other:1", *words)

    assert root.mam(*words, "--json").error["code"] == "reported_otherwise"
    assert place.read_text() == "first\n" and root.mam("verify", begun.id).code == 0
    assert place.with_name("report-other.attempt-1.md").read_text() == "second\n"


def test_a_retry_that_dies_while_it_is_undone_leaves_the_report_where_it_is_found(root: Root) -> None:
    root.agent()
    job = root.delegate("writer", "do it", "--wait")

    struck(root, "cli@registry.commit:1:ENOSPC,cli@retry.undo:1:crash", "job", "retry", job)

    assert root.mam("verify", job).code == 0
    assert root.mam("job", "retry", job).code == 0
    until(lambda: root.job(job).state == "reported")
    assert (root.job(job).attempt, root.mam("verify", job).code) == (2, 0)


def test_an_archive_that_dies_or_is_refused_keeps_every_event_until_they_lie_in_its_file(root: Root) -> None:
    root.agent()
    job = root.delegate("writer", "do it", "--wait")

    for point in ("archive.fsync", "archive.rename", "folder.sync"):
        is_refused(root, f"cli@{point}:1", "job", "archive", job)
        dies(root, f"cli@{point}:1", "job", "archive", job)

    assert root.mam("verify", job).code == 0, "its key and its events are there"
    assert root.mam("job", "archive", job).code == 0
    lines = (Path(root.job(job).folder) / "events.jsonl").read_text().splitlines()
    assert len(lines) == 3 and root.events(f"jobs/{job}") == []
