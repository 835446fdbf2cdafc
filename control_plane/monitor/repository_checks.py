"""What the monitor looks at in the repository: the main checkout's branch, worktrees, loops without a process."""

import contextlib
import time
from pathlib import Path

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import BadName
from mam.control_plane.control_root.context import Mam
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.loops import review_trees
from mam.control_plane.loops.locks import LoopRuns
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Finding, Worktree
from mam.control_plane.worktrees import prepare as worktrees
from mam.wrappers.git import dotgit

BENCH_KEPT_S = 3600.0  # an interrupted loop may be taken up again, with the reviews that are ready
SETTLED_MS = 5000  # rows that are being worked on are not judged


def findings(mam: Mam, view: View) -> list[Finding]:
    """From files and rows alone: no process is started for it."""
    now = now_ms()
    found = _main(mam, view, now)
    for row in view.worktrees():
        if 0 <= now - row.updated_at < SETTLED_MS:
            continue
        if row.state == "ready" and dotgit.own_dir(Path(row.path)) is None:
            text = f"{row.path} is gone; `mam worktree prepare {row.name}` makes it again"
            found.append(Finding("worktree_gone", row.name, now, text))
        elif row.state == "ready" and _strayed(row):
            on = dotgit.branch_of(Path(row.path))
            text = f"{row.path} was switched from {row.branch} to {on}; `git -C {row.path} switch {row.branch}`"
            found.append(Finding("worktree_strayed", row.name, now, text))
        elif row.state != "ready" and not worktrees.is_worked_on(mam, row.name):
            verb = "prepare" if row.state == "preparing" else "remove"
            text = f"{row.state} did not finish; `mam worktree {verb} {row.name}` completes it"
            found.append(Finding("worktree_unfinished", row.name, now, text))
    for loop in view.loops(only_open=True):
        if loop.state == "stuck":
            found.append(Finding("loop_stuck", loop.id, now, loop.detail or "a person must look"))
        elif not 0 <= now - loop.updated_at <= SETTLED_MS and not loop_locks.runs(mam, loop.id):
            text = (
                f"no process carries it out; `mam loop resume {loop.id}` goes on, `mam loop cancel {loop.id}` ends it"
            )
            found.append(Finding("loop_interrupted", loop.id, now, text))
    return found


def _strayed(row: Worktree) -> bool:
    """Whether a worktree is on another branch than its own; a detached HEAD may be a rebase."""
    return dotgit.branch_of(Path(row.path)) not in (row.branch, None)


def _main(mam: Mam, view: View, now: int) -> list[Finding]:
    """The main checkout's branch, watched from the first worktree or guard on."""
    expected = view.meta("main_branch")
    head = dotgit.head_of(mam.layout.root)
    if expected is None or head == f"ref: refs/heads/{expected}" or not head:
        return []
    on = head.removeprefix("ref: refs/heads/")
    text = f"the main checkout was switched from {expected} to {on}; nothing of MAM commits there meanwhile"
    return [Finding("main_moved", str(mam.layout.root), now, text)]


def sweep(mam: Mam, view: View) -> list[str]:
    """Remove review trees that no loop will come back for; return the loops that had them."""
    gone = []
    at_work = {job.loop for job in view.open_jobs()}  # their reviewers, whether a process waits for them or not
    for loop_id in review_trees.left(mam):
        loop = view.loop(loop_id)
        ended = loop is None or loop.ended_at is not None
        left = ended or (loop_id not in at_work and _untouched_s(mam, loop_id) > BENCH_KEPT_S)
        if worktrees.repository_is_busy(mam):
            break  # the next time: a look must not wait for it
        if left and not loop_locks.runs(mam, loop_id):
            with (
                contextlib.suppress(LoopRuns, BadName),
                loop_locks.held(mam, loop_id),
            ):  # no process takes it up meanwhile
                review_trees.close_all(mam, loop_id)
                gone.append(loop_id)
    return gone


def _untouched_s(mam: Mam, loop_id: str) -> float:
    try:
        return time.time() - (mam.layout.reviews / loop_id).stat().st_mtime
    except OSError:
        return 0.0
