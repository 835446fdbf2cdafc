"""What a session is granted beyond its own directory."""

from dataclasses import replace
from pathlib import Path

import pytest

from mam.control_plane.registry.records import Session
from mam.control_plane.sessions import runtime
from tests.support import git, repository
from tests.support.desk import Desk


def of(desk: Desk, cwd: Path, role: str) -> Session:
    return replace(desk.session(), cwd=str(cwd), role=role)


@pytest.mark.parametrize("below", ["", "src"])
def test_a_writer_in_a_linked_worktree_is_granted_what_its_commits_are_written_to(
    desk: Desk, tmp_path: Path, below: str
) -> None:
    repo, tree = repository(tmp_path / "shop"), tmp_path / "tree"
    git(repo, "worktree", "add", "-q", "-b", "issue", str(tree))
    (tree / "src").mkdir()
    shared, layout = repo / ".git", desk.mam.layout

    grant = runtime.grant_of(desk.mam, of(desk, tree / below, "creator"))

    own = [layout.run_dir("writer"), layout.jobs]
    assert list(grant.write) == [*own, *(shared / name for name in ("worktrees/tree", "objects", "refs", "logs"))]
    assert (list(grant.edit), list(grant.look)) == ([layout.jobs], [])


def test_a_reviewer_is_granted_benches_to_try_commits_in_and_the_changes_to_read(desk: Desk, tmp_path: Path) -> None:
    grant = runtime.grant_of(desk.mam, of(desk, repository(tmp_path / "shop"), "critic,reviewer"))
    layout = desk.mam.layout
    assert list(grant.write) == [layout.run_dir("writer"), layout.jobs, layout.reviews]
    assert (list(grant.edit), list(grant.look)) == ([layout.jobs], [layout.reviews, layout.loops])
