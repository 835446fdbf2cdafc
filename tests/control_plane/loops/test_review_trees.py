"""Where reviewers work, as the monitor finds it."""

import os
from dataclasses import replace
from pathlib import Path

from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import create
from mam.control_plane.control_root.context import Mam
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.loops import review_trees
from mam.control_plane.monitor import repository_checks
from mam.control_plane.registry.records import Loop
from mam.control_plane.worktrees import prepare as worktrees
from tests.support import git
from tests.support.desk import Desk


def an_old_bench(mam: Mam, loop_id: str) -> Path:
    bench = mam.layout.reviews / loop_id / "r1-writer"
    bench.mkdir(parents=True)
    os.utime(bench.parent, (1, 1))
    return bench


def a_loop(loop_id: str) -> Loop:
    return Loop(
        *(loop_id, "reviewing", 1, "/tree", "b", "0" * 40),
        *(None, '["writer"]', "worktree", "none", None, None),
        *("title", "/folder", "{}", 1, 1),
    )


def swept(mam: Mam) -> list[str]:
    with mam.registry.view() as view:
        return repository_checks.sweep(mam, view)


def test_an_interrupted_loops_benches_stay_while_a_reviewer_is_at_work(desk: Desk) -> None:
    git(desk.mam.layout.root, "init", "--quiet")
    desk.session()
    bench, job = an_old_bench(desk.mam, "loop-1a2b3c4d"), desk.job()
    with desk.mam.registry.transaction() as tx:
        tx.put(a_loop("loop-1a2b3c4d"))
        tx.put(replace(job, loop="loop-1a2b3c4d", round=1))

    assert swept(desk.mam) == [] and bench.is_dir()
    desk.take(job.id, desk.report(job))
    with loop_locks.held(desk.mam, "loop-1a2b3c4d"):
        assert swept(desk.mam) == [] and bench.is_dir(), "nor while a process carries it out"
    with worktrees.repository_lock(desk.mam):
        assert swept(desk.mam) == [] and bench.is_dir(), "nor is anybody waited for"
    assert swept(desk.mam) == ["loop-1a2b3c4d"] and not bench.exists()


def test_a_control_root_leaves_the_benches_of_another_alone_that_shares_its_folder(tmp_path: Path) -> None:
    mams = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MAM_WORKTREES_DIR": str(tmp_path / "trees")}
        settings = config.Settings(environ, environ, tmp_path / name)
        mams.append(Mam(settings, layouts.layout(settings, str(tmp_path / name)), by="test"))
        create.make(mams[-1].layout, mams[-1].settings.environ, in_git=False)
    bench = an_old_bench(mams[0], "loop-1a2b3c4d")
    with mams[0].registry.transaction() as tx:
        tx.put(a_loop("loop-1a2b3c4d"))

    assert swept(mams[1]) == [] and bench.is_dir()


def test_what_a_sandbox_keeps_beside_benches_is_no_loop(desk: Desk) -> None:
    reviews = desk.mam.layout.reviews
    for name in (".git", ".codex", "loop-1a2b3c4d/r1-rev-a", "loop-1a2b3c4d/r1-rev-b"):
        (reviews / name).mkdir(parents=True)
    (reviews / "a file").touch()
    assert review_trees.left(desk.mam) == {"loop-1a2b3c4d": 2}
