"""Names and branches that worktrees meet sooner or later: a clear word each, and nothing is lost."""

import os
import subprocess
from pathlib import Path

import pytest

from mam.broker.errors import BadName, MamError
from mam.control_plane.worktrees import commit as worktree_commit
from mam.control_plane.worktrees import listing, naming
from mam.control_plane.worktrees import remove as worktree_removal
from tests.support import Root, git
from tests.support.hidden_work import commit, write
from tests.support.worktree_shapes import prepare, shape, state

pytestmark = pytest.mark.hostile


MISREAD = [
    *("two words", "-dash", "--force", "@", "@{-1}", "main@{1}", "a..b", "a.lock", "a/b.lock/c", "a~b", "a^b"),
    *("a:b", "a?b", "a*b", "a[b", "a\\b", "a\nb", "a\tb", "/a", "a/", "a//b", ".a", "a/.b", "a.", "HEAD", ""),
    *("a" * 201, "ü" * 101, "0123456789" * 4, "f" * 40, "a" * 64),
]


ODD = [
    *("it's", 'a"b', "$HOME", "$(id)", "`id`", "a;b&c|d", "한국어/기능", "ünï", "a#b", "a!b", "%s", "a" * 200),
    *("0123", "null", "f" * 39, "a,b", "a@b", "@a", "(x)", "<y>", "e\u0301", "true", "=x", "a-", "a_b.c"),
]


PATHS = ["two words", "한국어", 'it\'s "q"', "$HOME", "line\nbreak", "end\n", "-dash", "a.lock", "..a", "f" * 40]


class TestNames:
    def test_a_branch_that_git_would_misread_is_refused_before_anything_is_done(self, root: Root) -> None:
        before = shape(root)

        for branch in MISREAD:
            with pytest.raises(BadName):
                prepare(root, branch=branch)
        assert shape(root) == before and state(root) is None

    def test_any_other_branch_is_made_committed_in_and_removed(self, root: Root) -> None:
        for number, branch in enumerate(ODD):
            tree = prepare(root, f"t{number}", branch=branch)
            write(tree / 'it\'s a "file" $x')

            sha = worktree_commit.commit(root.parts, f"t{number}", "work")
            gone = worktree_removal.remove(root.parts, f"t{number}")

            assert (gone.branch, gone.head) == (branch, sha)
            assert git(root.path, "rev-parse", f"refs/heads/{branch}") == sha
            assert not tree.exists()

    def test_a_tree_may_lie_at_any_path(self, root: Root, tmp_path: Path) -> None:
        for number, name in enumerate(PATHS):
            place = tmp_path / "up 'and' up" / name
            tree = prepare(root, f"t{number}", path=place)
            write(tree / name)

            with pytest.raises(worktree_removal.WorktreeDirty, match="untracked"):
                worktree_removal.remove(root.parts, f"t{number}")
            worktree_commit.commit(root.parts, f"t{number}", "work")
            assert [each.path for each in listing.listing(root.parts)] == [str(place)]
            worktree_removal.remove(root.parts, f"t{number}")
            assert not place.exists()

    def test_a_path_that_no_file_system_takes_is_refused_before_a_branch_is_made(
        self, root: Root, tmp_path: Path
    ) -> None:
        before = shape(root)

        for name in ("n" * 201, "ü" * 110, "/".join(["d" * 190] * 25), "n" * 256):
            with pytest.raises(naming.PathTaken):
                prepare(root, path=tmp_path / name)
        assert shape(root) == before and state(root) is None

    def test_a_worktrees_own_name_is_a_plain_word(self, root: Root) -> None:
        for name in ("", "One", "a b", "../x", "a/b", "-x", "a.b", "x" * 49, "한국어", "one\n"):
            with pytest.raises(BadName):
                prepare(root, name)
        said = root.mam("worktree", "prepare", "--json", "--no-venv", "--", "-x")
        assert said.code == 2 and said.error["code"] == "bad_name"

    def test_file_names_of_any_bytes_are_told_committed_and_saved(self, root: Root) -> None:
        commit(root.path, ".gitignore", "*.local\n")
        tree = prepare(root)
        for odd in (b"caf\xe9", b"a\nb", b"\xff\xfe"):
            (tree / os.fsdecode(odd)).write_text("x")
            (tree / os.fsdecode(odd + b".local")).write_text("kept")
        said = root.mam("worktree", "remove", "one", "--json")
        assert said.code == 1 and said.error["code"] == "worktree_dirty" and said.error["data"]["count"] == 3

        root.ok("worktree", "commit", "one", "-m", "odd names")
        gone = root.mam("worktree", "remove", "one")

        assert gone.code == 0, gone.err
        assert len(list((root.path / ".mam" / "lost-and-found").rglob("*.local"))) == 3


class TestBranches:
    def test_a_branch_in_the_way_of_another_is_named(self, root: Root) -> None:
        for packed in (False, True):
            for there, wanted in (("feat", "feat/x"), ("deep/x", "deep"), ("a/b/c", "a/b")):
                git(root.path, "branch", "-f", there)
                if packed:
                    git(root.path, "pack-refs", "--all")
                before = shape(root)

                with pytest.raises(naming.BranchTaken, match=f"the branch {there} is in its way"):
                    prepare(root, branch=wanted)
                assert shape(root) == before and state(root) is None

    def test_the_holder_of_a_branch_is_named_be_it_there_or_not(self, root: Root, tmp_path: Path) -> None:
        git(root.path, "worktree", "add", "-q", "-b", "held", str(tmp_path / "held"))
        tree = prepare(root, "two")
        for branch, holder in (("held", tmp_path / "held"), ("two", tree), ("main", root.path)):
            with pytest.raises(naming.BranchTaken) as caught:
                prepare(root, branch=branch)
            assert str(holder) in str(caught.value) or branch == "main"
        (tmp_path / "held").rename(tmp_path / "away")
        with pytest.raises(naming.BranchTaken, match="not there at the moment"):
            prepare(root, branch="held")
        (tmp_path / "away").rename(tmp_path / "held")
        assert git(tmp_path / "held", "status", "--porcelain") == ""

    def test_a_branch_that_is_being_rebased_elsewhere_is_left_alone(self, root: Root) -> None:
        tree = prepare(root, "two")
        commit(tree, "a.txt")
        environ = {**os.environ, "GIT_SEQUENCE_EDITOR": "sed -i s/^pick/edit/"}
        subprocess.run(["git", "rebase", "-q", "-i", "HEAD~1"], cwd=tree, env=environ, check=True, capture_output=True)
        before = shape(root)

        with pytest.raises(MamError):
            prepare(root, branch="two")
        assert shape(root) == before and state(root) is None

    def test_a_tag_and_a_remote_branch_of_the_same_name_mislead_nobody(self, root: Root) -> None:
        old = git(root.path, "rev-parse", "HEAD")
        git(root.path, "branch", "same")
        commit(root.path, "more.txt")
        git(root.path, "tag", "same")
        git(root.path, "tag", "new")
        git(root.path, "update-ref", "refs/remotes/origin/same", "HEAD")
        git(root.path, "update-ref", "refs/remotes/origin/only-there", "HEAD")

        assert git(prepare(root, branch="same"), "rev-parse", "HEAD") == old
        tree = prepare(root, "new")
        assert git(tree, "symbolic-ref", "HEAD") == "refs/heads/new"
        prepare(root, "only-there")
        assert git(root.path, "config", "--get-regexp", "^core").count("\n") > 1
        assert "branch.only-there" not in (root.path / ".git" / "config").read_text("utf-8")

    def test_a_branch_that_a_failed_add_left_is_offered_and_not_taken_silently(self, root: Root) -> None:
        git(root.path, "branch", "one")  # what `git worktree add -b` leaves where it fails

        with pytest.raises(naming.BranchTaken) as caught:
            prepare(root)
        assert "--branch one" in caught.value.remedy
        assert git(prepare(root, branch="one"), "branch", "--show-current") == "one"

    def test_a_base_that_grew_old_stays_what_it_was(self, root: Root) -> None:
        tree = prepare(root)
        base = git(tree, "rev-parse", "HEAD")
        commit(root.path, "later.txt")

        assert prepare(root) == tree
        assert git(tree, "rev-parse", "HEAD") == base
        with root.registry.view() as view:
            row = view.worktree("one")
        assert row is not None and row.base_sha == base

    def test_an_agent_that_switched_the_branch_in_its_tree_is_told_and_nothing_is_undone(self, root: Root) -> None:
        tree = prepare(root)
        git(tree, "switch", "-qc", "elsewhere")
        sha = commit(tree, "work.txt")

        with pytest.raises(naming.BranchTaken, match="elsewhere"):
            prepare(root)
        assert git(tree, "rev-parse", "HEAD") == sha and git(tree, "branch", "--show-current") == "elsewhere"
