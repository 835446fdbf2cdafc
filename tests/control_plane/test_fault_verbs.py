"""Verbs that die, or that the disk refuses, at steps that have no row of the scorecard: the second run converges."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.broker import spool
from mam.broker.host import fault_points, rotated_log
from mam.control_plane.registry.records import Job
from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees.prepare import WorktreeRequest
from tests.support import Root, Said, git, repository, run_mam, until

HANG = [{"started": {}}, {"hang": {}}]


def struck(root: Root, fault: str, *words: str) -> Said:
    return root.mam(*words, "--json", env={"MAM_FAULT": fault})


def dies(root: Root, fault: str, *words: str) -> None:
    assert struck(root, f"{fault}:crash", *words).code == -signal.SIGKILL, f"{fault} was not reached"


def is_refused(root: Root, fault: str, *words: str) -> None:
    said = struck(root, f"{fault}:ENOSPC", *words)
    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert "No space left" in said.err, "it was refused for another reason"


@pytest.fixture
def armed() -> Iterator[None]:
    """Faults of this process, gone afterwards."""
    yield
    fault_points.arm("", "test")


# -- roots, monitors, logs ---------------------------------------------------------------------------


def test_an_init_that_dies_or_is_refused_before_its_database_is_in_place_can_be_said_again(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    died = run_mam("init", cwd=place, env={"MAM_FAULT": "cli@database.install:1:crash"})
    refused = run_mam("init", "--json", cwd=place, env={"MAM_FAULT": "cli@database.install:1:ENOSPC"})

    assert (died.code, refused.code) == (-signal.SIGKILL, 1) and refused.error["code"] != "internal"
    assert run_mam("init", cwd=place).code == 0
    assert run_mam("doctor", cwd=place).code == 0
    assert [path.name for path in (place / ".mam").iterdir() if path.name.startswith(".registry")] == []


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_monitor_that_dies_between_the_files_of_its_broker_is_followed_by_one_that_runs(root: Root, nth: int) -> None:
    root.mam("up", env={"MAM_FAULT": f"monitor@private.rename:{nth}:crash"})

    assert root.mam("up").code == 0
    root.agent()
    assert root.mam("job", "wait", root.delegate()).code == 0


@pytest.mark.parametrize("role", ["runner", "pane-host"])
def test_a_note_that_is_refused_once_ends_nobody(root: Root, role: str) -> None:
    root.env["MAM_FAULT"] = f"{role}@note.rename:2:ENOSPC"
    root.agent()
    del root.env["MAM_FAULT"]

    assert root.mam("job", "wait", root.delegate()).code == 0
    assert root.session("writer").status == "running"


def test_a_runner_that_dies_while_it_notes_the_open_job_is_followed_by_one_that_says_so(root: Root) -> None:
    root.env["MAM_FAULT"] = "runner@note.rename:3:crash"
    root.agent("writer", *HANG)
    del root.env["MAM_FAULT"]
    job = root.delegate()
    until(lambda: root.session("writer").status == "ended")

    assert root.mam("agent", "resume", "writer").code == 0

    until(lambda: root.job(job).state == "lost", within_s=120)
    assert f"mam job retry {job}" in root.ok("why", job)["next"]


def test_what_cannot_be_set_aside_stays_where_it_is(tmp_path: Path, armed: None) -> None:
    item, log = tmp_path / "outbox" / "1-a.event", tmp_path / "log"
    item.parent.mkdir()
    item.write_bytes(b"x")
    log.write_bytes(b"x" * 10)
    entry = spool.SpoolEntry(item, "a", beat=False)

    for name, what, where, act in (
        ("spool.bury", item, tmp_path / "dead" / item.name, lambda: spool.bury(entry, tmp_path / "dead")),
        ("log.aside", log, tmp_path / "log.1", lambda: rotated_log.set_aside(log, limit_bytes=1)),
    ):
        fault_points.arm(f"{name}:1:ENOSPC", "test")
        with pytest.raises(OSError, match="No space"):
            act()
        assert what.exists() and not where.exists()
        act()
        assert where.exists() and not what.exists()


# -- jobs --------------------------------------------------------------------------------------------


@pytest.fixture
def begun(root: Root) -> Job:
    """A job whose agent began it and leaves its report to the test."""
    root.agent("writer", *HANG)
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    Path(root.job(job).report_path).write_text("first\n")
    return root.job(job)


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


def test_a_repair_that_dies_or_is_refused_loses_no_folder(root: Root) -> None:
    orphan = root.path / ".mam" / "jobs" / "job-00000001"
    orphan.mkdir()
    (orphan / "job.json").write_text("{}")
    os.utime(orphan, (1, 1))

    is_refused(root, "cli@doctor.move:1", "doctor", "--fix")
    dies(root, "cli@doctor.move:1", "doctor", "--fix")

    assert root.mam("doctor", "--fix").code == 0
    assert (root.path / ".mam" / "lost-and-found" / "job-00000001" / "job.json").exists() and not orphan.exists()


# -- the main checkout's guard, and worktrees ---------------------------------------------------------


@pytest.mark.parametrize("point", ["guard.keep:1", "guard.fsync:1", "guard.install:1", "guard.install:2"])
def test_a_guard_that_dies_or_is_refused_half_way_is_completed_and_undone_with_the_hook_of_before(
    root: Root, point: str
) -> None:
    hook = root.path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho mine\n")
    hook.chmod(0o755)

    is_refused(root, f"cli@{point}", "init", "--guard")
    dies(root, f"cli@{point}", "init", "--guard")
    assert root.mam("init", "--guard").code == 0
    (root.path / "x").write_text("x")
    git(root.path, "add", "x")
    with pytest.raises(Exception, match="exit"):
        git(root.path, "commit", "-qm", "x")

    is_refused(root, "cli@guard.restore:1", "init", "--unguard")
    dies(root, "cli@guard.restore:1", "init", "--unguard")
    assert root.mam("init", "--unguard").code == 0
    assert hook.read_text() == "#!/bin/sh\necho mine\n"
    git(root.path, "commit", "-qm", "x")


def test_a_commit_that_dies_or_is_refused_before_its_branch_moves_is_made_once_by_the_next(root: Root) -> None:
    tree = Path(worktrees.prepare(root.parts, WorktreeRequest("w", venv=False)).path)
    git(root.path, "config", "user.email", "dev@example.org")
    (tree / "new.txt").write_text("work\n")
    words = ["worktree", "commit", "w", "-m", "work"]

    is_refused(root, "cli@worktree.commit:1", *words)
    dies(root, "cli@worktree.commit:1", *words)

    assert git(tree, "rev-list", "--count", "HEAD") == "1" and (tree / "new.txt").exists()
    assert root.mam(*words).code == 0
    assert git(tree, "rev-list", "--count", "HEAD") == "2" and git(tree, "status", "--porcelain") == ""


def test_a_prepare_that_dies_or_is_refused_behind_its_environment_is_finished_by_the_next(root: Root) -> None:
    words = ["worktree", "prepare", "w", "--venv"]

    is_refused(root, "cli@worktree.venv:1", *words)
    with root.registry.view() as view:
        assert view.worktree("w") is None and git(root.path, "branch", "--list", "w") == ""
    dies(root, "cli@worktree.venv:1", *words)

    assert root.mam(*words).code == 0
    tree = root.path.parent / f"{root.path.name}.worktrees" / "w"
    assert any(shutil.which("python", path=str(path)) for path in tree.glob(".venv/bin"))
    assert root.mam("worktree", "remove", "w").code == 0
