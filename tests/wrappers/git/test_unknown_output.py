"""What git prints and MAM does not know is an error; a git that could not look is never an absence."""

import os
import shutil
from pathlib import Path

import pytest

from mam.wrappers.git import command as git
from mam.wrappers.git import uncommitted
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.command import GitFailed
from tests.support import repository

SHA = "1" * 40
STATUS = [
    f"1 .M N... 100644 100644 100644 {SHA} {SHA} a b\n\0",
    f"1 .M S.MU 160000 160000 160000 {SHA} {SHA} sub\0",
    f"u UU N... 100644 100644 100644 100644 {SHA} {SHA} {SHA} c\0",
    "? new\0",
]
ENTRIES = f"H 100644 {SHA} 0\ta b\0S 160000 {SHA} 0\tsub\0"
TREES = f"worktree /r\0HEAD {SHA}\0branch refs/heads/main\0\0worktree /w\0HEAD {SHA}\0detached\0locked why\0\0"


@pytest.mark.parametrize("record", STATUS)
@pytest.mark.parametrize("foreign", ["warning: odd\n{}", "{}warning: odd", "{}2 R. new form\0", "# branch.oid x\n{}"])
def test_a_status_with_anything_unknown_is_an_error(record: str, foreign: str, tmp_path: Path) -> None:
    assert len(uncommitted.parse_status(record, tmp_path)) == 1
    with pytest.raises(GitFailed, match="does not know"):
        uncommitted.parse_status(foreign.format(record), tmp_path)


def test_a_status_that_counts_stashes_is_known(tmp_path: Path) -> None:
    assert uncommitted.parse_status("# stash 2\0", tmp_path) == []


@pytest.mark.parametrize("foreign", ["warning: odd\n{}", "{}warning: odd", "{}H new form\0"])
def test_an_index_with_anything_unknown_is_an_error(foreign: str, tmp_path: Path) -> None:
    assert [entry.path for entry in uncommitted.parse_entries(ENTRIES, tmp_path)] == ["a b", "sub"]
    with pytest.raises(GitFailed, match="does not know"):
        uncommitted.parse_entries(foreign.format(ENTRIES), tmp_path)


@pytest.mark.parametrize("foreign", ["warning: odd\n{}", "{}warning: odd", "{}HEAD x\0\0", ""])
def test_a_list_of_worktrees_with_anything_unknown_is_an_error(foreign: str, tmp_path: Path) -> None:
    assert len(git_worktrees.parse_list(TREES, tmp_path)) == len(("/r", "/w"))
    with pytest.raises(GitFailed, match="does not know"):
        git_worktrees.parse_list(foreign.format(TREES), tmp_path)


def test_a_branch_that_is_not_there_is_none_and_a_git_that_cannot_look_is_an_error(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    assert git.branch_tip(repo, "main") is not None
    assert git.branch_tip(repo, "none") is None
    assert git.resolve(repo, "HEAD^{tree}") is None
    (repo / ".git/HEAD").unlink()
    with pytest.raises(GitFailed):
        git.branch_tip(repo, "main")


def test_uncommitted_work_is_not_missed_behind_a_foreign_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "new").write_text("work")
    real = shutil.which("git")
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(
        f'#!/bin/sh\ncase "$*" in *porcelain=v2*) echo "a line of another program";; esac\nexec {real} "$@"\n'
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    with pytest.raises(GitFailed, match="does not know"):
        uncommitted.look(repo)
