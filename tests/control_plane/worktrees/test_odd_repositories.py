"""Repositories, names and moments that worktrees meet sooner or later: a clear word each, and nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mam.broker.errors import BadName, MamError
from mam.control_plane.worktrees import commit as worktree_commit
from mam.control_plane.worktrees import listing, naming
from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees import remove as worktree_removal
from mam.control_plane.worktrees.prepare import WorktreeRequest
from mam.wrappers.git import command as mam_git
from mam.wrappers.git.command import GitFailed
from tests.support import MAM, Root, git, repository, run_mam, until
from tests.support.hidden_work import FILE, commit, family, write

pytestmark = pytest.mark.hostile


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@localhost")


@pytest.fixture
def root(make_root: Callable[..., Root]) -> Iterator[Root]:
    yield make_root()


def prepare(root: Root, name: str = "one", **wish: Any) -> Path:
    """In this process: most of these need no other."""
    return Path(worktrees.prepare(root.parts, WorktreeRequest(name, **{"venv": False, **wish})).path)


def state(root: Root, name: str = "one") -> Any:
    with root.registry.view() as view:
        found = view.worktree(name)
    return None if found is None else found.state


def shape(root: Root) -> tuple[str, str, list[str]]:
    """All refs, git's own list, and what lies beside the repository."""
    beside = root.path.parent / f"{root.path.name}.worktrees"
    trees = sorted(str(path.relative_to(beside)) for path in beside.glob("*"))
    return git(root.path, "for-each-ref"), git(root.path, "worktree", "list", "--porcelain"), trees


def main_of(root: Root) -> tuple[str, bytes, str, bytes]:
    own = root.path / ".git"
    status = git(root.path, "status", "--porcelain=v2", "--ignored", "-z")
    return status, (own / "index").read_bytes(), (own / "HEAD").read_text(), (own / "config").read_bytes()


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


class TestMoments:
    def test_locks_that_others_left_in_the_repository(self, root: Root) -> None:
        (root.path / ".git" / "config.lock").touch()
        (root.path / ".git" / "index.lock").touch()
        (root.path / ".git" / "packed-refs.lock").touch()

        tree = prepare(root)
        worktree_removal.remove(root.parts, "one")
        assert not tree.exists()

    def test_a_lock_in_a_tree_is_an_error_with_the_files_name_and_loses_nothing(self, root: Root) -> None:
        tree = prepare(root)
        write(tree / "work.txt")
        lock = Path(git(tree, "rev-parse", "--absolute-git-dir")) / "index.lock"
        lock.touch()

        with pytest.raises(GitFailed, match=r"index\.lock"):
            worktree_commit.commit(root.parts, "one", "work")
        lock.unlink()
        worktree_commit.commit(root.parts, "one", "work")
        lock.touch()
        worktree_removal.remove(root.parts, "one")
        assert git(root.path, "show", "one:work.txt") == "work"

    @pytest.mark.parametrize("does", ["exit 1", "sleep 3600", "git init -q . && git config core.bare true"])
    def test_hooks_that_fail_hang_or_wreck_are_not_run(self, root: Root, does: str) -> None:
        for hook in ("post-checkout", "pre-commit", "commit-msg", "post-commit", "reference-transaction"):
            path = root.path / ".git" / "hooks" / hook
            path.write_text(f"#!/bin/sh\ntouch '{root.path.parent}/ran'\n{does}\n", "utf-8")
            path.chmod(0o755)

        tree = prepare(root)
        write(tree / "work.txt")
        worktree_commit.commit(root.parts, "one", "work")
        worktree_removal.remove(root.parts, "one")

        assert not (root.path.parent / "ran").exists()

    def test_a_checkout_that_takes_too_long_is_undone(self, root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
        commit(root.path, ".gitattributes", "*.bin filter=slow\n")
        commit(root.path, "a.bin")
        git(root.path, "config", "filter.slow.smudge", "sleep 600")
        monkeypatch.setattr(mam_git, "ACT_S", 1.0)
        before = shape(root)

        with pytest.raises(MamError):
            prepare(root)
        monkeypatch.undo()
        assert shape(root) == before and state(root) is None

    def test_a_tree_that_a_person_locked_is_refused_with_the_reason_there_or_away(
        self, root: Root, tmp_path: Path
    ) -> None:
        tree = prepare(root)
        git(root.path, "worktree", "lock", "--reason", "on my disk", str(tree))
        for _ in range(2):
            said = root.mam("worktree", "remove", "one", "--json")
            assert (said.code, said.error["code"]) == (5, "tree_locked")
            assert "on my disk" in said.error["message"] and "git worktree unlock" in said.error["remedy"]
            assert state(root) == "ready"
        tree.rename(tmp_path / "away")
        for verb in ("prepare", "remove"):
            assert root.mam("worktree", verb, "one", "--json").error["code"] == "tree_locked"
        (tmp_path / "away").rename(tree)
        assert git(tree, "status", "--porcelain") == ""

    def test_a_tree_whose_entry_was_pruned_while_its_disk_was_away_keeps_its_files(
        self, root: Root, tmp_path: Path
    ) -> None:
        tree = prepare(root)
        write(tree / "undone.txt")
        tree.rename(tmp_path / "away")
        git(root.path, "worktree", "prune")  # somebody did
        (tmp_path / "away").rename(tree)

        for verb in ("prepare", "remove"):
            said = root.mam("worktree", verb, "one", "--json")
            assert said.code != 0 and str(tree) in said.error["message"], said.out
        assert (tree / "undone.txt").read_text() == "work\n"
        assert git(root.path, "branch", "--list", "one") == "one"

    def test_a_place_where_nothing_can_be_made_is_named_and_nothing_is_left(self, root: Root, tmp_path: Path) -> None:
        write(tmp_path / "file")
        before = shape(root)
        places = ["/proc/self/one", str(tmp_path / "file" / "one"), "/dev/null/one"]
        if os.geteuid() != 0:
            (tmp_path / "closed").mkdir(mode=0o555)
            places.append(str(tmp_path / "closed" / "one"))
        for place in places:
            with pytest.raises(naming.PathTaken) as caught:
                prepare(root, path=Path(place))
            assert "--path" in caught.value.remedy
        assert shape(root) == before and state(root) is None

    def test_a_place_reached_by_a_link_is_one_place(self, root: Root, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        tree = prepare(root, path=tmp_path / "link" / "one")
        assert prepare(root, path=tmp_path / "real" / "one") == tree
        with pytest.raises(naming.PathTaken):
            prepare(root, "two", path=tmp_path / "real" / "one")
        (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
        with pytest.raises(naming.PathTaken):
            prepare(root, "three", path=tmp_path / "dangling")
        write(tree / "undone.txt")
        with pytest.raises(worktree_removal.WorktreeDirty):
            worktree_removal.remove(root.parts, "one")
        (tree / "undone.txt").unlink()
        worktree_removal.remove(root.parts, "one")
        assert (tmp_path / "link").is_symlink() and not list((tmp_path / "real").iterdir())

    def test_a_tree_inside_another_tree_keeps_the_outer_one(self, root: Root) -> None:
        outer = prepare(root)
        inner = prepare(root, "two", path=outer / "inner")

        with pytest.raises(worktree_removal.WorktreeDirty, match="inner"):
            worktree_removal.remove(root.parts, "one")
        worktree_removal.remove(root.parts, "two")
        worktree_removal.remove(root.parts, "one")
        assert not inner.exists() and not outer.exists()

    def test_a_shared_configuration_that_was_set_to_bare_is_an_error_and_no_loss(self, root: Root) -> None:
        tree = prepare(root)
        write(tree / "undone.txt")
        git(root.path, "config", "core.bare", "true")

        said = root.mam("worktree", "remove", "one", "--json")

        assert said.code == 1 and said.error["code"] in ("git_failed", "worktree_dirty")
        assert (tree / "undone.txt").exists()
        git(root.path, "config", "--unset", "core.bare")
        assert git(tree, "status", "--porcelain") == "?? undone.txt"

    def test_variables_that_a_hook_leaves_never_divert_a_verb(self, root: Root, tmp_path: Path) -> None:
        other = repository(tmp_path / "other")
        before = (
            git(other, "for-each-ref"),
            (other / ".git" / "index").read_bytes(),
            (other / ".git" / "config").read_bytes(),
        )
        own = {"GIT_DIR": ".git", "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / ".git" / "index")}
        leaked = {**own, "GIT_DIR": str(other / ".git"), "GIT_PREFIX": "x/", "GIT_COMMON_DIR": str(other / ".git")}

        tree = Path(root.ok("worktree", "prepare", "one", "--no-venv", env=leaked)["path"])
        write(tree / "work.txt")
        sha = root.ok("worktree", "commit", "one", "-m", "work", env=leaked)["commit"]
        assert root.ok("worktree", "remove", "one", env=leaked)["head"] == sha

        after = (
            git(other, "for-each-ref"),
            (other / ".git" / "index").read_bytes(),
            (other / ".git" / "config").read_bytes(),
        )
        assert after == before

    def test_exact_names_only_are_removed(self, root: Root) -> None:
        trees = [prepare(root, name) for name in ("one", "one-2", "on", "one_", "xone")]

        worktree_removal.remove(root.parts, "one")
        with pytest.raises(worktrees.UnknownWorktree):
            worktree_removal.remove(root.parts, "o")
        assert [tree.is_dir() for tree in trees] == [False, True, True, True, True]

    def test_trees_that_mam_did_not_make_are_listed_and_never_removed(self, root: Root, tmp_path: Path) -> None:
        git(root.path, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))

        assert [(each.name, each.state) for each in listing.listing(root.parts)] == [("-", "not ours")]
        with pytest.raises(worktrees.UnknownWorktree):
            worktree_removal.remove(root.parts, "mine")
        with pytest.raises(naming.BranchTaken):
            prepare(root, "mine")


class TestWork:
    def test_a_job_that_is_dispatched_twice_onto_a_changed_tree_keeps_all_its_files(self, root: Root) -> None:
        tree = prepare(root)
        name = root.ok("agent", "create", "--agent", "scripted", "--worktree", "one")["name"]
        write(tree / "README", "changed\n")
        write(tree / "new.txt")
        job = root.delegate(name)
        assert root.mam("job", "wait", job, "--timeout", "60").code == 0
        root.ok("job", "retry", job)
        assert root.mam("job", "wait", job, "--timeout", "60").code == 0
        root.ok("worktree", "prepare", "one", "--no-venv")

        assert (tree / "README").read_text() == "changed\n" and (tree / "new.txt").read_text() == "work\n"

    def test_after_a_whole_loop_the_main_checkout_is_byte_for_byte_the_same(self, root: Root, tmp_path: Path) -> None:
        prepare(root)
        script = [{"started": {}}, {"shell": "echo x > work.txt"}, {"report": {"text": "done"}}]
        (tmp_path / "one.json").write_text(json.dumps(script))
        words = [
            "agent",
            "create",
            "--agent",
            "scripted",
            "--worktree",
            "one",
            "--",
            "--script",
            str(tmp_path / "one.json"),
        ]
        assert root.mam(*words).code == 0
        root.agent("rev", {"started": {}}, {"report": {"text": "fine", "verdict": "pass"}}, role="reviewer")
        (tmp_path / "task.md").write_text("do it")
        before = main_of(root)

        said = root.mam(
            *("loop", "run", "--task", str(tmp_path / "task.md"), "--creator", "creator-scripted-one"),
            *("--reviewers", "rev", "--worktree", "one", "--promote", "branch"),
            timeout_s=120,
        )

        assert said.code == 0, said.err
        assert main_of(root) == before
        assert not list((root.path.parent / "repo.worktrees").glob("*review*/*"))
        assert git(root.path, "show", "one:work.txt") == "x"
        said = root.mam("worktree", "remove", "one", "--stop")
        assert said.code == 0 and "the branch one stays at" in said.out

    def test_an_agent_that_writes_until_it_is_ended_loses_nothing(self, root: Root, tmp_path: Path) -> None:
        """What it wrote after the first look is found by the second one, and the tree is as ready as before."""
        tree = prepare(root)
        late = f"trap 'echo late > {tree}/late.txt; exit' TERM HUP; echo '$ '; while :; do sleep 0.1; done"
        words = ["agent", "create", "w", "--agent", "command", "--worktree", "one", "--no-wait", "--", "sh", "-c", late]
        assert root.mam(*words).code == 0
        until(lambda: root.session("w").status == "running")

        said = root.mam("worktree", "remove", "one", "--stop", "--json")

        assert said.code == 1 and said.error["code"] == "worktree_dirty" and "late.txt" in said.error["message"]
        assert (tree / "late.txt").exists() and state(root) == "ready"
        assert root.session("w").status == "stopped"

    def test_remove_and_create_at_once_leave_a_tree_with_a_writer_or_neither(self, root: Root) -> None:
        root.mam("up")
        environ = {**os.environ, **root.env}
        for number in range(4):
            name = f"t{number}"
            tree = prepare(root, name)
            words = (["worktree", "remove", name], ["agent", "create", "--agent", "scripted", "--worktree", name])
            both = [subprocess.Popen([MAM, *each], cwd=root.path, env=environ, stdout=-3, stderr=-3) for each in words]
            codes = [child.wait(120) for child in both]
            session = root.session(f"creator-scripted-{name}")
            assert codes != [0, 0], "a writer lives in a tree that was removed"
            assert tree.is_dir() == (session is not None) == (codes[1] == 0)

    def test_a_prepare_that_is_interrupted_by_a_person_leaves_nothing(self, root: Root, tmp_path: Path) -> None:
        environ = {**os.environ, **root.env}
        words = [MAM, "worktree", "prepare", "one", "--no-venv", "--setup", f"touch {tmp_path}/began; sleep 600"]
        child = subprocess.Popen(words, cwd=root.path, env=environ, stdout=-3, stderr=-3, start_new_session=True)
        until(lambda: (tmp_path / "began").exists())
        before = git(root.path, "branch", "--list", "one")
        os.killpg(child.pid, signal.SIGINT)

        assert child.wait(30) == 130 and before
        assert git(root.path, "branch", "--list", "one") == "" and state(root) is None
        assert not (root.path.parent / "repo.worktrees").exists()
