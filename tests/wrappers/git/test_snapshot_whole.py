"""One exact commit of a work tree: everything that git does not ignore is in it, and the tree stays as it was."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.wrappers.git import command as door
from mam.wrappers.git import snapshot
from mam.wrappers.git.snapshot import NotCapturable
from tests.support import git, repository


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A linked worktree with some files."""
    main = repository(tmp_path / "main")
    (main / ".gitignore").write_text("*.log\n")
    (main / "kept").mkdir()
    for name in ("a", "b", "kept/c"):
        (main / name).write_text(f"{name} before\n")
    git(main, "add", ".")
    git(main, "commit", "-qm", "second")
    git(main, "worktree", "add", "-q", "-b", "work", str(tmp_path / "tree"))
    return tmp_path / "tree"


def state(tree: Path) -> dict[str, str]:
    """What a snapshot must leave as it is: files, index, HEAD, refs."""
    own = Path(git(tree, "rev-parse", "--absolute-git-dir"))
    quiet = ["--no-optional-locks", "-c", "core.quotePath=false"]
    found = {"index": (own / "index").read_bytes().hex(), "head": (own / "HEAD").read_text()}
    found["status"] = git(tree, *quiet, "status", "--porcelain=v2", "--ignored", "--untracked-files=all")
    found["refs"] = git(tree, "for-each-ref")
    for path in tree.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            found[str(path)] = path.read_text("utf-8", "replace")
    return found


def shown(tree: Path, head: str, name: str) -> str | None:
    done = subprocess.run(["git", "show", f"{head}:{name}"], cwd=tree, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def write(name: str, text: str = "after\n") -> Callable[[Path], None]:
    def do(tree: Path) -> None:
        (tree / name).write_text(text)

    return do


def run(*lines: str) -> Callable[[Path], None]:
    def do(tree: Path) -> None:
        subprocess.run(["sh", "-ec", "\n".join(lines)], cwd=tree, check=True, capture_output=True)

    return do


AFTER = "echo after > a"
# name: how the work is hidden, and what the snapshot must say of one file
HIDDEN: dict[str, tuple[Callable[[Path], None], str, str | None]] = {
    "changed": (write("a"), "a", "after\n"),
    "untracked": (write("new"), "new", "after\n"),
    "untracked in a folder": (run("mkdir -p x/y; echo after > x/y/z"), "x/y/z", "after\n"),
    "untracked, not shown by settings": (
        run("git config status.showUntrackedFiles no; echo after > new"),
        "new",
        "after\n",
    ),
    "staged": (run(AFTER, "git add a"), "a", "after\n"),
    "staged and changed again": (run("echo x > a", "git add a", AFTER), "a", "after\n"),
    "staged, then deleted": (run("echo x > new; git add new; rm new; echo after > a"), "new", None),
    "deleted": (run("rm a"), "a", None),
    "deleted from the index alone": (run("git rm -q --cached a"), "a", "a before\n"),
    "intent to add": (run("echo after > new; git add -N new"), "new", "after\n"),
    "assumed unchanged": (run("git update-index --assume-unchanged a", AFTER), "a", "after\n"),
    "skipped": (run("git update-index --skip-worktree a", AFTER), "a", "after\n"),
    "skipped and assumed": (
        run("git update-index --skip-worktree a; git update-index --assume-unchanged a", AFTER),
        "a",
        "after\n",
    ),
    "outside of a sparse checkout": (
        run("git sparse-checkout set --no-cone '/kept/'; echo after > new"),
        "new",
        "after\n",
    ),
    "of a sparse checkout that left it out": (
        run("git sparse-checkout set --no-cone '/kept/'; echo after > kept/c"),
        "a",
        "a before\n",
    ),
    "stat not trusted": (
        run("git config core.trustctime false; git config core.checkStat minimal", "sleep 0.01", AFTER),
        "a",
        "after\n",
    ),
    "line ends": (
        run("git config core.autocrlf input; git config core.safecrlf true; printf 'x\\r\\n' > a"),
        "a",
        "x\n",
    ),
    "errors ignored by settings": (run("git config add.ignoreErrors true", AFTER), "a", "after\n"),
    "a renamed folder": (run("mv kept moved"), "moved/c", "kept/c before\n"),
    "a file in a folder's place": (run("rm -r kept; echo after > kept"), "kept", "after\n"),
    "korean, spaces, newline": (write("한 글\nx"), "한 글\nx", "after\n"),
    "a leading dash": (write("-f"), "-f", "after\n"),
    "a split index": (run("git update-index --split-index", AFTER), "a", "after\n"),
}


@pytest.mark.req("M55")
@pytest.mark.parametrize(("change", "name", "text"), HIDDEN.values(), ids=HIDDEN.keys())
def test_uncommitted_work_is_in_the_snapshot_however_it_is_hidden_and_nothing_is_touched(
    tree: Path, change: Callable[[Path], None], name: str, text: str | None
) -> None:
    change(tree)
    before, tip = state(tree), git(tree, "rev-parse", "HEAD")

    snap = snapshot.capture(tree, "snapshot")

    assert state(tree) == before
    assert (snap.captured, snap.tip) == (True, tip) and snap.head != tip
    assert shown(tree, snap.head, name) == text
    assert git(tree, "rev-parse", f"{snap.head}^") == tip
    assert snapshot.still(tree, snap)


@pytest.mark.req("M55")
def test_the_mode_of_a_file_is_part_of_it_whatever_the_settings_say(tree: Path) -> None:
    git(tree, "config", "core.fileMode", "false")
    (tree / "a").chmod(0o755)

    snap = snapshot.capture(tree, "snapshot")

    assert git(tree, "ls-tree", snap.head, "a").startswith("100755")


def test_what_git_ignores_is_left_out(tree: Path) -> None:
    (tree / "x.log").write_text("l")
    (tree / "a").write_text("after\n")

    assert shown(tree, snapshot.capture(tree, "s").head, "x.log") is None


def test_a_clean_tree_is_its_own_tip(tree: Path) -> None:
    tip = git(tree, "rev-parse", "HEAD")

    assert snapshot.capture(tree, "s") == (tip, tip, False)


def test_the_same_work_is_the_same_commit_whenever_it_is_captured(tree: Path) -> None:
    (tree / "a").write_text("after\n")
    first = snapshot.capture(tree, "s")
    subprocess.run(["touch", "-d", "2001-01-01", "a"], cwd=tree, check=True)

    assert snapshot.capture(tree, "s") == first


def move_away(tree: Path) -> None:
    tree.rename(tree.with_name("moved"))


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a repository inside": (run("git init -q sub; cd sub; git commit -q --allow-empty -m x"), "repository of its own"),
    "a repository without commits": (run("git init -q sub; echo x > sub/file"), "repository of its own"),
    "a repository deeper inside": (run("git init -q x/sub; cd x/sub; git commit -q --allow-empty -m x"), "x/sub"),
    "a worktree inside": (run("git worktree add -q -b other sub"), "repository of its own"),
    "a merge in progress": (
        run("git commit -qam x --allow-empty; git switch -q -c s HEAD~; echo s > a; git commit -qam s",
            "git switch -q work; echo w > a; git commit -qam w; git merge s || true"),
        "a merge in progress",
    ),
    "a rebase in progress": (
        run("git switch -q -c s; echo s > a; git commit -qam s; git switch -q work; echo w > a; git commit -qam w",
            "git rebase s || true"),
        "a rebase in progress",
    ),
    "no directory": (move_away, "directory is gone"),
}  # fmt: skip


@pytest.mark.req("M55")
@pytest.mark.parametrize(("change", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_one_commit_cannot_hold_is_refused_with_a_remedy_and_nothing_is_touched(
    tree: Path, change: Callable[[Path], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "t@localhost")
    change(tree)
    before = state(tree) if tree.exists() else {}

    with pytest.raises(NotCapturable) as caught:
        snapshot.capture(tree, "s")

    assert why in str(caught.value) and caught.value.remedy
    assert (state(tree) if tree.exists() else {}) == before


@pytest.mark.req("M55")
@pytest.mark.parametrize(
    "hide", ["", "git config status.showUntrackedFiles no", "git config diff.ignoreSubmodules all"]
)
def test_changes_inside_a_submodule_are_refused_however_they_are_hidden(tree: Path, tmp_path: Path, hide: str) -> None:
    inner = repository(tmp_path / "inner")
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    git(tree, "commit", "-qam", "with a submodule")
    assert not snapshot.capture(tree, "s").captured
    subprocess.run(["sh", "-c", f"{hide or 'true'}; cd sub && {hide or 'true'}; echo x > new"], cwd=tree, check=True)

    with pytest.raises(NotCapturable, match="sub"):
        snapshot.capture(tree, "s")


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")

    with pytest.raises(NotCapturable, match="no commit yet"):
        snapshot.capture(tmp_path, "s")


@pytest.mark.req("M56")
@pytest.mark.parametrize(
    "move",
    [
        "echo more >> a",
        "echo x > other",
        "rm new",
        "git add -A && git -c user.name=x -c user.email=x@localhost commit -qm all",
        "git -c user.name=x -c user.email=x@localhost commit -q --allow-empty -m empty",
        "git switch -q -c elsewhere && git -c user.name=x -c user.email=x@localhost commit -q --allow-empty -m e",
        "git checkout -q -- . && rm new",
        "chmod +x a",
    ],
)
@pytest.mark.parametrize("captured", [True, False])
def test_whatever_moves_in_the_tree_afterwards_is_seen(tree: Path, move: str, captured: bool) -> None:
    (tree / "new").write_text("new\n")
    if captured:
        (tree / "a").write_text("after\n")
    else:
        git(tree, "add", ".")
        git(tree, "commit", "-qm", "new")
    snap = snapshot.capture(tree, "s")
    assert snapshot.still(tree, snap)

    moved = subprocess.run(["sh", "-c", move], cwd=tree, capture_output=True).returncode == 0

    assert moved or not captured  # there is nothing to commit where all is committed
    assert snapshot.still(tree, snap) != moved


def test_work_that_was_put_on_the_branch_as_reviewed_still_is_what_was_reviewed(tree: Path) -> None:
    (tree / "new").write_text("new\n")
    snap = snapshot.capture(tree, "s")
    git(tree, "update-ref", "HEAD", snap.head)
    on = snap._replace(tip=snap.head)

    assert snapshot.still(tree, on)  # the index has not followed yet
    git(tree, "reset", "-q")
    assert snapshot.still(tree, on)
    (tree / "new").write_text("newer\n")
    assert not snapshot.still(tree, on)


def test_pins_keep_commits_from_collection_until_they_are_let_go(tree: Path) -> None:
    (tree / "new").write_text("new\n")
    snap = snapshot.capture(tree, "s")
    snapshot.pin(tree, "loop-1/1", snap.tip, snap.head)
    snapshot.pin(tree, "loop-11/1", snap.tip, snap.head)
    git(tree, "reflog", "expire", "--expire=now", "--all")
    git(tree, "gc", "-q", "--prune=now")

    assert snapshot.pinned(tree, "loop-1/1") == (snap.tip, snap.head)
    assert snapshot.unpin(tree, "loop-1") == 2 and snapshot.unpin(tree, "loop-1") == 0
    assert snapshot.pinned(tree, "loop-11/1") == (snap.tip, snap.head)
    snapshot.unpin(tree, "loop-11")
    git(tree, "gc", "-q", "--prune=now")
    assert door.resolve(tree, snap.head) is None
