"""What a round of review costs beside the agents' own time: wall time, and git processes."""

import os
import subprocess  # noqa: TID251 (git's own trace counts its processes, in whole runs of the verb)
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mam.control_plane.benchmarks import budgets, suite
from mam.control_plane.benchmarks.suite import Figure, NotMeasured
from mam.control_plane.control_root import create, monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.registry.records import Attempt
from mam.control_plane.sessions import readiness, sessions
from mam.control_plane.worktrees import commit as worktree_commit
from mam.control_plane.worktrees import prepare as worktrees
from mam.wrappers import process

FILES = 200
_SCRIPT = '[{"started": {}}, {"report": {"text": "fine", "verdict": "pass"}}]'


class _Cost(NamedTuple):
    overhead_s: float
    git_processes: int


def loop(commits: int = 1000, reviewers: int = 3, rounds: int = 3) -> list[Figure]:
    """
    A review round with scripted agents, over a short and a long history, with one reviewer and with several.

    Raises NotMeasured where a reviewer did not report, or no process of git was seen.
    """
    several, one = _costs(1, rounds, [reviewers, 1])
    (long,) = _costs(commits, rounds, [reviewers])
    per_reviewer = (several.git_processes - one.git_processes) / (reviewers - 1)
    return [
        Figure(
            f"review round, {reviewers} reviewers",
            f"{several.overhead_s:.2f} s beside the agents",
            f"≤ {budgets.ROUND_S:g} s",
            several.overhead_s <= budgets.ROUND_S,
        ),
        Figure(
            "… git processes",
            f"{several.git_processes}",
            f"≤ {budgets.ROUND_GIT_PROCESSES}",
            several.git_processes <= budgets.ROUND_GIT_PROCESSES,
        ),
        Figure(
            f"… with {commits} commits",
            f"{long.overhead_s:.2f} s, {long.git_processes} processes",
            "as with one",
            long.git_processes == several.git_processes,
        ),
        Figure(
            "… a reviewer more",
            f"{per_reviewer:.1f} git processes",
            "linear",
            per_reviewer <= budgets.REVIEWER_GIT_PROCESSES,
        ),
    ]


def _costs(commits: int, rounds: int, reviewers: Sequence[int]) -> list[_Cost]:
    """The cheapest of *rounds* rounds for each number of reviewers, the largest first, over so many commits."""
    with suite.place(MAM_MUX="headless") as mam:
        folder = mam.layout.root
        _history(folder, commits)
        create.make(mam.layout, mam.settings.environ)
        monitor_process.ensure(mam)
        tree = Path(worktrees.prepare(mam, worktrees.WorktreeRequest("bench", venv=False)).path)
        (tree / "new.py").write_text("print('new')\n", "utf-8")
        worktree_commit.commit(mam, "bench", "work to review")
        script = mam.layout.mam / "script.json"
        script.write_text(_SCRIPT, "utf-8")
        names = [f"reviewer-{n}" for n in range(reviewers[0])]
        for name in names:
            wish = sessions.AgentRequest(
                name, "scripted", "reviewer", folder, "headless", args=["--script", str(script)]
            )
            sessions.create(mam, wish)
            readiness.await_ready(mam, name, wait_s=60)
        _round(mam, tree, names, "warm-up")
        found = []
        for count in reviewers:
            costs = [_round(mam, tree, names[:count], f"round-{count}-{n}") for n in range(rounds)]
            found.append(min(costs, key=lambda cost: cost.overhead_s))
        return found


def _history(folder: Path, commits: int) -> None:
    """A repository of FILES files and so many commits, in one go."""
    process.run(["git", "init", "-q", "-b", "main", str(folder)])
    for name, value in (("user.name", "bench"), ("user.email", "bench@localhost")):
        process.run(["git", "config", name, value], cwd=folder)
    lines = []
    for number in range(commits):
        text = f"value = {number}\n"
        lines.append(f"commit refs/heads/main\ncommitter bench <bench@localhost> {number} +0000\ndata 1\nx")
        paths = range(FILES) if number == 0 else [number % FILES]
        lines += [f"M 100644 inline pkg/file{n}.py\ndata {len(text)}\n{text}" for n in paths]
    process.run(["git", "fast-import", "--quiet"], cwd=folder, stdin=("\n".join(lines) + "\n").encode())
    process.run(["git", "reset", "-q", "--hard"], cwd=folder)


def _round(mam: Mam, tree: Path, names: Sequence[str], loop_id: str) -> _Cost:
    trace = mam.layout.run / f"trace-{loop_id}"
    trace.mkdir()
    words = ["loop", "run", "--task", "-", "--review-only", "--reviewers", ",".join(names), "--worktree", str(tree)]
    environ = {**mam.settings.environ, "GIT_TRACE2_EVENT": str(trace)}
    began = time.perf_counter()
    subprocess.run(
        [mam.command, *words, "--id", loop_id],
        cwd=mam.layout.root,
        env=environ,
        input=b"review it\n",
        capture_output=True,
        check=True,
    )
    took_s = time.perf_counter() - began
    with mam.registry.view() as view:
        attempts = [view.attempt(loop_jobs.job_id(loop_id, 1, name), 1) for name in names]
    git_processes = len(os.listdir(trace))
    if not git_processes:
        raise NotMeasured(what="loop", why="git's trace is empty")
    return _Cost(took_s - max(map(_own_s, attempts)), git_processes)


def _own_s(attempt: Attempt | None) -> float:
    """From the submitted prompt to the recorded report: what the agent itself took. Raises NotMeasured."""
    if attempt is None or attempt.ended_at is None or attempt.delivered_at is None:
        raise NotMeasured(what="loop", why="a reviewer did not report")
    return (attempt.ended_at - attempt.delivered_at) / 1000
