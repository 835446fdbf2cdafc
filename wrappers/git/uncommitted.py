"""
What a work tree holds that no commit has, however it is hidden.

Settings, index flags and submodules can hide changes from a plain `git status`;
each is looked through here, with the tree and its index left as they are.
"""

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit

# This very directory, and every difference: a configuration can name another work tree, and turn each of them off.
AS_IT_IS = ["--work-tree=.", "-c", "core.fileMode=true", "-c", "core.trustctime=true", "-c", "core.checkStat=default"]
AS_IT_IS += ["-c", "core.splitIndex=false"]  # or an index of our own would leave its other half in the repository
_SEE_ALL = [*AS_IT_IS, "-c", "status.showUntrackedFiles=all", "-c", "core.untrackedCache=false"]
_STATUS = ["status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=none", "--no-renames"]

NOT_CHECKED_OUT = "where a submodule is not checked out"

# What git keeps of an operation that was begun: removing the tree would throw it away.
_UNFINISHED = {
    "MERGE_HEAD": "a merge in progress",
    "CHERRY_PICK_HEAD": "a cherry-pick in progress",
    "REVERT_HEAD": "a revert in progress",
    "sequencer": "a series of picks or reverts in progress",
    "BISECT_LOG": "a bisection in progress",
    "rebase-merge": "a rebase in progress",
    "rebase-apply": "a rebase or am in progress",
}


class UncommittedChange(NamedTuple):
    """One path, relative to the tree's top, and in words what is not committed about it."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class IndexEntry(NamedTuple):
    """One file of the index with its flag letter: lower case is assume-unchanged, S is skip-worktree."""

    flag: str
    mode: str
    sha: str
    path: str


def look(tree: Path, *, unpushed_submodules: bool = False) -> list[UncommittedChange]:
    """
    Everything in *tree* that no commit has; empty where all is committed.

    Ignored files do not count. With *unpushed_submodules* also commits of submodules
    that no remote of theirs has: removing a worktree removes their objects.

    Raises GitFailed where the tree cannot be looked at; that is never "clean".
    """
    found = unfinished(tree) + status(tree)
    entries = index_entries(tree)
    found += _hidden_by_flags(tree, entries)
    for entry in entries:
        if entry.mode == "160000":
            inside = dotgit.own_dir(tree / entry.path) is not None
            found += _inside(tree, entry.path, unpushed_submodules) if inside else _in_its_place(tree, entry.path)
    if unpushed_submodules:
        found += _left_behind(tree, entries)  # which git deletes together with the tree
    return list(dict.fromkeys(found))


def only_here(tree: Path) -> list[UncommittedChange]:
    """Commits that would go with the tree: of its detached HEAD and its own refs, on no branch, tag or remote."""
    tips = {"HEAD": git.resolve(tree, "HEAD") or ""} if dotgit.branch_of(tree) is None else {}
    for line in git.ask(tree, "for-each-ref", "--format=%(refname) %(objectname)", "refs/worktree").splitlines():
        name, _, sha = line.partition(" ")
        tips[name] = sha
    found = []
    for name, sha in tips.items():
        shared = ("refs/heads", "refs/remotes", "refs/tags")
        if sha and not git.ask(tree, "for-each-ref", "--count=1", f"--contains={sha}", "--", *shared):
            found.append(
                UncommittedChange(name, f"commit {sha[:12]} is on no branch; `git branch NAME {sha[:12]}` keeps it")
            )
    return found


def ignored(tree: Path) -> list[str]:
    """Paths that git ignores in *tree* and in its submodules; a folder where all in it is ignored."""
    words = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    said = git.ask(tree, *AS_IT_IS, *words)
    found = [name.rstrip("/") for name in said.split("\0") if name]
    for entry in index_entries(tree):
        if entry.mode == "160000" and dotgit.own_dir(tree / entry.path) is not None:
            found += [f"{entry.path}/{name}" for name in ignored(tree / entry.path)]
    return found


def unfinished(tree: Path) -> list[UncommittedChange]:
    own = dotgit.own_dir(tree)
    return [UncommittedChange(".", what) for name, what in _UNFINISHED.items() if own and (own / name).exists()]


def status(tree: Path, index: Path | None = None) -> list[UncommittedChange]:
    """What `git status` says with every setting that could hide something turned off."""
    return parse_status(git.ask(tree, *_SEE_ALL, *_STATUS, index=index))


def parse_status(text: str) -> list[UncommittedChange]:
    """The records of `status --porcelain=v2 -z --no-renames`."""
    found = []
    for record in text.split("\0"):
        match record[:2]:
            case "1 ":
                fields = record.split(" ", 8)
                found.append(UncommittedChange(fields[8], _changed(fields[1], fields[2])))
            case "u ":
                found.append(UncommittedChange(record.split(" ", 10)[10], "unmerged"))
            case "? ":
                found.append(UncommittedChange(record[2:], "untracked"))
    return found


def _changed(xy: str, sub: str) -> str:
    staged, unstaged = xy[0] != ".", xy[1] != "."
    if sub.startswith("S"):
        parts = [
            word for letter, word in zip("CMU", ("commit", "changes", "untracked files"), strict=True) if letter in sub
        ]
        return f"submodule with {', '.join(parts) or 'another commit'}"
    if staged and unstaged:
        return "staged and changed again"
    return "staged" if staged else "deleted" if xy[1] == "D" else "changed"


def index_entries(tree: Path) -> list[IndexEntry]:
    found = []
    for record in git.ask(tree, *AS_IT_IS, "ls-files", "-v", "-s", "-z").split("\0"):
        head, tab, path = record.partition("\t")
        if tab:
            flag, mode, sha, _ = head.split(" ")
            found.append(IndexEntry(flag, mode, sha, path))
    return found


def _hidden_by_flags(tree: Path, entries: list[IndexEntry]) -> list[UncommittedChange]:
    """Changes of files that an index flag hides: seen through an index that has no flags."""
    flagged = {
        entry.path
        for entry in entries
        if entry.flag.islower() or (entry.flag == "S" and os.path.lexists(tree / entry.path))
    }
    if not flagged:
        return []
    with tempfile.TemporaryDirectory(prefix="mam-index-") as folder:
        fresh = Path(folder) / "index"
        git.ask(tree, *AS_IT_IS, "read-tree", "HEAD", index=fresh)
        return [dirt for dirt in status(tree, fresh) if dirt.path in flagged]


def _in_its_place(tree: Path, path: str) -> list[UncommittedChange]:
    """Files where a submodule is not checked out: git does not look there at all."""
    return [UncommittedChange(name, NOT_CHECKED_OUT) for name in _files(tree, path)]


def _files(tree: Path, path: str) -> Iterator[str]:
    for folder, _, names in os.walk(tree / path):
        yield from (str(Path(folder, name).relative_to(tree)) for name in names)


def _inside(tree: Path, path: str, unpushed: bool) -> list[UncommittedChange]:
    inner = tree / path
    found = [UncommittedChange(f"{path}/{dirt.path}", dirt.what) for dirt in look(inner, unpushed_submodules=unpushed)]
    repo = dotgit.own_dir(inner)
    return found + (_unpushed(repo, path) if unpushed and repo is not None else [])


def _left_behind(tree: Path, entries: list[IndexEntry]) -> list[UncommittedChange]:
    """Commits of submodules that are not checked out at the moment, deinitialised or not of this commit."""
    own = dotgit.own_dir(tree)
    here = [dotgit.own_dir(tree / entry.path) for entry in entries if entry.mode == "160000"]
    return _kept_in(own / "modules", {repo.resolve() for repo in here if repo is not None}) if own is not None else []


def _kept_in(modules: Path, besides: set[Path]) -> list[UncommittedChange]:
    found = []
    for folder, names, _ in os.walk(modules):
        repo = Path(folder)
        if not dotgit.is_bare_folder(repo):
            continue
        names.clear()
        if repo.resolve() not in besides:
            look_there = shlex.join(["git", f"--git-dir={repo}", "--work-tree=.", "log", "--all"])
            where = f"; it is not checked out: `{look_there}`"
            found += _unpushed(repo, str(repo.relative_to(modules)), where) + _kept_in(repo / "modules", set())
    return found


def _unpushed(repo: Path, path: str, where: str = "") -> list[UncommittedChange]:
    """The newest commit of any branch or HEAD of the git directory *repo* that no remote is known to have; stashes."""
    at = ("--git-dir=.", "--work-tree=.")  # its configuration may name a work tree that is gone
    tips = ["HEAD"] if dotgit.commit_of(repo) is not None else []  # an unborn one holds no commits
    said = git.ask(repo, *at, "rev-list", "--max-count=1", *tips, "--branches", "--not", "--remotes", "--")
    found = [UncommittedChange(path, f"submodule commit {sha[:12]} is on no remote{where}") for sha in said.split()]
    stash = git.ask(repo, *at, "for-each-ref", "--count=1", "refs/stash")
    return found + ([UncommittedChange(path, f"a stash of the submodule{where}")] if stash else [])
