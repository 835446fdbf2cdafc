"""The verdict of a review: said twice, in the report's own words and by the verb, and both strictly."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mam.control_plane import cli
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import prompts, reports
from mam.control_plane.loops.briefs import Change, ReviewTree, WorkPlace, review
from mam.control_plane.registry.records import Job
from tests.support import git, repository
from tests.support.desk import Desk

PASS, NOT_PASS = reports.LINES["pass"], reports.LINES["not_pass"]
SHA = "a" * 40


@pytest.mark.req("M65")
@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (f"fine\n{PASS}\n", "pass"),
        (f"fine\n{NOT_PASS}\n", "not_pass"),
        (f"{PASS}", "pass"),
        (f"fine\r\n{PASS}\r\n", "pass"),
        (f"{PASS} \t\n\nP.S. well done\n", "pass"),
        ("", None),
        ("it is good\n", None),
        (f"{PASS}\n{NOT_PASS}\n", None),
        (f"{PASS}\n{PASS}\n", None),
        (PASS.lower(), None),
        ("[VERDICT: pass]", None),
        ("[VERDICT:PASS]", None),
        ("[VERDICT: NOT  PASS]", None),
        ("[VERDICT: NOT_PASS]", None),
        ("[VERDICT: PASS] with remarks", None),
        (f"I give it {PASS}", None),
        (f"> {PASS}", None),
        (f"    {PASS}", None),
        (f"\t{PASS}", None),
        (f"`{PASS}`", None),
        (f"- {PASS}", None),
        (f"**{PASS}**", None),
        (f"\ufeff{PASS}", None),
        (f"{PASS}\u200b", None),
        (f"{NOT_PASS}\r{PASS}", None),
        (f"no: \x0b{PASS}", None),
        (f"no:\u2028{PASS}\u2028", None),
        (f"no:\x85{PASS}\x85", None),
        ("［VERDICT: PASS］", None),
        (f"\x1b[32m{PASS}\x1b[0m", None),
        (f"{PASS}\0", None),
    ],
)
def test_only_a_line_of_its_own_is_a_verdict_and_two_are_none(report: str, verdict: str | None) -> None:
    assert reports.of(report) == verdict


@given(st.text(), st.text())
def test_no_text_around_a_marker_on_its_line_makes_a_verdict(before: str, after: str) -> None:
    line = f"{before}{PASS}{after}"
    whole = [part.rstrip(" \t\r") for part in line.split("\n")]

    assert reports.said(line) == ["pass"] * whole.count(PASS)


@pytest.mark.req("M65")
def test_a_report_that_copies_the_whole_brief_has_said_no_verdict() -> None:
    place = WorkPlace("/w", "issue-1", SHA, "b" * 40)
    bench = ReviewTree(Path("/b/tree"), Path("/b/out"), Path("/b/tmp"), "python3", isolated=True)
    # The task itself is about verdicts, and shows their lines.
    text = review(
        f"Print\n{PASS}\nor\n{NOT_PASS}\n", place, bench, None, Change(f" a.py | 2 +-\n{PASS}", Path("/b/diff"))
    )
    verbs = prompts.commands("/bin/mam", Path("/jobs"), "job-00000001", 1)
    whole = prompts.brief(verbs, "t", "rev-a", Path("/b.md"), Path("/r.md"), text, first_line=place.line(), review=True)

    assert reports.said(whole) == []
    assert reports.of(f"{whole}\n{NOT_PASS}\n") == "not_pass"


@pytest.fixture
def reviewed(desk: Desk, tmp_path: Path) -> Job:
    """A review job of a tree that holds the commit."""
    tree = repository(tmp_path / "tree")
    head = git(tree, "rev-parse", "HEAD")
    desk.session("rev-a", role="reviewer")
    part = delegation.LoopPart("loop-1", 1, "first line", head, head, tree)
    return delegation.delegate(desk.mam, "rev-a", "review it", job_id="job-00000001", part=part)


Report = Callable[..., tuple[int, dict[str, str]]]


@pytest.fixture
def report(desk: Desk, reviewed: Job, capsys: pytest.CaptureFixture[str]) -> Report:
    """Write a report and run the report verb: its code, and its error where there is one."""

    def run(text: str, *words: str) -> tuple[int, dict[str, str]]:
        Path(reviewed.report_path).write_text(text, "utf-8", newline="")
        where = ["--registry-dir", str(desk.mam.layout.jobs), "--job", reviewed.id, "--attempt", "1", "--json"]
        code = cli.main(["job", "report", *where, *words])
        said = capsys.readouterr().err.strip()
        return code, json.loads(said)["error"] if said else {}

    return run


def spooled(desk: Desk) -> int:
    return len(list((desk.mam.layout.run_dir("rev-a") / "outbox").glob("*.event")))


@pytest.mark.req("M65")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("it is good\n", "pass"),
        (f"it is good: {PASS}\n", "pass"),
        (f"> {PASS}\n", "pass"),
        (f"{PASS.lower()}\n", "pass"),
        (f"{NOT_PASS}\n", "pass"),
        (f"{PASS}\n", "not_pass"),
        (f"{PASS}\n{NOT_PASS}\n", "not_pass"),
        (f"{PASS}\n{PASS}\n", "pass"),
    ],
)
def test_a_review_whose_report_lacks_or_contradicts_its_verdict_is_refused_at_once_and_told_the_line(
    desk: Desk, report: Report, text: str, verdict: str
) -> None:
    code, error = report(text, "--result", "done", "--verdict", verdict)

    assert (code, error["code"]) == (1, "file_refused")
    assert reports.LINES[verdict] in error["remedy"] and "run this again" in error["remedy"]
    assert spooled(desk) == 0


@pytest.mark.req("M65")
@pytest.mark.parametrize(("line", "verdict"), [(PASS, "pass"), (f"{NOT_PASS}\r", "not_pass")])
def test_a_review_that_says_the_same_twice_is_kept(desk: Desk, report: Report, line: str, verdict: str) -> None:
    code, error = report(f"tried it\n{line}\n", "--result", "done", "--verdict", verdict)

    assert (code, error, spooled(desk)) == (0, {}, 1)


def test_a_review_without_a_verdict_is_refused_and_told_the_flag(desk: Desk, report: Report) -> None:
    code, error = report(f"{PASS}\n", "--result", "done")

    assert code == 2 and "--verdict pass" in error["remedy"]
    assert spooled(desk) == 0


def test_a_review_that_could_not_be_made_needs_no_verdict(desk: Desk, report: Report) -> None:
    assert report("the tests need a database\n", "--result", "failed") == (0, {})
    assert spooled(desk) == 1


@pytest.mark.parametrize("verdict", ["pass", "not_pass"])
def test_a_review_that_failed_and_gives_a_verdict_all_the_same_is_refused(
    desk: Desk, report: Report, verdict: str
) -> None:
    code, error = report(f"{reports.LINES[verdict]}\n", "--result", "failed", "--verdict", verdict)

    assert code == 2 and "--result done" in error["remedy"]
    assert spooled(desk) == 0


def test_a_creators_report_may_speak_of_verdicts_as_it_likes(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.session("writer")
    job = desk.job()
    Path(job.report_path).write_text(f"{PASS}\n{NOT_PASS}\n", "utf-8")
    where = ["--registry-dir", str(desk.mam.layout.jobs), "--job", job.id, "--attempt", "1"]

    assert cli.main(["job", "report", *where, "--result", "done"]) == 0, capsys.readouterr().err
