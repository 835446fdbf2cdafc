"""What is read from git's files is what git itself says, in every kind of repository."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.wrappers.git import dotgit
from tests.support import git, repository
from tests.support.hidden_work import FILE, commit


def plain(folder: Path) -> Path:
    return repository(folder / "repo")


def linked(folder: Path) -> Path:
    git(repository(folder / "repo"), "worktree", "add", "-q", "-b", "side/line", str(folder / "tree"))
    return folder / "tree"


def detached(folder: Path) -> Path:
    git(repository(folder / "repo"), "worktree", "add", "-q", "--detach", str(folder / "tree"))
    return folder / "tree"


def packed(folder: Path) -> Path:
    repo = repository(folder / "repo")
    git(repo, "switch", "-qc", "topic")
    git(repo, "branch", "xtopic")
    commit(repo, "more.txt")
    git(repo, "tag", "-m", "annotated", "topic")
    git(repo, "pack-refs", "--all")
    return repo


def packed_linked(folder: Path) -> Path:
    tree = linked(folder)
    commit(tree, "more.txt")
    git(tree, "pack-refs", "--all")
    return tree


def submodule(folder: Path) -> Path:
    repo = repository(folder / "repo")
    part = repository(folder / "part")
    git(repo, *FILE, "submodule", "--quiet", "add", str(part), "deep/part")
    return repo / "deep" / "part"


def separate(folder: Path) -> Path:
    git(folder, "init", "-q", f"--separate-git-dir={folder / 'apart'}", str(folder / "files"))
    commit(folder / "files", "a.txt")
    return folder / "files"


def bare(folder: Path) -> Path:
    git(folder, "clone", "-q", "--bare", str(repository(folder / "repo")), str(folder / "bare.git"))
    return folder / "bare.git"


def tree_of_bare(folder: Path) -> Path:
    git(bare(folder), "worktree", "add", "-q", str(folder / "tree"), "main")
    return folder / "tree"


def moved(folder: Path) -> Path:
    git(linked(folder), "config", "x.y", "z")
    (folder / "repo").rename(folder / "moved")
    git(folder / "moved", "worktree", "repair")
    return folder / "tree"


def odd_name(folder: Path) -> Path:
    git(repository(folder / "a\nb 'c' 한국어 "), "worktree", "add", "-q", "-b", "ünï", str(folder / "tree \n"))
    return folder / "tree \n"


KINDS = [plain, linked, detached, packed, packed_linked, submodule, separate, bare, tree_of_bare, moved, odd_name]


def ask(tree: Path, *words: str) -> str | None:
    return git(tree, "rev-parse", *words)


@pytest.mark.parametrize("kind", KINDS)
def test_directories_branch_and_commit_are_those_that_git_names(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    tree = kind(tmp_path)

    own, shared = dotgit.own_dir(tree), dotgit.shared_dir(tree)
    assert own is not None and str(own.resolve()) == ask(tree, "--absolute-git-dir")
    assert str(shared) == ask(tree, "--path-format=absolute", "--git-common-dir")
    assert (dotgit.branch_of(tree) or "") == git(tree, "branch", "--show-current")
    assert dotgit.commit_of(tree) == ask(tree, "HEAD")


@pytest.mark.parametrize("how", ["cloned", "converted", "with a configuration for each worktree"])
def test_a_bare_repository_is_known_as_one_from_any_of_its_worktrees(tmp_path: Path, how: str) -> None:
    repo = plain(tmp_path)
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert not dotgit.says_bare(repo) and not dotgit.says_bare(tmp_path / "tree")
    if how == "cloned":
        git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
        repo = tmp_path / "bare.git"
        git(repo, "worktree", "add", "-q", str(tmp_path / "tree2"), "tree")
    else:
        git(repo, "config", "core.bare", "true")
    if how.startswith("with"):
        git(tmp_path / "tree", "sparse-checkout", "set", "x")

    assert dotgit.says_bare(repo)
    assert all(dotgit.says_bare(tree) for tree in tmp_path.glob("tree*") if how != "cloned" or tree.name == "tree2")


def test_an_unborn_branch_has_a_name_and_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "fresh")

    assert dotgit.branch_of(tmp_path / "fresh") == "main"
    assert dotgit.commit_of(tmp_path / "fresh") is None


def test_a_deleted_branch_that_was_packed_has_no_commit(tmp_path: Path) -> None:
    repo = packed(tmp_path)
    git(repo, "update-ref", "-d", "refs/heads/topic")

    assert dotgit.commit_of(repo) is None


def test_a_branch_that_stands_for_another_is_left_to_git(tmp_path: Path) -> None:
    repo = plain(tmp_path)
    git(repo, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    git(repo, "symbolic-ref", "HEAD", "refs/heads/alias")

    assert dotgit.commit_of(repo) is None  # the caller asks git then


@pytest.mark.parametrize("text", ["", "gitdir: /nowhere\n", "gitdir: ", "\0", "nonsense"])
def test_a_broken_git_file_is_no_repository_and_no_crash(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").write_text(text, "utf-8")

    assert dotgit.own_dir(tmp_path) is None
    assert dotgit.shared_dir(tmp_path) is None
    assert (dotgit.head_of(tmp_path), dotgit.branch_of(tmp_path), dotgit.commit_of(tmp_path)) == ("", None, None)


def test_a_folder_that_is_not_there_and_one_without_git_are_no_repository(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert dotgit.own_dir(folder) is None
        assert dotgit.head_of(folder) == ""
    assert dotgit.top_of(tmp_path / "nowhere") is None


def test_the_top_is_the_nearest_one(tmp_path: Path) -> None:
    part = submodule(tmp_path)
    (part / "a" / "b").mkdir(parents=True)

    assert dotgit.top_of(part / "a" / "b") == part
    assert dotgit.top_of(part.parent) == tmp_path / "repo"


def test_a_lock_of_somebody_who_lives_is_waited_for_and_one_that_nobody_lets_go_is_removed(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    lock = repo / ".git" / "refs" / "heads" / "idea.lock"
    lock.touch()
    let_go: list[bool] = []

    def live() -> None:
        let_go.append(lock.exists())
        lock.unlink()

    threading.Timer(0.3, live).start()
    dotgit.unlock(repo, "refs/heads/idea")
    assert let_go == [True], "it was still there when its holder was done with it"

    lock.touch()
    os.utime(lock, (time.time() - 60,) * 2)
    dotgit.unlock(repo, "refs/heads/idea", "refs/heads/other")
    git(repo, "branch", "idea")


def test_an_entry_without_a_place_is_dropped_and_others_of_its_name_stay(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    git(repo, "worktree", "add", "-q", str(tmp_path / "one"))
    git(repo, "worktree", "add", "-q", str(tmp_path / "two"))
    entries = repo / ".git" / "worktrees"
    (entries / "two" / "gitdir").unlink()
    os.utime(entries / "two", (time.time() - 60,) * 2)

    for name in ("one", "two", "three"):
        dotgit.drop_stump(repo, tmp_path / name)

    assert [path.name for path in entries.iterdir()] == ["one"]


@pytest.mark.parametrize(
    "damage",
    [
        "rm -r {tree}",
        "rm {tree}/.git",
        "mv {tree} {tree}-moved",
        "rm -r {root}/.git/worktrees/tree",
        "git -C {root} worktree lock --reason initializing {tree}",
        "rm -r {tree}; git init -q {tree}",
    ],
)
def test_a_work_tree_is_linked_where_both_sides_say_so_and_it_is_whole(tmp_path: Path, damage: str) -> None:
    root, tree = repository(tmp_path / "root"), tmp_path / "tree"
    git(root, "worktree", "add", "-q", str(tree))
    git(root, "worktree", "lock", "--reason", "a disk", str(tree))
    assert dotgit.is_linked(root, tree) and not dotgit.is_linked(tree, root)
    git(root, "worktree", "unlock", str(tree))

    subprocess.run(["sh", "-c", damage.format(root=root, tree=tree)], check=True)

    assert not dotgit.is_linked(root, tree) and not dotgit.is_linked(root, Path(f"{tree}-moved"))
