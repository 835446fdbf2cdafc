"""Worktrees of a repository: listed as they are, added whole or not at all, removed one by one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mam.wrappers.git import command as mam_git
from mam.wrappers.git import dotgit
from mam.wrappers.git import worktrees as git_worktrees
from mam.wrappers.git.command import GitFailed
from tests.support import git, repository, until
from tests.support.hidden_work import commit, write

NAMES = ["two words", "한국어", "quote'\"", "line\nbreak", "end\n", "-dash", "$HOME", "a#b", "né\udcff"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def tip(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


def entries(repo: Path) -> list[str]:
    """What git keeps of linked worktrees, readable or not."""
    folder = repo / ".git" / "worktrees"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize("name", NAMES)
def test_every_path_is_listed_found_and_discarded(repo: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "trees" / name
    git_worktrees.add_branch(repo, path, "side", tip(repo))

    found = git_worktrees.find(repo, path)

    assert found == git_worktrees.WorktreeEntry(path, tip(repo), "side", bare=False, locked=None, missing=False)
    assert git_worktrees.find(repo, tmp_path / "trees" / ".." / "trees" / name) == found
    assert git_worktrees.holder(repo, "side") == path
    git_worktrees.discard(repo, path)
    git_worktrees.discard(repo, path)
    assert not path.exists() and entries(repo) == []


def test_what_git_knows_of_a_tree_is_listed(repo: Path, tmp_path: Path) -> None:
    for name in ("detached", "locked", "silent", "missing"):
        git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / name))
    git(repo, "worktree", "lock", "--reason", "on a disk\nof mine", str(tmp_path / "locked"))
    git(repo, "worktree", "lock", str(tmp_path / "silent"))
    subprocess.run(["rm", "-r", str(tmp_path / "missing")], check=True)

    found = {tree.path.name: tree for tree in git_worktrees.listed(repo)}

    assert next(iter(found)) == "repo" and found["repo"].branch == "main"
    assert found["detached"].branch is None and found["detached"].head == tip(repo)
    assert (found["locked"].locked, found["silent"].locked) == ("on a disk\nof mine", "")
    assert found["missing"].missing and git_worktrees.half_made(found["missing"])
    assert not git_worktrees.half_made(found["locked"])


def test_a_bare_repository_lists_itself_first(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    git_worktrees.add_branch(tmp_path / "bare.git", tmp_path / "tree", "side", tip(repo))

    assert [(tree.bare, tree.branch) for tree in git_worktrees.listed(tmp_path / "bare.git")] == [
        (True, None),
        (False, "side"),
    ]


class TestAdding:
    def test_neither_tracking_nor_a_hook_nor_the_shared_configuration_is_touched(
        self, repo: Path, tmp_path: Path
    ) -> None:
        git(repo, "config", "branch.autoSetupMerge", "always")
        hook = repo / ".git" / "hooks" / "post-checkout"
        hook.write_text(f"#!/bin/sh\necho ran > {tmp_path}/ran\n", "utf-8")
        hook.chmod(0o755)
        before = (repo / ".git" / "config").read_bytes()

        git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))

        assert (repo / ".git" / "config").read_bytes() == before
        assert not (tmp_path / "ran").exists()

    def test_with_a_lock_of_the_configuration_left_behind_it_still_works(self, repo: Path, tmp_path: Path) -> None:
        (repo / ".git" / "config.lock").touch()

        git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))

        assert dotgit.branch_of(tmp_path / "tree") == "side"

    def test_files_that_came_into_its_place_survive_and_no_branch_is_left(self, repo: Path, tmp_path: Path) -> None:
        write(tmp_path / "tree" / "mine.txt")

        with pytest.raises(GitFailed):
            git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))
        with pytest.raises(GitFailed):
            git_worktrees.add_detached(repo, tmp_path / "tree", tip(repo))

        assert (tmp_path / "tree" / "mine.txt").exists()
        assert git(repo, "branch", "--list", "side") == "" and entries(repo) == []

    def test_a_branch_that_was_there_before_is_not_deleted_by_the_failure(self, repo: Path, tmp_path: Path) -> None:
        git(repo, "branch", "side")

        with pytest.raises(GitFailed):
            git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))

        assert git(repo, "rev-parse", "side") == tip(repo)
        assert not (tmp_path / "tree").exists()

    def test_a_filter_that_is_required_and_missing_leaves_nothing(self, repo: Path, tmp_path: Path) -> None:
        commit(repo, ".gitattributes", "*.bin filter=crypt\n")
        commit(repo, "a.bin")
        git(repo, "config", "filter.crypt.smudge", "no-such-program")
        git(repo, "config", "filter.crypt.required", "true")

        with pytest.raises(GitFailed):
            git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))

        assert not (tmp_path / "tree").exists()
        assert git(repo, "branch", "--list", "side") == "" and entries(repo) == []

    def test_pointers_are_checked_out_where_git_lfs_is_not_installed(self, repo: Path, tmp_path: Path) -> None:
        commit(repo, "big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        commit(repo, ".gitattributes", "*.bin filter=lfs\n")
        git(repo, "config", "filter.lfs.process", "no-such-git-lfs")
        git(repo, "config", "filter.lfs.required", "true")

        git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))

        assert (tmp_path / "tree" / "big.bin").read_text("utf-8").startswith("version")

    def test_a_branch_is_dropped_only_where_it_still_is(self, repo: Path) -> None:
        git(repo, "branch", "side")
        old = tip(repo)
        commit(repo, "more.txt")
        git(repo, "branch", "-f", "side")

        assert git_worktrees.drop_branch(repo, "side", old) is False
        assert git_worktrees.drop_branch(repo, "side", tip(repo)) is True
        assert git_worktrees.drop_branch(repo, "side", tip(repo)) is False

    def test_who_adds_may_die_and_git_still_holds_the_lock_until_it_is_done(self, repo: Path, tmp_path: Path) -> None:
        """Else the next one would heal a tree that somebody still checks out."""
        lock = repo / ".git" / git_worktrees.LOCK
        slow = tmp_path / "slow"
        slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/began\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\ncat\n")
        slow.chmod(0o755)
        commit(repo, ".gitattributes", "*.txt filter=slow\n")
        commit(repo, "a.txt")
        git(repo, "config", "filter.slow.smudge", str(slow))
        script = (
            "import sys; from pathlib import Path\n"
            "from mam.broker.host import locks; from mam.wrappers.git import command as git\n"
            "from mam.wrappers.git import worktrees as trees\n"
            "repo, path, lock = map(Path, sys.argv[1:])\n"
            "with locks.hold(lock) as held, git.keeping(held): trees.add_branch(repo, path, 'side', sys.stdin.read())\n"
        )
        words = [sys.executable, "-c", script, str(repo), str(tmp_path / "tree"), str(lock)]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, text=True)
        assert child.stdin is not None
        child.stdin.write(tip(repo))
        child.stdin.close()
        until(lambda: (tmp_path / "began").exists(), what="git checks out")

        child.send_signal(signal.SIGKILL)
        child.wait()

        held = subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode
        (tmp_path / "go").touch()
        assert held != 0, "the lock was free while git still worked"
        until(lambda: subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode == 0)
        whole = (tmp_path / "tree" / "a.txt").exists()
        assert whole or (not (tmp_path / "tree").exists() and entries(repo) == [])


class TestDiscarding:
    def test_only_the_one_entry_goes_and_missing_neighbours_stay(self, repo: Path, tmp_path: Path) -> None:
        for name in ("one", "two", "on-a-disk"):
            git_worktrees.add_branch(repo, tmp_path / name, name, tip(repo))
        (tmp_path / "on-a-disk").rename(tmp_path / "unmounted")
        (tmp_path / "one").rename(tmp_path / "gone")

        git_worktrees.discard(repo, tmp_path / "one")

        assert entries(repo) == ["on-a-disk", "two"]
        (tmp_path / "unmounted").rename(tmp_path / "on-a-disk")
        assert git(tmp_path / "on-a-disk", "status", "--porcelain") == ""

    def test_a_directory_that_is_no_tree_of_this_repository_is_left_alone(self, repo: Path, tmp_path: Path) -> None:
        other = repository(tmp_path / "other")
        git_worktrees.add_branch(other, tmp_path / "foreign", "side", tip(other))
        write(tmp_path / "plain" / "mine.txt")
        git_worktrees.add_branch(repo, tmp_path / "replaced", "side", tip(repo))
        subprocess.run(["rm", "-r", str(tmp_path / "replaced")], check=True)
        write(tmp_path / "replaced" / "mine.txt")

        for name in ("other", "foreign", "plain"):
            git_worktrees.discard(repo, tmp_path / name)
        with pytest.raises(GitFailed):
            git_worktrees.discard(repo, tmp_path / "replaced")

        assert (tmp_path / "other" / "README").exists()
        assert git(tmp_path / "foreign", "status", "--porcelain") == ""
        assert (tmp_path / "plain" / "mine.txt").exists()
        assert (tmp_path / "replaced" / "mine.txt").exists()
        assert entries(repo) == ["replaced"]

    def test_the_lock_of_an_interrupted_add_is_ours_and_a_persons_lock_is_not(self, repo: Path, tmp_path: Path) -> None:
        for name, reason in (("half", "initializing"), ("usb", "on my disk"), ("quiet", "")):
            git_worktrees.add_branch(repo, tmp_path / name, name, tip(repo))
            git(repo, "worktree", "lock", *(["--reason", reason] if reason else []), str(tmp_path / name))

        git_worktrees.discard(repo, tmp_path / "half")
        with pytest.raises(git_worktrees.TreeLocked, match="on my disk"):
            git_worktrees.discard(repo, tmp_path / "usb")
        with pytest.raises(git_worktrees.TreeLocked, match="no reason given"):
            git_worktrees.discard(repo, tmp_path / "quiet")

        assert entries(repo) == ["quiet", "usb"]
        assert (tmp_path / "usb" / "README").exists()

    def test_an_interrupted_discard_is_finished_by_the_next_one(self, repo: Path, tmp_path: Path) -> None:
        git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))
        for number in range(50):
            write(tmp_path / "tree" / f"file{number}")
        script = (
            "import os, signal, sys; from pathlib import Path; from mam.wrappers.git import worktrees as trees\n"
            "left = int(sys.argv[3])\n"
            "def count(event, args):\n"
            "    global left\n"
            "    if event in ('os.remove', 'os.rmdir', 'os.rename'):\n"
            "        left -= 1\n"
            "        if left < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
            "sys.addaudithook(count)\n"
            "trees.discard(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        )
        died = 0
        for strike in (0, 1, 2, 10, 30):
            words = [sys.executable, "-c", script, str(repo), str(tmp_path / "tree"), str(strike)]
            died += subprocess.run(words, check=False).returncode == -signal.SIGKILL
        assert died >= 2, "this test shows nothing: it was never interrupted"

        git_worktrees.discard(repo, tmp_path / "tree")

        assert sorted(os.listdir(tmp_path)) == ["home", "repo"]
        assert entries(repo) == []


def test_a_tree_whose_repository_was_moved_is_none_of_the_new_place_until_it_is_repaired(
    repo: Path, tmp_path: Path
) -> None:
    git_worktrees.add_branch(repo, tmp_path / "tree", "side", tip(repo))
    repo.rename(tmp_path / "moved")

    assert git_worktrees.half_made(git_worktrees.listed(tmp_path / "moved")[1])
    mam_git.act(tmp_path / "moved", "worktree", "repair", str(tmp_path / "tree"))
    assert not git_worktrees.half_made(git_worktrees.listed(tmp_path / "moved")[1])
