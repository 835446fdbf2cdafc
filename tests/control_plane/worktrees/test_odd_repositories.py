"""Repositories that worktrees meet sooner or later: a clear word each, and nothing is lost."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.broker.errors import MamError
from mam.control_plane.worktrees import commit as worktree_commit
from mam.control_plane.worktrees import listing, naming
from mam.control_plane.worktrees import remove as worktree_removal
from tests.support import Root, git, repository, run_mam
from tests.support.hidden_work import FILE, commit, family, write
from tests.support.worktree_shapes import prepare, shape, state

pytestmark = pytest.mark.hostile


class TestRepositories:
    def test_one_without_commits_is_refused_with_the_remedy_and_works_after_the_first(self, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", "fresh")
        run_mam("init", cwd=tmp_path / "fresh")
        words = ["worktree", "prepare", "one", "--no-venv", "--json"]

        said = run_mam(*words, cwd=tmp_path / "fresh")
        assert (said.code, said.error["code"]) == (2, "no_commit") and "first commit" in said.error["remedy"]
        assert not (tmp_path / "fresh.worktrees").exists()
        commit(tmp_path / "fresh", "a.txt")
        assert run_mam(*words, cwd=tmp_path / "fresh").code == 0

    def test_a_main_checkout_on_an_unborn_or_detached_head_can_have_worktrees(self, root: Root) -> None:
        sha = git(root.path, "rev-parse", "HEAD")
        git(root.path, "switch", "-q", "--orphan", "unborn")
        with pytest.raises(naming.NoCommit):
            prepare(root)
        assert git(prepare(root, base="main"), "rev-parse", "HEAD") == sha
        git(root.path, "checkout", "-q", "--detach", "main")
        assert git(prepare(root, "two"), "rev-parse", "HEAD") == sha

    def test_a_bare_repository_is_a_control_root_with_worktrees(self, tmp_path: Path) -> None:
        seed = repository(tmp_path / "seed")
        git(tmp_path, "clone", "-q", "--bare", str(seed), "shop.git")
        root = Root(tmp_path / "shop.git", mux="headless")
        assert root.mam("init").code == 0
        try:
            tree = Path(root.ok("worktree", "prepare", "one", "--no-venv")["path"])
            assert tree == tmp_path / "shop.git.worktrees" / "one"
            assert root.ok("init", cwd=tree)["root"] == str(root.path)
            assert [each["name"] for each in root.ok("worktree", "list", cwd=tree)] == ["one"]
            name = root.ok("agent", "create", "--agent", "scripted", "--worktree", "one")["name"]
            assert root.mam("job", "wait", root.delegate(name, "do it"), "--timeout", "60").code == 0
            write(tree / "work.txt")
            sha = root.ok("worktree", "commit", "one", "-m", "work", cwd=tree)["commit"]
            assert root.ok("worktree", "remove", "one", "--stop")["head"] == sha
            assert git(root.path, "worktree", "list").split() == [str(root.path), "(bare)"]
            assert not list(tmp_path.glob("shop.git.worktrees/*"))
        finally:
            root.clean()

    def test_a_bare_repository_in_the_folder_of_its_worktrees(self, tmp_path: Path) -> None:
        """The usual layout: shop/.git is bare, shop/main and shop/one are worktrees."""
        seed = repository(tmp_path / "seed")
        (tmp_path / "shop").mkdir()
        git(tmp_path / "shop", "clone", "-q", "--bare", str(seed), ".git")
        git(tmp_path / "shop", "worktree", "add", "-q", "main")
        root = Root(tmp_path / "shop" / "main", mux="headless")

        said = root.mam("init", "--json")
        assert said.code == 0, said.err
        found = Path(said.json["root"])
        root.path = found
        one = root.ok("worktree", "prepare", "one", "--no-venv", cwd=tmp_path / "shop" / "main")
        assert git(Path(one["path"]), "branch", "--show-current") == "one"
        assert root.ok("worktree", "list", cwd=Path(one["path"]))
        assert git(tmp_path / "shop" / "main", "status", "--porcelain") == ""
        assert root.mam("worktree", "remove", "one").code == 0

    def test_a_shallow_clone(self, make_root: Callable[..., Root], tmp_path: Path) -> None:
        seed = repository(tmp_path / "seed")
        commit(seed, "more.txt")
        git(tmp_path, "clone", "-q", "--depth", "1", f"file://{seed}", "shallow")
        root = Root(tmp_path / "shallow", mux="headless")
        assert root.mam("init").code == 0

        tree = prepare(root)
        sha = commit(tree, "work.txt")
        assert worktree_removal.remove(root.parts, "one").head == sha
        with pytest.raises(naming.NoCommit):
            prepare(root, "two", base="HEAD~1")

    @pytest.mark.parametrize("along", [False, True])
    def test_one_that_was_moved_alone_or_with_its_trees_goes_on(self, root: Root, tmp_path: Path, along: bool) -> None:
        tree = prepare(root)
        write(tree / "undone.txt")
        (tmp_path / "far").mkdir()
        for name in ("repo", "repo.worktrees") if along else ("repo",):
            (tmp_path / name).rename(tmp_path / "far" / name)
        root.path = tmp_path / "far" / "repo"
        tree = tmp_path / "far" / "repo.worktrees" / "one" if along else tree
        said = root.mam("worktree", "remove", "one", "--json")
        assert (said.code, said.error["code"]) == (2, "control_root_moved")

        assert root.mam("init", "--moved").code == 0

        assert git(tree, "status", "--porcelain") == "?? undone.txt"
        assert [each.path for each in listing.listing(root.parts)] == [str(tree)]
        assert root.mam("worktree", "remove", "one", "--json").error["code"] == "worktree_dirty"
        worktree_commit.commit(root.parts, "one", "work")
        worktree_removal.remove(root.parts, "one")
        assert not tree.exists()

    def test_a_copy_cannot_touch_the_trees_of_the_original(self, root: Root, tmp_path: Path) -> None:
        tree = prepare(root)
        write(tree / "undone.txt")
        root.mam("down")
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-a", str(root.path), str(copy)], check=True)
        for words in (
            ["worktree", "remove", "one"],
            ["worktree", "prepare", "one"],
            ["worktree", "commit", "one", "-m", "x"],
        ):
            assert run_mam(*words, cwd=copy, env=root.env).code == 2, words

        assert run_mam("init", "--copied", cwd=copy, env=root.env).code == 0

        said = run_mam("worktree", "prepare", "two", "--branch", "one", "--no-venv", "--json", cwd=copy, env=root.env)
        assert said.code == 0, said.err
        assert said.json["path"] == str(tmp_path / "copy.worktrees" / "two")
        assert run_mam("worktree", "remove", "two", cwd=copy, env=root.env).code == 0
        assert git(tree, "status", "--porcelain") == "?? undone.txt"
        assert git(root.path, "worktree", "list").count("\n") == 1

    def test_two_control_roots_side_by_side_and_of_one_name_keep_apart(
        self, make_root: Callable[..., Root], tmp_path: Path
    ) -> None:
        one, two = make_root("a/shop"), make_root("b/shop")
        first, second = prepare(one), prepare(two)
        write(second / "undone.txt")

        worktree_removal.remove(one.parts, "one")
        said = run_mam("worktree", "remove", "one", "--json", cwd=second, env=one.env)

        assert not first.exists() and second.exists()
        assert said.error["code"] == "worktree_dirty" and str(second) in said.error["message"]
        with pytest.raises(naming.PathTaken):
            prepare(one, path=second)
        with pytest.raises(naming.PathTaken):
            prepare(one, path=two.path)

    def test_one_worktrees_folder_for_two_control_roots_mixes_nothing_up(
        self, make_root: Callable[..., Root], tmp_path: Path
    ) -> None:
        one, two = make_root("a/shop"), make_root("b/shop")
        for root in (one, two):
            root.env["MAM_WORKTREES_DIR"] = str(tmp_path / "all")
        tree = prepare(one)
        write(tree / "undone.txt")

        with pytest.raises(naming.PathTaken):
            prepare(two)
        assert git(two.path, "branch", "--list", "one") == "" and state(two) is None
        assert (tree / "undone.txt").exists()

    def test_a_submodule_that_cannot_be_had_leaves_nothing(self, root: Root, tmp_path: Path) -> None:
        family(tmp_path / "family")
        git(root.path, *FILE, "submodule", "--quiet", "add", str(tmp_path / "family" / "part"), "part")
        git(root.path, "commit", "-qm", "part")
        git(root.path, "submodule", "--quiet", "deinit", "-f", "part")
        shutil.rmtree(root.path / ".git" / "modules")
        shutil.rmtree(tmp_path / "family")
        before = shape(root)

        with pytest.raises(MamError, match="submodule part"):
            prepare(root)
        assert shape(root) == before and state(root) is None

    def test_an_initialised_submodule_does_not_hinder_the_removal(self, root: Root, tmp_path: Path) -> None:
        family(tmp_path / "family")
        git(root.path, *FILE, "submodule", "--quiet", "add", str(tmp_path / "family" / "part"), "part")
        git(root.path, *FILE, "submodule", "--quiet", "update", "--init", "--recursive")
        git(root.path, "commit", "-qm", "part")
        tree = prepare(root)
        assert (tree / "part" / "deep" / "app.py").exists()
        sha = commit(tree / "part", "idea.txt")
        write(tree / "part" / "deep" / "note.txt")
        for expected in ("part/deep/note.txt: untracked", f"part: submodule commit {sha[:12]} is on no remote"):
            with pytest.raises(worktree_removal.WorktreeDirty) as caught:
                worktree_removal.remove(root.parts, "one")
            assert expected in str(caught.value)
        (tree / "part" / "deep" / "note.txt").unlink()
        git(tree / "part", "push", "-q", "origin", "HEAD:refs/heads/idea")
        worktree_commit.commit(root.parts, "one", "a newer part")

        worktree_removal.remove(root.parts, "one")

        assert not tree.exists()
        assert git(tmp_path / "family" / "part", "rev-parse", "idea") == sha
        assert git(root.path / "part", "status", "--porcelain") == ""
