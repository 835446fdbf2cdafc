"""
The changes of a work tree that no commit has, even where they are hidden.

Settings, index flags and submodules can hide changes from a plain `git status`. This module sees through each of them,
and leaves the tree and its index as they are.
"""

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit

# A configuration can name another work tree and make git skip differences. These options undo both.
AS_IT_IS = ["--work-tree=.", "-c", "core.fileMode=true", "-c", "core.trustctime=true", "-c", "core.checkStat=default"]
AS_IT_IS += ["-c", "core.splitIndex=false"]  # else a temporary index would leave its other half in the repository
_SEE_ALL = [*AS_IT_IS, "-c", "status.showUntrackedFiles=all", "-c", "core.untrackedCache=false"]
_STATUS = ["status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=none", "--no-renames"]

_CHANGED = re.compile(r"1 ([.A-Z]{2}) (N\.{3}|S[.CMU]{3}) (?:[0-7]{6} ){3}(?:[0-9a-f]+ ){2}(.+)", re.DOTALL)
_UNMERGED = re.compile(r"u [A-Z]{2} (?:N\.{3}|S[.CMU]{3}) (?:[0-7]{6} ){4}(?:[0-9a-f]+ ){3}(.+)", re.DOTALL)
_HEADER = re.compile(r"# stash [0-9]+")  # where a user has set status.showStash
_ENTRY = re.compile(r"([A-Za-z?]) ([0-7]{6}) ([0-9a-f]+) [0-3]\t(.+)", re.DOTALL)

NOT_CHECKED_OUT = "where a submodule is not checked out"

# Git's files of an unfinished operation. Removing the tree would lose it.
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
    """A path, relative to the tree's top, and in words what about it is not committed."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class IndexEntry(NamedTuple):
    """One file of the index. A *flag* in lower case means assume-unchanged; S means skip-worktree."""

    flag: str
    mode: str
    sha: str
    path: str


def look(tree: Path, *, unpushed_submodules: bool = False) -> list[UncommittedChange]:
    """
    Return everything in *tree* that no commit has. Ignored files do not count.

    With *unpushed_submodules*, commits of submodules that none of their remotes has count as well, since removing a
    worktree removes their objects.

    Raises GitFailed where git cannot read the tree. An unreadable tree is never clean.
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
    """Return the commits that a removal would lose: only the tree's detached HEAD or its own refs reach them."""
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
    """Return the paths that git ignores in *tree* and its submodules. A folder stands for all that it holds."""
    words = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    said = git.ask(tree, *AS_IT_IS, *words)
    found = [name.rstrip("/") for name in said.split("\0") if name]
    for entry in index_entries(tree):
        if entry.mode == "160000" and dotgit.own_dir(tree / entry.path) is not None:
            found += [f"{entry.path}/{name}" for name in ignored(tree / entry.path)]
    return found


def unfinished(tree: Path) -> list[UncommittedChange]:
    """Return the operations of git (merge, rebase …) that are in progress in *tree*."""
    own = dotgit.own_dir(tree)
    return [UncommittedChange(".", what) for name, what in _UNFINISHED.items() if own and (own / name).exists()]


def status(tree: Path, index: Path | None = None) -> list[UncommittedChange]:
    """Return what `git status` reports when no setting hides anything."""
    return parse_status(git.ask(tree, *_SEE_ALL, *_STATUS, index=index), tree)


def parse_status(text: str, tree: Path) -> list[UncommittedChange]:
    """
    Return the changes that `status --porcelain=v2 -z --no-renames` printed about *tree*.

    Raises GitFailed for any record that it does not know, since a dropped one would make a tree look clean.
    """
    *records, rest = text.split("\0")
    if rest:
        raise git.unknown(tree, "status", rest)
    found = []
    for record in records:
        if match := _CHANGED.fullmatch(record):
            found.append(UncommittedChange(match[3], _changed(match[1], match[2])))
        elif match := _UNMERGED.fullmatch(record):
            found.append(UncommittedChange(match[1], "unmerged"))
        elif record.startswith("? ") and len(record) > len("? "):
            found.append(UncommittedChange(record[2:], "untracked"))
        elif not _HEADER.fullmatch(record):
            raise git.unknown(tree, "status", record)
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
    """Return all files of the index. Raises GitFailed, also for a record that it does not know."""
    return parse_entries(git.ask(tree, *AS_IT_IS, "ls-files", "-v", "-s", "-z"), tree)


def parse_entries(text: str, tree: Path) -> list[IndexEntry]:
    """Return what `ls-files -v -s -z` printed about *tree*. Raises GitFailed for a record of another form."""
    *records, rest = text.split("\0")
    matches = [(record, _ENTRY.fullmatch(record)) for record in [*records, *([rest] if rest else [])]]
    for record, match in matches:
        if match is None or record is rest:
            raise git.unknown(tree, "ls-files", record)
    return [IndexEntry(match[1], match[2], match[3], match[4]) for _, match in matches if match is not None]


def _hidden_by_flags(tree: Path, entries: list[IndexEntry]) -> list[UncommittedChange]:
    """Return the changes of files that an index flag hides. A fresh index without flags shows them."""
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
    """Return the files where a submodule is not checked out. Git itself does not look there."""
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
    """Return the unpushed commits of submodules that are not checked out now."""
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
    """Return the newest commit in the git directory *repo* that no remote is known to have, and its stashes."""
    at = ("--git-dir=.", "--work-tree=.")  # its configuration may name a work tree that is gone
    tips = ["HEAD"] if dotgit.commit_of(repo) is not None else []  # an unborn branch has no commit
    said = git.ask(repo, *at, "rev-list", "--max-count=1", *tips, "--branches", "--not", "--remotes", "--")
    found = [UncommittedChange(path, f"submodule commit {sha[:12]} is on no remote{where}") for sha in said.split()]
    stash = git.ask(repo, *at, "for-each-ref", "--count=1", "refs/stash")
    return found + ([UncommittedChange(path, f"a stash of the submodule{where}")] if stash else [])
