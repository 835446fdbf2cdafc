"""Scorecard 24: what happens while no monitor runs is seen by the next one, and nothing else is."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.monitor import reconcile, repository_checks
from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees.prepare import WorktreeRequest
from tests.support import MAM, Root, until
from tests.support.road import Road

EVENTS = 200
DYING = [f"dying-{number}" for number in range(5)]
TREES = ["tree-0", "tree-1", "tree-2"]
HANG: tuple[dict[str, Any], ...] = ({"started": {}}, {"hang": {}})


def team(root: Root) -> dict[str, str]:
    """Agents at work, each with its job; those that are going to die, and two that are not."""
    jobs = {}
    for name in (*DYING, "well-0", "well-1"):
        root.agent(name, *HANG)
        jobs[name] = root.delegate(name)
    until(lambda: all(root.job(job).state == "running" for job in jobs.values()), what="all of them work")
    return jobs


def converged(root: Root, jobs: dict[str, str]) -> bool:
    ended = all(root.session(name).status == "ended" and root.job(jobs[name]).state == "lost" for name in DYING)
    with root.registry.view() as view:
        found = {(finding.code, finding.subject) for finding in view.findings()}
    return ended and {("worktree_gone", name) for name in TREES} <= found


@pytest.mark.scorecard(24)
@pytest.mark.req("M91", "M93", "M95", "M99")
def test_a_monitor_that_comes_back_sees_all_that_happened_meanwhile_and_nothing_that_did_not(
    road: Road, figure: Callable[[str, float], None]
) -> None:
    root = road.root
    for name in (*TREES, "tree-well"):
        worktrees.prepare(root.parts, WorktreeRequest(name, venv=False))
    jobs = team(root)
    until(lambda: trees_are_old(root), what="nobody works on the worktrees any more")
    root.kill_monitor()

    road.speak(EVENTS)
    for name in DYING:
        os.kill(root.session(name).pid, signal.SIGKILL)
    for name in TREES:
        shutil.rmtree(root.path.parent / "repo.worktrees" / name)
    road.spoken()
    assert road.recorded() == [] and all(root.session(name).status == "running" for name in DYING)

    began = time.monotonic()
    two = [subprocess.Popen([MAM, "monitor", "run"], cwd=root.path, stdout=-3, stderr=-3) for _ in range(2)]
    try:
        until(lambda: converged(root, jobs) and len(road.recorded()) == EVENTS, what="all is seen")
        figure("seconds", time.monotonic() - began)

        left = until(lambda: [child for child in two if child.poll() is not None], what="one of two has ended")
        assert [child.returncode for child in left] == [1]
        expected = sorted([("D", name) for name in TREES])
        until(lambda: rows_are_old(root), what="rows are old enough to be compared")
        assert drifts(root) == expected
        with root.registry.view() as view:
            assert sorted({(f.code, f.subject) for f in view.findings()}) == [("worktree_gone", name) for name in TREES]
        assert [root.job(jobs[name]).state for name in ("well-0", "well-1")] == ["running", "running"]
    finally:
        for child in two:
            child.terminate()
            child.wait(30)


def rows_are_old(root: Root) -> bool:
    """Whether no row is so fresh that a difference would be taken for work in progress."""
    with root.registry.view() as view:
        return all(now_ms() - session.updated_at > reconcile.YOUNG_MS for session in view.sessions())


def trees_are_old(root: Root) -> bool:
    with root.registry.view() as view:
        return all(now_ms() - row.updated_at > repository_checks.SETTLED_MS for row in view.worktrees())


def drifts(root: Root) -> list[tuple[str, str]]:
    return sorted((each["kind"], each["subject"]) for each in root.mam("monitor", "once", "--json").json)
