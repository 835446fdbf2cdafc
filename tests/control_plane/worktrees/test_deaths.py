"""Scorecard 21 to 23: hidden work before a removal, many prepares at once, and processes that die at any moment."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees.prepare import WorktreeRequest
from mam.wrappers.git import snapshot
from mam.wrappers.git.snapshot import NotCapturable
from tests.support import FULL, MAM, Root, git, size
from tests.support.hidden_work import FILE, WAYS, commit, family, write

Figure = Callable[[str, float], None]

HIDING = [
    "untracked, status.showUntrackedFiles=no",
    "untracked in a submodule whose own configuration hides it",
    "untracked in a submodule, hidden by the user's configuration",
    "a changed submodule with ignore=all",
    "a changed nested submodule, hidden by the one between",
    "assume-unchanged",
    "skip-worktree",
    "staged, then deleted",
    "a merge in progress that changed nothing yet",
    "a submodule's commit that nobody else has",
    "a change of mode with core.fileMode=false",
    "files where a submodule is not checked out",
    "a commit of a submodule that was deinitialised since",
    "a commit of a submodule that was removed since",
    "a commit of a submodule that is on an unborn branch now",
    "a conflict of a stash, which no operation in progress tells of",
    "a link to nowhere, skip-worktree",
]
# tests/wrappers/git/test_uncommitted.py sees the work in each of these; here it is a removal that asks.
ASKED = HIDING if FULL else HIDING[::3]


def files(tree: Path) -> dict[str, str]:
    """Every file below *tree* with its content."""
    paths = [path for path in sorted(tree.rglob("*")) if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.mark.req("M47")
@pytest.mark.scorecard(21)
def test_work_hidden_in_any_way_stops_a_removal_with_its_path(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    """In one repository, so that the settings of each way hide the work of the later ones, too."""
    family(tmp_path / "family")
    commit(root.path, "app.py", "print('hello')\n")
    commit(root.path, "run.sh", "#!/bin/sh\n")
    git(root.path, *FILE, "submodule", "--quiet", "add", str(tmp_path / "family" / "part"), "part")
    git(root.path, *FILE, "submodule", "--quiet", "update", "--init", "--recursive")
    git(root.path, "commit", "-qm", "part")
    for number, way in enumerate(ASKED):
        tree = Path(worktrees.prepare(root.parts, WorktreeRequest(f"t{number}", venv=False)).path)
        expected = WAYS[way](tree, monkeypatch)
        before = files(tree)

        said = root.mam("worktree", "remove", f"t{number}", "--json")

        assert (said.code, said.error["code"]) == (1, "worktree_dirty"), way
        assert expected in said.error["message"], way
        assert files(tree) == before
        figure("refused", 1)
        try:
            snap = snapshot.capture(tree, "round")
        except NotCapturable as error:
            assert error.data["why"]
        else:
            assert snap.captured or "commit" in way, f"{way}: captured as if there were nothing"
        assert files(tree) == before
    figure("ways", len(ASKED))


class Entries:
    """What worktrees are made of, read from the file system; and what must be left of it."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.admin = root.path / ".git" / "worktrees"
        self.beside = root.path.parent / f"{root.path.name}.worktrees"

    def now(self) -> dict[str, list[str]]:
        admin = sorted(path.name for path in self.admin.iterdir()) if self.admin.is_dir() else []
        beside = sorted(path.name for path in self.beside.iterdir()) if self.beside.is_dir() else []
        with self.root.registry.view() as view:
            rows = sorted(row.name for row in view.worktrees())
        branches = git(self.root.path, "branch", "--format=%(refname:short)").split()
        return {"admin": admin, "trees": beside, "rows": rows, "branches": sorted(branches)}

    def expect(self, *names: str, branches: tuple[str, ...] = ()) -> None:
        names_ = sorted(names)
        expected = sorted({"main", *names, *branches})
        assert self.now() == {"admin": names_, "trees": names_, "rows": names_, "branches": expected}
        locks = [
            path.name for path in self.root.path.joinpath(".git").rglob("*.lock") if path.name != "mam-worktrees.lock"
        ]
        assert locks == []
        listed = git(self.root.path, "worktree", "list", "--porcelain")
        assert "prunable" not in listed and "locked" not in listed


TREES, RIVALS = size(10, 40), size(4, 10)  # each on a branch of its own; all on one branch


@pytest.mark.req("M39", "M48")
@pytest.mark.scorecard(22)
def test_many_prepares_at_once_with_a_prune_loop_have_one_winner_a_branch_and_no_leftovers(
    root: Root, figure: Figure
) -> None:
    git(root.path, "branch", "shared")
    wanted = [[f"t{number:02}"] for number in range(TREES)] + [
        [f"s{number}", "--branch", "shared"] for number in range(RIVALS)
    ]
    environ = {**os.environ, **root.env}
    done = threading.Event()

    def prune() -> None:
        while not done.is_set():
            subprocess.run(
                ["git", "worktree", "prune", "--expire=now"], cwd=root.path, capture_output=True, check=False
            )

    pruning = threading.Thread(target=prune)
    pruning.start()
    began = time.monotonic()
    try:
        children = [
            subprocess.Popen(
                [MAM, "worktree", "prepare", *words, "--no-venv", "--json"],
                cwd=root.path,
                env=environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for words in wanted
        ]
        said = [child.communicate(timeout=170)[1] for child in children]
    finally:
        done.set()
        pruning.join()
    figure("seconds", time.monotonic() - began)

    codes = [child.returncode for child in children]
    assert codes[:TREES] == [0] * TREES, [text for code, text in zip(codes[:TREES], said, strict=False) if code]
    assert Counter(codes[TREES:]) == {0: 1, 1: RIVALS - 1}
    refusals = [json.loads(text.splitlines()[-1])["error"]["code"] for text in said[TREES:] if '"error"' in text]
    assert refusals == ["branch_taken"] * (RIVALS - 1)
    winner = wanted[TREES + codes[TREES:].index(0)][0]
    trees = [words[0] for words in wanted[:TREES]]
    assert Entries(root).now() == {
        "admin": sorted([*trees, winner]),
        "trees": sorted([*trees, winner]),
        "rows": sorted([*trees, winner]),
        "branches": sorted(["main", "shared", *trees]),
    }
    heads = git(root.path, "worktree", "list", "--porcelain").count("branch refs/heads/")
    assert heads == TREES + 2
    figure("prepares", len(wanted))
    figure("leftovers", 0)


STRIKES = size(4, 10)
PREPARE = ["worktree.row:1", "tree.add:1", "tree.added:1", "worktree.submodules:1", "worktree.fitted:1"]
PREPARE += [f"registry.{step}:{nth}" for step in ("commit", "committed") for nth in (1, 2)]
REMOVE = ["worktree.removing:1", "worktree.saved:1", "worktree.remove:1", "tree.discard:1", "worktree.removed:1"]
REMOVE += [f"registry.{step}:{nth}" for step in ("commit", "committed") for nth in (1, 2)]


@pytest.fixture
def busy(root: Root) -> Iterator[Root]:
    """A control root with a neighbour that has undone work, and one whose disk is away; both must stay as they are."""
    commit(root.path, ".gitignore", ".env\n")
    for name in ("neighbour", "away"):
        tree = Path(worktrees.prepare(root.parts, WorktreeRequest(name, venv=False)).path)
        write(tree / "undone.txt")
    tree.rename(root.path.parent / "unmounted")
    before = files(root.path.parent / "repo.worktrees" / "neighbour")
    yield root
    (root.path.parent / "unmounted").rename(tree)
    for name in ("neighbour", "away"):
        assert git(root.path.parent / "repo.worktrees" / name, "status", "--porcelain") == "?? undone.txt"
    assert files(root.path.parent / "repo.worktrees" / "neighbour") == before


def converged(root: Root, *names: str, branches: tuple[str, ...] = ()) -> None:
    """Nothing is there but *names* and the two neighbours."""
    found = Entries(root).now()
    others = ["away", "neighbour"]
    assert found["rows"] == found["admin"] == sorted([*others, *names])
    assert found["trees"] == sorted(["neighbour", *names])
    assert found["branches"] == sorted({*others, "main", *names, *branches})
    locks = [path for path in root.path.joinpath(".git").rglob("*.lock") if path.name != "mam-worktrees.lock"]
    assert locks == []


def dies(root: Root, point: str, *words: str) -> None:
    said = root.mam("worktree", *words, env={"MAM_FAULT": f"cli@{point}:crash"})
    assert said.code == -signal.SIGKILL, f"{point} was not reached\n{said.err}"


@pytest.mark.req("M39", "M48")
@pytest.mark.scorecard(23)
@pytest.mark.parametrize("then", ["prepare", "remove"])
def test_a_prepare_that_dies_at_any_step_is_finished_or_undone_by_the_next_verb(
    busy: Root, then: str, figure: Figure
) -> None:
    for number, point in enumerate(PREPARE):
        name = f"p{number}"
        dies(busy, point, "prepare", name, "--no-venv", "--setup", "true")
        with busy.registry.view() as view:
            row = view.worktree(name)
        if then == "prepare" or row is None:
            busy.ok("worktree", "prepare", name, "--no-venv")
            tree = busy.path.parent / "repo.worktrees" / name
            assert git(tree, "status", "--porcelain") == "" and git(tree, "branch", "--show-current") == name
            converged(busy, name, branches=tuple(f"p{n}" for n in range(number)))
        busy.ok("worktree", "remove", name)
        git(busy.path, "branch", "-f", name, "main")  # one that was not made yet as well
        converged(busy, branches=tuple(f"p{n}" for n in range(number + 1)))
        figure("strikes", 1)


@pytest.mark.req("M48")
@pytest.mark.scorecard(23)
@pytest.mark.parametrize("then", ["remove", "prepare"])
def test_a_remove_that_dies_at_any_step_is_finished_or_undone_by_the_next_verb(
    busy: Root, then: str, figure: Figure
) -> None:
    for number, point in enumerate(REMOVE):
        name = f"r{number}"
        tree = Path(worktrees.prepare(busy.parts, WorktreeRequest(name, venv=False)).path)
        sha = commit(tree, "work.txt")
        write(tree / ".env", "secret\n")
        dies(busy, point, "remove", name)
        branches = tuple(f"r{n}" for n in range(number))
        if then == "prepare":
            busy.ok("worktree", "prepare", name, "--no-venv")
            assert git(tree, "rev-parse", "HEAD") == sha and git(tree, "status", "--porcelain") == ""
            converged(busy, name, branches=branches)
        with busy.registry.view() as view:
            row = view.worktree(name)
        if row is not None and row.state != "removed":
            busy.ok("worktree", "remove", name)
        converged(busy, branches=(*branches, name))
        assert git(busy.path, "rev-parse", name) == sha
        saved = list((busy.path / ".mam" / "lost-and-found").glob(f"worktree-{name}-*/.env"))
        assert [path.read_text() for path in saved] == ["secret\n"]
        figure("strikes", 1)


# What a git that dies in the middle of `worktree add` has not written yet, from its end to its beginning; and the locks
# that it may hold at that moment.
UNWRITTEN = ("index", "commondir", "HEAD", "tree/.git", "gitdir", "tree", "locked", "")
HELD = ("index.lock", "HEAD.lock", "ORIG_HEAD.lock")


def half_add(root: Root, name: str, unwritten: int) -> None:
    """Leave of a tree, its entry and its branch what git has made of them when it is killed."""
    tree = root.path.parent / "repo.worktrees" / name
    admin = root.path / ".git" / "worktrees" / name
    git(root.path, "worktree", "lock", "--reason", "initializing", str(tree))
    for lock in HELD:
        (admin / lock).touch()
    git_lock = root.path / ".git" / "refs" / "heads" / f"{name}.lock"
    git_lock.touch()
    for what in UNWRITTEN[:unwritten]:
        if what == "":
            shutil.rmtree(admin)
        elif what == "tree":
            tree.rmdir()
        elif what == "tree/.git":  # nothing is checked out before
            shutil.rmtree(tree)
            tree.mkdir()
        else:
            (admin / what).unlink()
    for path in (git_lock, *((admin, *admin.iterdir()) if admin.exists() else ())):
        os.utime(path, (time.time() - 60,) * 2)


@pytest.mark.scorecard(23)
@pytest.mark.parametrize("unwritten", range(len(UNWRITTEN) + 1))
def test_whatever_a_killed_git_has_not_written_yet_the_next_verb_goes_on(
    busy: Root, unwritten: int, figure: Figure
) -> None:
    for then in ("prepare", "remove"):
        dies(busy, "tree.added:1", "prepare", then, "--no-venv")
        half_add(busy, then, unwritten)
    busy.ok("worktree", "prepare", "prepare", "--no-venv")
    assert git(busy.path.parent / "repo.worktrees" / "prepare", "status", "--porcelain") == ""

    busy.ok("worktree", "remove", "remove")

    converged(busy, "prepare", branches=("remove",))
    busy.ok("worktree", "remove", "prepare")
    figure("strikes", 2)


@pytest.mark.scorecard(23)
@pytest.mark.parametrize("verb", ["prepare", "remove"])
def test_killed_at_any_moment_alone_or_with_its_git_the_same_verb_goes_on(
    busy: Root, dice: random.Random, verb: str, figure: Figure
) -> None:
    for number in range(400):
        (busy.path / f"file{number}.txt").write_text("text\n" * 200)
    git(busy.path, "add", "--all")
    git(busy.path, "commit", "-qm", "many")
    environ = {**os.environ, **busy.env}
    took_s = 0.0
    killed = 0
    names: list[str] = []
    for number in range(30):
        if killed == STRIKES:
            break
        name = f"k{number}"
        words = [verb, name, *(["--no-venv"] if verb == "prepare" else [])]
        if verb == "remove":
            worktrees.prepare(busy.parts, WorktreeRequest(name, venv=False))
        began = time.monotonic()
        child = subprocess.Popen(
            [MAM, "worktree", *words], cwd=busy.path, env=environ, stdout=-3, stderr=-3, start_new_session=True
        )
        strike_s = dice.uniform(0.3, 0.9) * took_s if number else None  # the first one shows how long it takes
        try:
            child.wait(strike_s)
            took_s = time.monotonic() - began
        except subprocess.TimeoutExpired:
            killed += 1
            os.killpg(child.pid, signal.SIGKILL) if number % 2 else child.kill()
            child.wait()
        with busy.registry.view() as view:
            row = view.worktree(name)
        if verb == "prepare" or (row is not None and row.state != "removed"):
            busy.ok("worktree", *words)
        names.append(name)
        if verb == "prepare":
            assert git(busy.path.parent / "repo.worktrees" / name, "status", "--porcelain") == ""
            converged(busy, *names)
        else:
            converged(busy, branches=tuple(names))
    assert killed == STRIKES
    figure("strikes", killed)


FILES = size(2_000, 20_000)


def test_a_large_repository_is_prepared_listed_and_removed(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No work grows with the square of the files: git is asked a fixed number of questions, however many there are."""
    stream = ["commit refs/heads/main\ncommitter x <x@localhost> 1700000000 +0000\ndata 4\nmany\n"]
    stream.append("from refs/heads/main^0\n")
    for number in range(FILES):
        stream.append(f"M 100644 inline d{number % 200}/f{number}.txt\ndata 5\n{number:05}\n")
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root.path, input="".join(stream), text=True, check=True)
    git(root.path, "reset", "-q", "--hard")
    asked: Counter[str] = Counter()
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho x >> "{tmp_path}/asked"\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}")

    def questions(call: Callable[[], Any]) -> int:
        (tmp_path / "asked").write_text("")
        call()
        return (tmp_path / "asked").read_text().count("x")

    tree = root.path.parent / "repo.worktrees" / "one"
    asked["prepare"] = questions(lambda: root.ok("worktree", "prepare", "one", "--no-venv", timeout_s=120))
    assert len(git(tree, "ls-files").splitlines()) == FILES + 1
    asked["list"] = questions(lambda: root.ok("worktree", "list"))
    for number in range(0, FILES, 2):
        (tree / f"d{number % 200}" / f"f{number}.txt").write_text("changed\n")
    git(tree, "update-index", "--assume-unchanged", *(f"d{n % 200}/f{n}.txt" for n in range(0, 400, 2)))
    dirty = root.mam("worktree", "remove", "one", "--json", timeout_s=120)
    assert dirty.error["data"]["count"] == FILES // 2
    snap = snapshot.capture(tree, "round")
    assert len(git(tree, "diff", "--name-only", "HEAD", snap.head).splitlines()) == FILES // 2
    git(tree, "update-ref", "HEAD", snap.head)
    git(tree, "reset", "-q")
    asked["remove"] = questions(lambda: root.ok("worktree", "remove", "one", timeout_s=120))

    assert not tree.exists()
    assert all(0 < count < 40 for count in asked.values()), asked
