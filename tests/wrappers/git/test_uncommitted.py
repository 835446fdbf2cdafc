"""What is not committed is seen, however it is hidden; and looking changes nothing."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.wrappers.git import uncommitted
from mam.wrappers.git.command import GitFailed
from tests.support import git, repository
from tests.support.hidden_work import WAYS, commit, family, write

NAMES = [
    "two words",
    "한국어.txt",
    "quote'\"",
    "line\nbreak",
    "-dash",
    "$HOME",
    "tab\t",
    "end ",
    "a\\b",
    "*",
    "né\udcff",
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return family(tmp_path_factory.mktemp("family"))


@pytest.fixture
def shop(original: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of a repository with submodules that are checked out."""
    shutil.copytree(original, tmp_path / "shop", symlinks=True)
    yield tmp_path / "shop"


@pytest.fixture
def linked(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "main", symlinks=True)
    git(tmp_path / "main", "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    return tmp_path / "tree"


def said(found: list[uncommitted.UncommittedChange]) -> str:
    return "\n".join(map(str, found))


def files(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file below, .git included, with its content and its time; git itself renews the time of a shared index."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            at = 0 if path.name.startswith("sharedindex.") else path.stat().st_mtime_ns
            found[str(path.relative_to(folder))] = (hashlib.sha256(path.read_bytes()).hexdigest(), at)
    return found


def test_where_all_is_committed_nothing_is_found(shop: Path) -> None:
    assert uncommitted.look(shop, unpushed_submodules=True) == []


@pytest.mark.req("M47")
@pytest.mark.parametrize("way", WAYS)
def test_hidden_work_is_found_and_named(shop: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = WAYS[way](shop, monkeypatch)

    assert expected in said(uncommitted.look(shop, unpushed_submodules=True))


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_told_as_it_is(shop: Path, name: str) -> None:
    write(shop / name)
    write(shop / "folder" / name)
    write(shop / "part" / name)
    paths = {item.path for item in uncommitted.look(shop)}

    assert {name, f"folder/{name}", f"part/{name}"} <= paths


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_an_index_flag_on_a_file_without_changes_is_no_dirt(shop: Path, flag: str) -> None:
    git(shop, "update-index", flag, "app.py")

    assert uncommitted.look(shop) == []


def test_a_sparse_tree_is_clean_and_a_file_outside_of_its_part_is_seen(shop: Path) -> None:
    commit(shop, "docs/guide.md")
    git(shop, "sparse-checkout", "set", "--no-cone", "/docs/")
    assert not (shop / "app.py").exists()
    assert uncommitted.look(shop) == []

    write(shop / "app.py")

    assert "app.py" in said(uncommitted.look(shop))


def test_ignored_files_are_no_dirt(shop: Path) -> None:
    commit(shop, ".gitignore", "*.log\n")
    write(shop / "much.log")

    assert uncommitted.look(shop) == []


def test_a_pointer_of_a_filter_that_is_not_installed_is_clean(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    if shutil.which("git-lfs"):
        pytest.skip("git-lfs is installed: its filter works")
    commit(repo, "big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    commit(repo, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    for name, program in (("clean", "git-lfs clean %f"), ("smudge", "git-lfs smudge %f"), ("required", "true")):
        git(repo, "config", f"filter.lfs.{name}", program)
    (repo / "big.bin").touch()

    assert uncommitted.look(repo) == []
    write(repo / "big.bin", "changed\n")
    assert said(uncommitted.look(repo)) == "big.bin: changed"


@pytest.mark.parametrize(
    "way", ["assume-unchanged", "files where a submodule is not checked out", "staged, then deleted"]
)
def test_looking_changes_no_file_at_all(shop: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    git(shop, "config", "core.splitIndex", "true")
    WAYS[way](shop, monkeypatch)
    before = files(shop)

    uncommitted.look(shop, unpushed_submodules=True)

    assert files(shop) == before


def test_a_linked_worktree_is_looked_at_for_itself(linked: Path) -> None:
    write(linked.parent / "main" / "notes.txt")
    git(linked.parent / "main", "bisect", "start")

    assert uncommitted.look(linked) == []
    git(linked, "bisect", "start")
    assert said(uncommitted.look(linked)) == ".: a bisection in progress"


@pytest.mark.req("M47")
@pytest.mark.parametrize("ref", ["refs/heads/kept", "refs/tags/kept", "refs/remotes/origin/kept"])
def test_a_commit_on_a_branch_a_tag_or_a_remote_is_not_only_here(linked: Path, ref: str) -> None:
    git(linked, "checkout", "-q", "--detach")
    sha = commit(linked, "idea.txt")
    git(linked, "update-ref", "refs/mam/review/loop-1/1/head", sha)  # let go of with its loop

    assert said(uncommitted.only_here(linked)).startswith(f"HEAD: commit {sha[:12]} is on no branch")
    git(linked, "update-ref", ref, sha)
    assert uncommitted.only_here(linked) == []


def test_programs_that_the_repository_names_are_not_run(shop: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho ran > '{ran}'\n", "utf-8")
    program.chmod(0o755)
    for tree in (shop, shop / "part"):
        for name in ("core.fsmonitor", "diff.external", "core.pager", "core.editor", "core.sshCommand"):
            git(tree, "config", name, str(program))
        hooks = Path(git(tree, "rev-parse", "--absolute-git-dir")) / "hooks"
        for hook in ("post-index-change", "post-checkout", "reference-transaction", "pre-commit"):
            (hooks / hook).write_text(program.read_text("utf-8"), "utf-8")
            (hooks / hook).chmod(0o755)
    git(shop, "update-index", "--assume-unchanged", "app.py")
    git(shop / "part", "update-index", "--assume-unchanged", "app.py")
    ran.unlink(missing_ok=True)
    write(shop / "app.py")
    write(shop / "part" / "app.py")

    assert {"app.py", "part/app.py"} <= {item.path for item in uncommitted.look(shop, unpushed_submodules=True)}
    assert not ran.exists()


def test_a_tree_that_cannot_be_looked_at_is_an_error_and_never_clean(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "tree" / ".git").write_text("gitdir: /nowhere\n", "utf-8")
    with pytest.raises(GitFailed):
        uncommitted.look(tmp_path / "tree")
    (repo / ".git" / "index").write_bytes(b"no index")
    with pytest.raises(GitFailed):
        uncommitted.look(repo)


def test_a_submodule_that_cannot_be_looked_at_is_dirt_or_an_error(shop: Path) -> None:
    (shop / "part" / ".git").write_text("gitdir: /nowhere\n", "utf-8")
    try:
        found = uncommitted.look(shop)
    except GitFailed:
        return
    assert "part/" in said(found)


def test_a_shared_configuration_that_says_bare_is_an_error_and_never_clean(linked: Path) -> None:
    write(linked / "notes.txt")
    git(linked, "config", "core.bare", "true")
    try:
        assert "notes.txt" in said(uncommitted.look(linked))
    except GitFailed:
        pass


def test_a_repository_without_commits_shows_what_it_holds(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "fresh")
    write(tmp_path / "fresh" / "notes.txt")

    assert said(uncommitted.look(tmp_path / "fresh")) == "notes.txt: untracked"
