"""The report of an attempt is given once: what is said again is the same, and what is said otherwise is refused."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.registry.records import Job
from tests.support import MAM, Root, Said, until

Report = Callable[..., Said]


@pytest.fixture
def reported(root: Root) -> Job:
    """A job whose agent started it and then leaves its report to the test."""
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    found: Job = root.job(job)
    return found


def command(root: Root, job: Job, *words: str) -> list[str]:
    where = ["--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job.id, "--attempt", str(job.attempt)]
    return ["job", "report", *where, *words, "--json"]


def say(root: Root, job: Job, text: str, *words: str) -> Said:
    Path(job.report_path).write_text(text)
    return root.mam(*command(root, job, *(words or ("--result", "done"))))


def events(root: Root, job: Job) -> list[dict[str, Any]]:
    return [event for event in root.events(f"jobs/{job.id}") if event["kind"] == "report"]


def test_a_second_report_with_another_text_is_refused_and_the_first_one_stays(root: Root, reported: Job) -> None:
    assert say(root, reported, "first\n").code == 0
    until(lambda: root.job(reported.id).state == "reported")

    said = say(root, reported, "second\n")

    aside = Path(reported.report_path).with_name("report-other.attempt-1.md")
    assert (said.code, said.error["code"]) == (1, "reported_otherwise") and str(aside) in said.error["remedy"]
    assert (Path(reported.report_path).read_text(), aside.read_text()) == ("first\n", "second\n")
    assert str(aside.with_suffix(".2.md")) in say(root, reported, "third\n").error["remedy"]
    assert (aside.read_text(), aside.with_suffix(".2.md").read_text()) == ("second\n", "third\n")
    assert root.mam("verify", reported.id).code == 0
    assert len(events(root, reported)) == 1


def test_a_second_report_from_a_file_of_its_own_is_refused_and_that_file_stays(root: Root, reported: Job) -> None:
    assert say(root, reported, "first\n").code == 0
    other = root.path / "other.md"
    other.write_text("second\n")

    said = root.mam(*command(root, reported, "--result", "done", "--file", str(other)))

    assert said.error["code"] == "reported_otherwise" and str(other.parent) not in said.error["remedy"]
    assert (Path(reported.report_path).read_text(), other.read_text()) == ("first\n", "second\n")


def test_a_report_with_the_same_text_and_another_result_is_refused(root: Root, reported: Job) -> None:
    assert say(root, reported, "text\n").code == 0

    said = say(root, reported, "text\n", "--result", "failed")

    assert said.error["code"] == "reported_otherwise" and "kept at" not in said.error["remedy"]
    until(lambda: root.job(reported.id).state == "reported")
    assert root.job(reported.id).result == "done"


def test_the_same_report_again_is_taken_and_changes_nothing(root: Root, reported: Job) -> None:
    assert say(root, reported, "text\n").code == 0
    until(lambda: root.job(reported.id).state == "reported")
    before = root.job(reported.id)

    assert say(root, reported, "text\n").code == 0

    until(lambda: [event["outcome"] for event in events(root, reported)] == ["accepted", "late"])
    assert root.job(reported.id) == before
    assert root.mam("verify", reported.id).code == 0


def test_the_next_attempt_reports_what_it_likes(root: Root, reported: Job) -> None:
    assert say(root, reported, "first\n", "--result", "failed").code == 0
    until(lambda: root.job(reported.id).state == "reported")
    root.ok("job", "retry", reported.id)
    again = root.job(reported.id)

    assert say(root, again, "second\n").code == 0
    assert say(root, again, "third\n").error["code"] == "reported_otherwise"
    until(lambda: root.job(reported.id).result == "done")
    assert root.mam("verify", reported.id).code == 0


def test_of_two_reports_at_once_one_counts_whole(root: Root, reported: Job) -> None:
    children = []
    for number in range(6):
        path = root.path / f"{number}.md"
        path.write_text(f"{number}\n")
        words = [MAM, *command(root, reported, "--result", "done", "--file", str(path))]
        children.append(subprocess.Popen(words, cwd=root.path, stdout=-3, stderr=-3))

    assert sorted(child.wait(120) for child in children) == [0, 1, 1, 1, 1, 1]
    until(lambda: root.job(reported.id).state == "reported")
    assert (root.job(reported.id).detail, root.mam("verify", reported.id).code) == (None, 0)


@pytest.mark.parametrize("point", ["spool.fsync", "folder.sync"])
def test_who_dies_while_it_reports_has_given_this_report_and_no_other(root: Root, reported: Job, point: str) -> None:
    Path(reported.report_path).write_text("first\n")
    words = command(root, reported, "--result", "done")
    assert root.mam(*words, env={"MAM_FAULT": f"verb@{point}:1:crash"}).code == -9

    said = say(root, reported, "second\n", "--result", "failed")

    assert said.error["code"] == "reported_otherwise"
    until(lambda: root.job(reported.id).state == "reported")
    assert (root.job(reported.id).result, Path(reported.report_path).read_text()) == ("done", "first\n")
    assert root.mam("verify", reported.id).code == 0


def test_what_was_written_over_a_report_is_set_aside_also_where_another_file_is_reported(
    root: Root, reported: Job
) -> None:
    assert say(root, reported, "first\n").code == 0
    Path(reported.report_path).write_text("over it\n")
    other = root.path / "other.md"
    other.write_text("second\n")

    said = root.mam(*command(root, reported, "--result", "done", "--file", str(other)))

    assert said.error["code"] == "reported_otherwise" and "report-other.attempt-1.md" in said.error["remedy"]
    assert Path(reported.report_path).read_text() == "first\n"
    assert Path(reported.report_path).with_name("report-other.attempt-1.md").read_text() == "over it\n"


def test_a_report_with_the_same_text_and_another_verdict_is_refused(root: Root, reported: Job) -> None:
    assert say(root, reported, "text\n", "--result", "done", "--verdict", "pass").code == 0

    said = say(root, reported, "text\n", "--result", "done", "--verdict", "not_pass")

    assert said.error["code"] == "reported_otherwise"
    until(lambda: root.job(reported.id).state == "reported")
    assert root.job(reported.id).verdict == "pass"


def test_a_report_of_an_earlier_attempt_is_never_put_in_the_place_of_the_next_ones(root: Root, reported: Job) -> None:
    root.ok("job", "cancel", reported.id)
    root.ok("job", "retry", reported.id)
    late = root.path / "late.md"
    late.write_text("too late\n")

    assert root.mam(*command(root, reported, "--result", "done", "--file", str(late))).code == 0

    until(lambda: [event["outcome"] for event in events(root, reported)] == ["stale_attempt"])
    assert not Path(reported.report_path).exists()
