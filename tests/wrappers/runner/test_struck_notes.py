"""Notes of a runner and of a pane's host that the disk refuses, or that it dies at."""

import pytest

from tests.support import Root, until
from tests.support.strikes import HANG


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
