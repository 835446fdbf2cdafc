"""An agent with several roles, in a worktree: shown where it really is, found in each of its pools, and no drift."""

import os

import pytest

from tests.support import Root


@pytest.mark.req("M102")
def test_several_roles_in_a_worktree_are_shown_and_are_no_difference(root: Root) -> None:
    root.ok("worktree", "prepare", "issue-1", "--no-venv")
    said = root.ok(
        "agent", "create", "both", "--agent", "scripted", "--role", "planner,reviewer", "--worktree", "issue-1"
    )
    tree = str(root.path.parent / f"{root.path.name}.worktrees" / "issue-1")

    (shown,) = root.ok("status")["sessions"]

    assert (said["role"], shown["role"], shown["cwd"]) == ("planner,reviewer", "planner,reviewer", tree)
    assert os.path.relpath(tree, root.path) in root.mam("status").out
    assert root.ok("monitor", "once") == []
    assert root.ok("status")["findings"] == []
