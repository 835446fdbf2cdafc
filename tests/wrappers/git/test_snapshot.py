"""One commit of everything in a tree, with tree, index and branch left as they were."""

import os
import shutil
from pathlib import Path

import pytest

from mam.wrappers.git import command as mam_git
from mam.wrappers.git import snapshot
from mam.wrappers.git.command import GitFailed
from mam.wrappers.git.snapshot import NotCapturable
from tests.support import git, repository
from tests.support.hidden_work import WAYS, commit, family, write

NAMES = ["two words", "한국어.txt", "quote'\"", "line\nbreak", "-dash", "$HOME", "tab\t", "end ", "a\\b", "né\udcff"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return family(tmp_path_factory.mktemp("family"))


@pytest.fixture
def shop(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "shop", symlinks=True)
    return tmp_path / "shop"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = repository(tmp_path / "repo")
    commit(made, "app.py", "print('hello')\n")
    commit(made, "run.sh", "#!/bin/sh\n")
    commit(made, ".gitignore", "*.log\n")
    return made


def held(repo: Path, commit_id: str) -> dict[str, str]:
    """Mode and content's id by path, of a commit."""
    lines = git(repo, "ls-tree", "-r", "-z", commit_id).split("\0")
    return {path: head.replace(" blob ", " ") for head, _, path in (line.partition("\t") for line in lines) if path}


def on_disk(repo: Path) -> dict[str, str]:
    """The same of the files that are there, made without any index."""
    found = {}
    for folder, folders, names in os.walk(repo):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = Path(folder, name)
            mode = "120000" if path.is_symlink() else "100755" if os.access(path, os.X_OK) else "100644"
            data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            blob = repo.parent / "blob"
            blob.write_bytes(data)
            found[str(path.relative_to(repo))] = f"{mode} {git(repo, 'hash-object', '--no-filters', str(blob))}"
    return found


def state(repo: Path) -> tuple[object, ...]:
    """What a capture must leave alone."""
    common = Path(git(repo, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    own = Path(git(repo, "rev-parse", "--absolute-git-dir"))
    return (own / "index").read_bytes(), (own / "HEAD").read_text(), git(repo, "for-each-ref"), sorted(common.glob("*"))


def test_where_all_is_committed_it_is_the_tip_itself(repo: Path) -> None:
    tip = git(repo, "rev-parse", "HEAD")
    before = state(repo)

    assert snapshot.capture(repo, "round 1") == (tip, tip, False)
    assert state(repo) == before


@pytest.mark.req("M25")
def test_a_capture_holds_every_file_as_it_lies_there_and_touches_nothing(repo: Path) -> None:
    write(repo / "app.py", "changed\n")
    git(repo, "add", "app.py")
    write(repo / "app.py", "changed again\n")
    write(repo / "new" / "file.txt")
    write(repo / "planned.txt")
    git(repo, "add", "--intent-to-add", "planned.txt")
    (repo / "run.sh").chmod(0o755)
    git(repo, "config", "core.fileMode", "false")
    (repo / "README").unlink()
    (repo / "link").symlink_to("app.py")
    (repo / "much.log").write_text("ignored", "utf-8")
    for name in NAMES:
        write(repo / name)
    before = state(repo)

    snap = snapshot.capture(repo, "round 1")

    assert state(repo) == before
    expected = on_disk(repo)
    del expected["much.log"]
    assert held(repo, snap.head) == expected
    assert git(repo, "rev-parse", f"{snap.head}^") == snap.tip == git(repo, "rev-parse", "HEAD")
    assert snap.captured and snapshot.still(repo, snap)


@pytest.mark.parametrize("name", ["app.py", *NAMES])
@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_with_an_index_flag_is_captured_as_it_lies_there(repo: Path, flag: str, name: str) -> None:
    commit(repo, f"./{name}")
    git(repo, "update-index", flag, "--", name)
    write(repo / name, "changed\n")

    snap = snapshot.capture(repo, "round 1")

    assert git(repo, "show", f"{snap.head}:{name}") == "changed"
    assert snapshot.still(repo, snap)
    assert git(repo, "ls-files", "-v", "--", f":(literal){name}")[0] in "hS"


def test_a_link_to_nowhere_in_the_place_of_a_file_that_is_skipped_is_captured_as_the_link(repo: Path) -> None:
    git(repo, "update-index", "--skip-worktree", "app.py")
    (repo / "app.py").unlink()
    (repo / "app.py").symlink_to("nowhere")

    snap = snapshot.capture(repo, "round 1")

    assert snap.captured and held(repo, snap.head)["app.py"].startswith("120000 ")
    assert snapshot.still(repo, snap)


def test_no_half_of_an_index_is_left_where_the_configuration_has_it_split(repo: Path) -> None:
    git(repo, "config", "core.splitIndex", "true")
    git(repo, "config", "splitIndex.maxPercentChange", "0")
    write(repo / "more.txt")
    before = state(repo)

    assert snapshot.still(repo, snapshot.capture(repo, "round 1"))

    assert state(repo) == before


def test_a_sparse_tree_keeps_what_is_not_checked_out(repo: Path) -> None:
    commit(repo, "docs/guide.md")
    git(repo, "sparse-checkout", "set", "--no-cone", "/docs/")
    write(repo / "docs" / "more.md")
    write(repo / "app.py", "outside\n")

    snap = snapshot.capture(repo, "round 1")

    assert set(held(repo, snap.head)) == {"README", "run.sh", ".gitignore", "app.py", "docs/guide.md", "docs/more.md"}
    assert git(repo, "show", f"{snap.head}:app.py") == "outside"


def test_the_same_files_give_the_same_tree(repo: Path) -> None:
    write(repo / "app.py", "changed\n")
    trees = {git(repo, "rev-parse", f"{snapshot.capture(repo, text).head}^{{tree}}") for text in ("one", "two")}

    assert len(trees) == 1


def test_a_capture_is_still_what_is_there_until_anything_differs(repo: Path) -> None:
    write(repo / "app.py", "changed\n")
    snap = snapshot.capture(repo, "round 1")
    write(repo / "more.txt")
    assert not snapshot.still(repo, snap)
    (repo / "more.txt").unlink()
    assert snapshot.still(repo, snap)
    git(repo, "update-index", "--assume-unchanged", "app.py")
    write(repo / "app.py", "changed later\n")
    assert not snapshot.still(repo, snap)
    git(repo, "update-index", "--no-assume-unchanged", "app.py")
    git(repo, "checkout", "-q", "app.py")
    assert not snapshot.still(repo, snap)
    clean = snapshot.capture(repo, "round 2")
    assert snapshot.still(repo, clean)
    commit(repo, "more.txt")
    assert not snapshot.still(repo, clean)


def test_a_commit_that_lands_while_the_tree_is_compared_is_seen(repo: Path, tmp_path: Path) -> None:
    """Its files are those that were reviewed, and git says that all is committed; but nobody reviewed that commit."""
    commit(repo, ".gitattributes", "app.py filter=slow\n")
    snap = snapshot.capture(repo, "round 1")
    new = git(repo, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "meanwhile")
    program = tmp_path / "filter"
    program.write_text(f"#!/bin/sh\ngit update-ref refs/heads/main {new} {snap.tip} 2>/dev/null\ncat\n", "utf-8")
    program.chmod(0o755)
    git(repo, "config", "filter.slow.clean", str(program))
    os.utime(repo / "app.py", (1, 1))  # so that git looks into it, through the filter

    assert not snapshot.still(repo, snap)
    assert git(repo, "rev-parse", "HEAD") == new, "this test shows nothing: no commit landed"


STATES = [name for name in WAYS if "progress" in name or name.startswith(("a rebase", "a bisection", "a series"))]
INSIDE = [
    "a repository inside",
    "a repository that is linked but not in .gitmodules",
    "a changed submodule with ignore=all",
    "untracked in a submodule whose own configuration hides it",
    "a changed nested submodule, hidden by the one between",
    "files where a submodule is not checked out",
]


@pytest.mark.parametrize("way", [*STATES, *INSIDE])
def test_what_one_commit_cannot_hold_is_refused_with_its_path(
    shop: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = WAYS[way](shop, monkeypatch)

    with pytest.raises(NotCapturable) as caught:
        snapshot.capture(shop, "round 1")

    assert expected.partition(":")[0].strip("/") in str(caught.value)
    assert caught.value.remedy


def test_a_submodule_at_another_commit_is_refused_with_its_path(shop: Path) -> None:
    commit(shop / "part", "notes.txt")

    with pytest.raises(NotCapturable, match="part"):
        snapshot.capture(shop, "round 1")


@pytest.mark.parametrize("commits", [0, 1])
def test_a_repository_inside_is_never_captured_as_a_mere_link(repo: Path, commits: int) -> None:
    git(repo, "init", "-q", "inside")
    if commits:
        commit(repo / "inside", "file.txt")
    write(repo / "inside" / "file.txt", "precious\n")

    with pytest.raises(NotCapturable, match="inside"):
        snapshot.capture(repo, "round 1")


def test_a_repository_without_commits_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "fresh")
    with pytest.raises(NotCapturable, match="no commit"):
        snapshot.capture(tmp_path / "fresh", "round 1")


def test_settings_and_programs_of_the_repository_change_nothing(repo: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho ran > '{ran}'\nexit 1\n", "utf-8")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "gpg.program", "core.editor"):
        git(repo, "config", name, str(program))
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "commit.template", str(program))
    for hook in ("pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction"):
        shutil.copy(program, repo / ".git" / "hooks" / hook)
    write(repo / "app.py", "changed\n")

    snap = snapshot.capture(repo, "round 1")
    snapshot.pin(repo, "loop-1/1", snap.tip, snap.head)

    assert not ran.exists()
    assert git(repo, "log", "-1", "--format=%an <%ae> %G?", snap.head) == "mam <mam@localhost> N"


def test_a_configuration_that_names_another_work_tree_is_not_followed(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WAYS["a configuration that names another directory as the work tree"](repo, monkeypatch)

    snap = snapshot.capture(repo, "round 1")

    assert "notes.txt" in held(repo, snap.head)


def test_variables_of_another_repository_are_not_followed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tip = git(repo, "rev-parse", "HEAD")
    WAYS["variables of another repository"](repo, monkeypatch)
    other = repo.parent / "other" / ".git"
    before = (other / "index").read_bytes()

    snap = snapshot.capture(repo, "round 1")

    assert snap.tip == tip
    assert (other / "index").read_bytes() == before


def test_a_replaced_commit_is_not_believed(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WAYS["a replaced HEAD that looks as if the work were committed"](repo, monkeypatch)

    snap = snapshot.capture(repo, "round 1")

    monkeypatch.setenv("GIT_NO_REPLACE_OBJECTS", "1")
    assert snap.captured and git(repo, "show", f"{snap.head}:app.py") == "work"
    assert git(repo, "show", f"{snap.tip}:app.py") == "print('hello')"


class TestPins:
    def test_pinned_commits_outlive_a_garbage_collection(self, repo: Path) -> None:
        write(repo / "app.py", "changed\n")
        snap = snapshot.capture(repo, "round 1")
        lost = snapshot.capture(repo, "another message").head
        snapshot.pin(repo, "loop-1/1", snap.tip, snap.head)
        snapshot.pin(repo, "loop-1/1", snap.tip, snap.head)
        git(repo, "checkout", "-q", "app.py")

        git(repo, "gc", "-q", "--prune=now")

        assert snapshot.pinned(repo, "loop-1/1") == (snap.tip, snap.head)
        assert mam_git.resolve(repo, lost) is None
        assert git(repo, "show", f"{snap.head}:app.py") == "changed"

    def test_only_the_pins_of_one_loop_are_let_go(self, repo: Path) -> None:
        tip = git(repo, "rev-parse", "HEAD")
        for name in ("loop-1/1", "loop-1/2", "loop-10/1"):
            snapshot.pin(repo, name, tip, tip)

        assert snapshot.unpin(repo, "loop-1") == 4
        assert snapshot.unpin(repo, "loop-1") == 0
        assert set(snapshot.pins(repo)) == {"loop-10/1/base", "loop-10/1/head"}
        assert snapshot.pinned(repo, "loop-1/1") is None

    def test_pins_go_to_a_remote_and_away_again(self, repo: Path, tmp_path: Path) -> None:
        git(tmp_path, "init", "-q", "--bare", "remote.git")
        git(repo, "remote", "add", "origin", str(tmp_path / "remote.git"))
        write(repo / "app.py", "changed\n")
        snap = snapshot.capture(repo, "round 1")
        for name in ("loop-1/1", "loop-2/1"):
            snapshot.push(repo, "origin", name, snap.tip, snap.head)

        assert git(tmp_path / "remote.git", "rev-parse", f"{snapshot.PINS}/loop-1/1/head") == snap.head
        snapshot.unpush(repo, "origin", "loop-1")
        refs = git(tmp_path / "remote.git", "for-each-ref", "--format=%(refname)").split()
        assert refs == [f"{snapshot.PINS}/loop-2/1/base", f"{snapshot.PINS}/loop-2/1/head"]

    def test_a_remote_that_is_no_name_is_not_taken_for_an_option(self, repo: Path, tmp_path: Path) -> None:
        tip = git(repo, "rev-parse", "HEAD")
        ran = tmp_path / "ran"
        option = f"--upload-pack=touch {ran}"
        with pytest.raises(GitFailed):
            snapshot.push(repo, option, "loop-1/1", tip, tip)
        with pytest.raises(GitFailed):
            snapshot.unpush(repo, option, "loop-1")
        assert not ran.exists()


def test_a_linked_worktree_is_captured_for_itself(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    write(repo / "main-only.txt")
    write(tmp_path / "tree" / "side-only.txt")
    before = state(repo)

    snap = snapshot.capture(tmp_path / "tree", "round 1")

    assert set(held(repo, snap.head)) == {"README", "app.py", "run.sh", ".gitignore", "side-only.txt"}
    assert state(repo) == before
