"""
Scorecard 12 and 13: a job's verbs die, or the disk refuses, at each durable step; said again, they converge.

The control root is the module's: what a test finds broken is its own doing, or that of the one before.
"""

import os
from pathlib import Path

import pytest

from tests.support import Root, until
from tests.support.faults import all_done, delegate, jobs_of, refusals

DELEGATE = ["job.files", "key.fsync", "key.link", "json.fsync", "json.rename", "registry.commit", "registry.committed"]
RETRY = ["json.fsync", "json.rename", "report.aside", "registry.commit", "registry.committed"]
VERB = ["spool.fsync", "spool.rename", "folder.sync"]


@pytest.fixture(scope="module")
def manned(shared_root: Root) -> Root:
    """The module's control root with one agent that reports at once."""
    shared_root.agent()
    return shared_root


def keys_of(root: Root) -> set[str]:
    return {path.name for path in (root.path / ".mam" / "secrets").glob("*job-*")}


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", DELEGATE)
def test_a_delegate_that_dies_leaves_a_whole_job_or_none(manned: Root, point: str) -> None:
    before = jobs_of(manned)

    assert delegate(manned, fault=f"{point}:1:crash") == -9

    until(lambda: all_done(manned), what="a job that was committed is done")
    for folder in (manned.path / ".mam" / "jobs").iterdir():
        os.utime(folder, (1, 1))
    manned.mam("doctor", "--fix")
    assert manned.mam("doctor").code == 0
    assert delegate(manned) == 0
    until(lambda: all_done(manned))
    assert len(jobs_of(manned) - before) == (2 if point == "registry.committed" else 1)


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals([p for p in DELEGATE if p != "registry.committed"]))
def test_a_delegate_that_the_disk_refuses_is_a_typed_error_and_leaves_nothing(
    manned: Root, point: str, action: str
) -> None:
    folder = manned.path / ".mam" / "jobs"
    before = (set(folder.iterdir()), keys_of(manned))
    words = ["job", "delegate", "--to", "writer", "--brief", "README", "--json"]

    said = manned.mam(*words, env={"MAM_FAULT": f"cli@{point}:1:{action}"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert (set(folder.iterdir()), keys_of(manned)) == before
    assert delegate(manned) == 0
    until(lambda: all_done(manned))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", RETRY)
def test_a_retry_that_dies_leaves_the_reported_job_or_a_new_attempt(manned: Root, point: str) -> None:
    job = manned.delegate("writer", "do it", "--wait")

    assert manned.mam("job", "retry", job, env={"MAM_FAULT": f"cli@{point}:1:crash"}).code == -9

    if point == "registry.committed":
        until(lambda: all_done(manned), what="the new attempt is done")
    assert manned.mam("verify", job).code == 0
    assert manned.mam("job", "retry", job).code == 0
    until(lambda: all_done(manned))
    assert manned.job(job).attempt == (3 if point == "registry.committed" else 2)
    assert manned.mam("verify", job).code == 0


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(RETRY[:-1]))
def test_a_retry_that_the_disk_refuses_leaves_job_and_report_as_they_were(
    manned: Root, point: str, action: str
) -> None:
    job = manned.delegate("writer", "do it", "--wait")
    folder = Path(manned.job(job).folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    said = manned.mam("job", "retry", job, "--json", env={"MAM_FAULT": f"cli@{point}:1:{action}"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert {path: path.read_bytes() for path in before if path.is_file()} == before
    assert manned.job(job).attempt == 1 and manned.mam("verify", job).code == 0
    assert manned.mam("job", "retry", job).code == 0
    until(lambda: all_done(manned))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", VERB)
def test_a_verb_that_dies_was_said_or_not_and_the_job_goes_on(shared_root: Root, point: str) -> None:
    root, name = shared_root, f"dies-at-{point.replace('.', '-')}"
    root.env["MAM_FAULT"] = f"verb@{point}:1:crash"
    root.agent(name, {"started": {}}, {"shell": "true"})
    del root.env["MAM_FAULT"]
    job = root.delegate(name, "do it", "--started-within", "2")

    until(lambda: root.job(job).state in ("running", "agent_blocked"))
    outbox = root.parts.layout.run_dir(name) / "outbox"
    assert (root.job(job).state == "running") == (point == "folder.sync")  # it was on disk, or it was not
    until(lambda: not list(outbox.glob("*.event")))


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(VERB))
def test_a_verb_that_the_disk_refuses_is_a_typed_error_and_can_be_said_again(
    shared_root: Root, point: str, action: str
) -> None:
    root, name = shared_root, f"refused-at-{point.replace('.', '-')}-{action.lower()}"
    root.agent(name, {"started": {}}, {"hang": {}})
    job = root.delegate(name)
    until(lambda: root.job(job).state == "running")
    where = ["--registry-dir", str(root.parts.layout.jobs), "--job", job, "--attempt", "1"]
    words = ["job", "progress", *where, "--note", "half way", "--json"]

    said = root.mam(*words, env={"MAM_FAULT": f"verb@{point}:1:{action}"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert root.mam(*words).code == 0
