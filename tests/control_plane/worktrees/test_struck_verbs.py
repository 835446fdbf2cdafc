"""Guard, commit and prepare die, or the disk refuses, at steps that have no row of the scorecard."""

import shutil
from pathlib import Path

import pytest

from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees.prepare import WorktreeRequest
from tests.support import Root, git
from tests.support.strikes import dies, is_refused


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
