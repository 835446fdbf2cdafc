"""A repository with submodules in two levels, and every known way to have work in a tree that git does not show."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import git, repository, until

FILE = ("-c", "protocol.file.allow=always")
LONG_AGO = 1_500_000_000


def family(folder: Path) -> Path:
    """A repository `shop` with the submodule `part`, which has the submodule `deep`; all is committed and pushed."""
    for name in ("deep", "part", "shop"):
        made = repository(folder / name)
        (made / "app.py").write_text("print('hello')\n", "utf-8")
        (made / "run.sh").write_text("#!/bin/sh\n", "utf-8")
        git(made, "add", ".")
        git(made, "commit", "-qm", "second")
    git(folder / "part", *FILE, "submodule", "--quiet", "add", str(folder / "deep"), "deep")
    git(folder / "part", "commit", "-qm", "deep")
    shop = folder / "shop"
    git(shop, *FILE, "submodule", "--quiet", "add", str(folder / "part"), "part")
    git(shop, *FILE, "submodule", "--quiet", "update", "--init", "--recursive")
    git(shop, "commit", "-qm", "part")
    return shop


def write(path: Path, text: str = "work\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def commit(tree: Path, name: str, text: str = "work\n") -> str:
    write(tree / name, text)
    git(tree, "add", name)
    git(tree, "commit", "-qm", f"write {name}")
    return git(tree, "rev-parse", "HEAD")


def fails(tree: Path, *words: str) -> None:
    """A git command that is meant to stop half-way."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    done = subprocess.run(["git", *identity, *words], cwd=tree, capture_output=True, text=True)
    assert done.returncode != 0, f"git {' '.join(words)} was meant to stop half-way\n{done.stdout}"


Patch = pytest.MonkeyPatch
Way = Callable[[Path, Patch], str]
WAYS: dict[str, Way] = {}


def way(name: str) -> Callable[[Way], Way]:
    def keep(function: Way) -> Way:
        WAYS[name] = function
        return function

    return keep


@way("untracked, status.showUntrackedFiles=no")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "config", "status.showUntrackedFiles", "no")
    write(tree / "notes.txt")
    return "notes.txt"


@way("untracked in a submodule whose own configuration hides it")
def _(tree: Path, _patch: Patch) -> str:
    git(tree / "part", "config", "status.showUntrackedFiles", "no")
    write(tree / "part" / "notes.txt")
    return "part/notes.txt"


@way("untracked in a submodule, hidden by the user's configuration")
def _(tree: Path, patch: Patch) -> str:
    write(tree / "part" / "notes.txt")
    mine = tree.parent / "gitconfig"
    mine.write_text("[status]\nshowUntrackedFiles = no\n", "utf-8")
    patch.setenv("GIT_CONFIG_GLOBAL", str(mine))
    return "part/notes.txt"


@way("a changed submodule with ignore=all")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "config", "submodule.part.ignore", "all")
    git(tree, "config", "diff.ignoreSubmodules", "all")
    write(tree / "part" / "app.py")
    return "part/app.py"


@way("a changed nested submodule, hidden by the one between")
def _(tree: Path, _patch: Patch) -> str:
    git(tree / "part", "config", "submodule.deep.ignore", "all")
    write(tree / "part" / "deep" / "app.py")
    return "part/deep/app.py"


@way("a repository that is linked but not in .gitmodules")
def _(tree: Path, _patch: Patch) -> str:
    inner = repository(tree / "vendor")
    git(tree, "update-index", "--add", "--cacheinfo", f"160000,{git(inner, 'rev-parse', 'HEAD')},vendor")
    git(tree, "commit", "-qm", "a link")
    git(inner, "remote", "add", "origin", str(inner))
    git(inner, "fetch", "-q")
    write(inner / "README")
    git(tree, "config", "diff.ignoreSubmodules", "all")
    return "vendor/README"


@way("assume-unchanged")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "update-index", "--assume-unchanged", "app.py")
    write(tree / "app.py")
    return "app.py"


@way("skip-worktree")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "update-index", "--skip-worktree", "app.py")
    write(tree / "app.py")
    return "app.py"


@way("a link to nowhere, skip-worktree")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "update-index", "--skip-worktree", "app.py")
    (tree / "app.py").unlink()
    (tree / "app.py").symlink_to("nowhere")
    return "app.py"


@way("staged, then deleted")
def _(tree: Path, _patch: Patch) -> str:
    write(tree / "only-staged.txt")
    git(tree, "add", "only-staged.txt")
    (tree / "only-staged.txt").unlink()
    return "only-staged.txt"


@way("a change of mode with core.fileMode=false")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "config", "core.fileMode", "false")
    (tree / "run.sh").chmod(0o755)
    return "run.sh"


@way("a merge in progress that changed nothing yet")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "branch", "other")
    commit(tree, "here.txt")
    on = git(tree, "branch", "--show-current")
    git(tree, "switch", "-q", "other")
    commit(tree, "there.txt")
    git(tree, "switch", "-q", on)
    git(tree, "merge", "-q", "--no-commit", "-s", "ours", "other")
    assert git(tree, "status", "--porcelain") == ""
    return "a merge in progress"


def _conflict(tree: Path, verb: str) -> None:
    """`cherry-pick` or `revert` stopped by a conflict, which then was wiped away without ending it."""
    first = commit(tree, "app.py", "one\n")
    commit(tree, "app.py", "two\n")
    fails(tree, verb, first)
    git(tree, "checkout", "-q", "HEAD", "--", "app.py")
    assert git(tree, "status", "--porcelain") == ""


@way("a cherry-pick in progress")
def _(tree: Path, _patch: Patch) -> str:
    _conflict(tree, "cherry-pick")
    return "a cherry-pick in progress"


@way("a revert in progress")
def _(tree: Path, _patch: Patch) -> str:
    _conflict(tree, "revert")
    return "a revert in progress"


@way("a series of picks between two of them")
def _(tree: Path, _patch: Patch) -> str:
    on = git(tree, "branch", "--show-current")
    git(tree, "switch", "-qc", "other")
    base = git(tree, "rev-parse", "HEAD")
    commit(tree, "app.py", "other\n")
    commit(tree, "more.txt", "other\n")
    git(tree, "switch", "-q", on)
    commit(tree, "app.py", "own\n")
    fails(tree, "cherry-pick", f"{base}..other")
    git(tree, "checkout", "-q", "--theirs", "app.py")
    git(tree, "add", "app.py")
    git(tree, "commit", "-qm", "the first of two")
    assert not (Path(git(tree, "rev-parse", "--absolute-git-dir")) / "CHERRY_PICK_HEAD").exists()
    return "a series of picks or reverts in progress"


@way("a rebase that waits for an edit")
def _(tree: Path, patch: Patch) -> str:
    commit(tree, "more.txt")
    patch.setenv("GIT_SEQUENCE_EDITOR", "sed -i s/^pick/edit/")
    git(tree, "rebase", "-q", "-i", "HEAD~1")
    patch.delenv("GIT_SEQUENCE_EDITOR")
    return "a rebase in progress"


@way("patches of a mail that are being applied")
def _(tree: Path, _patch: Patch) -> str:
    mail = tree.parent / "mail"
    mail.write_text("From x Mon Sep 17 00:00:00 2001\nFrom: x <x@x>\nSubject: x\n\n---\nno patch\n", "utf-8")
    fails(tree, "am", str(mail))
    assert git(tree, "status", "--porcelain") == ""
    return "a rebase or am in progress"


@way("a conflict of a stash, which no operation in progress tells of")
def _(tree: Path, _patch: Patch) -> str:
    write(tree / "app.py", "one\n")
    git(tree, "stash")
    commit(tree, "app.py", "two\n")
    fails(tree, "stash", "pop")
    return "app.py: unmerged"


@way("a bisection")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "bisect", "start")
    return "a bisection in progress"


@way("a submodule's commit that nobody else has")
def _(tree: Path, _patch: Patch) -> str:
    sha = commit(tree / "part", "notes.txt")
    seen = ("-c", "diff.ignoreSubmodules=none", "-c", "submodule.part.ignore=none")
    git(tree, *seen, "add", "part")
    git(tree, *seen, "commit", "-qm", "newer part")
    return f"part: submodule commit {sha[:12]} is on no remote"


@way("a submodule's branch that nobody else has")
def _(tree: Path, _patch: Patch) -> str:
    return _idea(tree)


@way("a stash in a submodule")
def _(tree: Path, _patch: Patch) -> str:
    write(tree / "part" / "app.py")
    git(tree / "part", "stash")
    return "part: a stash of the submodule"


@way("a nested submodule's commit that nobody else has")
def _(tree: Path, _patch: Patch) -> str:
    return _idea(tree, "part/deep")


def _idea(tree: Path, path: str = "part") -> str:
    """A commit on a branch of the submodule at *path*, which then is at its own commit again; how it is told."""
    submodule = tree / path
    before = git(submodule, "rev-parse", "HEAD")
    git(submodule, "switch", "-qc", "idea")
    sha = commit(submodule, "notes.txt")
    git(submodule, "checkout", "-q", "--detach", before)
    return f"{path}: submodule commit {sha[:12]} is on no remote"


@way("a commit of a submodule that was deinitialised since")
def _(tree: Path, _patch: Patch) -> str:
    told = _idea(tree)
    git(tree, "submodule", "--quiet", "deinit", "part")
    return told


@way("a commit of a submodule that was removed since")
def _(tree: Path, _patch: Patch) -> str:
    told = _idea(tree)
    git(tree, "rm", "-q", "part")
    git(tree, "commit", "-qm", "without part")
    return told


@way("a stash of a nested submodule whose outer one was removed since")
def _(tree: Path, _patch: Patch) -> str:
    write(tree / "part" / "deep" / "app.py")
    git(tree / "part" / "deep", "stash")
    git(tree, "rm", "-q", "part")
    git(tree, "commit", "-qm", "without part")
    return "deep: a stash of the submodule"


@way("a commit of a submodule that is on an unborn branch now")
def _(tree: Path, _patch: Patch) -> str:
    told = _idea(tree)
    git(tree / "part", "switch", "-q", "--orphan", "fresh")
    return told


@way("files where a submodule is not checked out")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "submodule", "--quiet", "deinit", "part")
    write(tree / "part" / "notes.txt")
    return "part/notes.txt"


@way("same size, same time, and a configuration that looks at nothing else")
def _(tree: Path, _patch: Patch) -> str:
    file = tree / "app.py"
    os.utime(file, (LONG_AGO, LONG_AGO))
    git(tree, "update-index", "--refresh")
    git(tree, "config", "core.trustctime", "false")
    git(tree, "config", "core.checkStat", "minimal")
    until(lambda: int(time.time()) > int(file.stat().st_ctime), what="another second: git compares whole ones")
    write(file, file.read_text("utf-8").replace("hello", "HELLO"))
    os.utime(file, (LONG_AGO, LONG_AGO))
    return "app.py"


@way("marked as valid by a file system monitor")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "update-index", "--fsmonitor")
    git(tree, "update-index", "--fsmonitor-valid", "app.py")
    write(tree / "app.py")
    return "app.py"


@way("a configuration that names another directory as the work tree")
def _(tree: Path, _patch: Patch) -> str:
    elsewhere = tree.parent / "elsewhere"
    subprocess.run(["cp", "-a", str(tree), str(elsewhere)], check=True)
    git(tree, "config", "extensions.worktreeConfig", "true")
    git(tree, "config", "--worktree", "core.worktree", str(elsewhere))
    write(tree / "notes.txt")
    return "notes.txt"


@way("an untracked cache that is out of date")
def _(tree: Path, _patch: Patch) -> str:
    git(tree, "config", "core.untrackedCache", "true")
    git(tree, "update-index", "--force-untracked-cache")
    git(tree, "status")
    before = tree.stat()
    write(tree / "notes.txt")
    os.utime(tree, ns=(before.st_atime_ns, before.st_mtime_ns))
    return "notes.txt"


@way("an intent to add")
def _(tree: Path, _patch: Patch) -> str:
    write(tree / "planned.txt")
    git(tree, "add", "--intent-to-add", "planned.txt")
    return "planned.txt"


@way("a repository inside")
def _(tree: Path, _patch: Patch) -> str:
    repository(tree / "inside")
    git(tree, "config", "status.showUntrackedFiles", "no")
    return "inside/"


@way("a replaced HEAD that looks as if the work were committed")
def _(tree: Path, _patch: Patch) -> str:
    head = git(tree, "rev-parse", "HEAD")
    write(tree / "app.py")
    git(tree, "add", "app.py")
    as_if = git(tree, "commit-tree", git(tree, "write-tree"), "-m", "as if")
    git(tree, "replace", head, as_if)
    assert git(tree, "status", "--porcelain") == ""
    return "app.py"


@way("variables of another repository")
def _(tree: Path, patch: Patch) -> str:
    other = repository(tree.parent / "other")
    patch.setenv("GIT_DIR", str(other / ".git"))
    patch.setenv("GIT_WORK_TREE", str(other))
    patch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    write(tree / "notes.txt")
    return "notes.txt"
