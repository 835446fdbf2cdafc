"""
One exact commit of a work tree with its uncommitted work. The tree, its index and its branch stay as they are.

Refs pin the commits under review, so that no garbage collection removes them.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from mam.broker.errors import MamError
from mam.broker.host import fault_points
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, uncommitted

_AUTHOR = {"GIT_AUTHOR_NAME": "mam", "GIT_AUTHOR_EMAIL": "mam@localhost"}
_COMMITTER = {"GIT_COMMITTER_NAME": "mam", "GIT_COMMITTER_EMAIL": "mam@localhost"}
PINS = "refs/mam/review"


class NotCapturable(MamError):
    """The tree holds something that one commit cannot hold."""

    tree: str
    why: str
    hint: str

    code = "not_capturable"
    message = "{tree} cannot be captured as one commit: {why}"
    remedy_text = "{hint}"


class CapturedCommit(NamedTuple):
    """The commit to review. With *captured*, *head* is MAM's own, on top of the branch's *tip*; else both are one."""

    head: str
    tip: str
    captured: bool


def capture(tree: Path, message: str) -> CapturedCommit:
    """
    Return the commit that holds everything in *tree* that git does not ignore.

    Where all is committed, that is the branch's tip. Else it is a new commit on top of the tip, which no branch
    contains. Capturing the same work again gives the same commit.

    Raises:
        NotCapturable: One commit cannot hold it: an operation in progress, changes inside submodules, a repository
            inside, or the directory is gone.
        GitFailed: Git cannot read the tree.
    """
    if not tree.is_dir():
        hint = "`mam worktree list` shows what makes it again"
        raise NotCapturable(tree=str(tree), why="the directory is gone", hint=hint)
    tip = _tip(tree)
    if tip is None:
        raise NotCapturable(tree=str(tree), why="it has no commit yet", hint="make a first commit")
    found = uncommitted.look(tree)
    if not found:
        return CapturedCommit(tip, tip, captured=False)
    whole = _whole_tree(tree, found)
    fault_points.point("snapshot.commit")
    words = ("-c", "commit.gpgSign=false", "commit-tree", whole, "-p", tip, "-m", message)
    # With the tip's own time, the same work captured again after a crash is the same commit.
    when = git.ask(tree, "show", "--no-patch", "--format=%cd", "--date=raw", tip)
    dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    head = git.act(tree, *words, variables={**_AUTHOR, **_COMMITTER, **dates})
    return CapturedCommit(head, tip, captured=True)


def still(tree: Path, snapshot: CapturedCommit) -> bool:
    """Whether *tree* holds exactly what *snapshot* captured: the same tip, and the same uncommitted work."""
    if _tip(tree) != snapshot.tip:
        return False
    found = uncommitted.look(tree)
    if not snapshot.captured:
        same = not found
    else:
        try:
            whole = _whole_tree(tree, found) if found else _tree_of(tree, snapshot.tip)
        except NotCapturable:
            return False
        same = whole == _tree_of(tree, snapshot.head)
    return same and _tip(tree) == snapshot.tip  # again, since after a commit in between the tree looks clean


def moved(tree: Path, snapshot: CapturedCommit) -> list[str]:
    """Return in words what differs in *tree* from *snapshot*, for a person; `still` decides. Raises GitFailed."""
    tip = _tip(tree)
    if tip != snapshot.tip:
        return [f"its head is {tip}, not {snapshot.tip}"]
    found = uncommitted.look(tree)
    try:
        whole = _whole_tree(tree, found) if snapshot.captured and found else _tree_of(tree, tip)
    except NotCapturable:
        return [str(item) for item in found]
    if not snapshot.captured:
        return [str(item) for item in found]
    return git.ask(tree, "diff-tree", "-r", "--name-only", "-z", snapshot.head, whole).split("\0")[:-1]


def _tip(tree: Path) -> str | None:
    return dotgit.commit_of(tree) or git.resolve(tree, "HEAD")


def _tree_of(tree: Path, commit: str) -> str:
    return git.ask(tree, "rev-parse", f"{commit}^{{tree}}")


def _whole_tree(tree: Path, found: list[uncommitted.UncommittedChange]) -> str:
    """Return the tree object of everything that git does not ignore. It is made on a copy of the index."""
    check(tree, found)
    own = dotgit.own_dir(tree)
    with tempfile.TemporaryDirectory(prefix="mam-index-") as folder:
        index = Path(folder) / "index"
        if own is not None and (own / "index").exists():
            shutil.copy2(own / "index", index)  # with the file's times, so that git does not read unchanged files
        variables = {"GIT_INDEX_FILE": str(index)}
        stage(tree, variables)
        return git.act(tree, *uncommitted.AS_IT_IS, "write-tree", variables=variables)  # which writes to the index, too


def stage(tree: Path, variables: dict[str, str] | None = None) -> None:
    """
    Put everything in *tree* that git does not ignore into its index (or that of *variables*), even what flags hide.

    The flags that hid a file are removed from it. Raises GitFailed.
    """
    entries = uncommitted.index_entries(tree)
    _unflag(tree, variables, "--no-assume-unchanged", [e.path for e in entries if e.flag.islower()])
    seen = [e.path for e in entries if e.flag in "sS" and os.path.lexists(tree / e.path)]
    _unflag(tree, variables, "--no-skip-worktree", seen)
    # No setting may make git skip a file that it cannot read, or one outside of a sparse checkout.
    words = ("-c", "core.safecrlf=false", "add", "--all", "--sparse", "--no-ignore-errors")
    git.act(tree, *uncommitted.AS_IT_IS, *words, variables=variables)


def _unflag(tree: Path, variables: dict[str, str] | None, flag: str, paths: list[str]) -> None:
    if paths:
        words = (*uncommitted.AS_IT_IS, "update-index", flag, "-z", "--stdin")
        git.act(tree, *words, variables=variables, stdin="\0".join(paths))


def check(tree: Path, found: list[uncommitted.UncommittedChange], *, links: bool = False) -> None:
    """Raise NotCapturable for what one commit cannot hold. With *links*, a submodule at another commit is allowed."""
    # A file inside a submodule is named before the submodule itself, since it tells more.
    for item in sorted(found, key=lambda item: item.what.startswith("submodule")):
        if item.path == "." or item.what == "unmerged":
            raise NotCapturable(tree=str(tree), why=f"{item}", hint="finish or abort it first")
        if links and item.what == "submodule with commit":
            continue
        within = _repository_around(tree, item.path)
        if within is not None and item.what == "untracked" and not _is_submodule(tree, within):
            hint = f"move it out, or add `/{within}/` to .git/info/exclude"
            raise NotCapturable(tree=str(tree), why=f"{within} is a repository of its own", hint=hint)
        if item.what == uncommitted.NOT_CHECKED_OUT:
            raise NotCapturable(tree=str(tree), why=f"{item}", hint="move it elsewhere")
        if item.what.startswith("submodule") or within is not None:
            raise NotCapturable(tree=str(tree), why=f"{item}", hint="commit and push it in the submodule first")


def _repository_around(tree: Path, path: str) -> str | None:
    """Return the outermost repository below *tree* that holds *path*, or None."""
    places = [Path(path), *Path(path).parents][-2::-1]
    return next((str(place) for place in places if (tree / place / ".git").exists()), None)


def _is_submodule(tree: Path, path: str) -> bool:
    return git.ask(tree, *uncommitted.AS_IT_IS, "ls-files", "-s", "--", f":(literal){path}").startswith("160000 ")


def pin(folder: Path, name: str, base: str, head: str) -> None:
    """Pin both commits of a round as refs/mam/review/<name>/{base,head}. Pinning them twice is harmless."""
    fault_points.point("snapshot.pin")
    refs = {f"{PINS}/{name}/base": base, f"{PINS}/{name}/head": head}
    dotgit.unlock(folder, *refs)
    text = "".join(f"update {ref} {sha}\n" for ref, sha in refs.items())
    git.act(folder, "update-ref", "--stdin", stdin=text)


def pinned(folder: Path, name: str) -> tuple[str, str] | None:
    """Return the (base, head) that are pinned under *name*; None where one is missing."""
    base, head = (git.resolve(folder, f"{PINS}/{name}/{which}") for which in ("base", "head"))
    return (base, head) if base and head else None


def pins(folder: Path) -> dict[str, str]:
    """Return the shas of all pins by their names below refs/mam/review."""
    said = git.ask(folder, "for-each-ref", "--format=%(refname) %(objectname)", PINS)
    rows = (line.split(" ") for line in said.splitlines())
    return {name.removeprefix(f"{PINS}/"): sha for name, sha in rows}


def unpin(folder: Path, prefix: str) -> int:
    """Remove every pin below *prefix*, and return how many there were."""
    found = [name for name in pins(folder) if name.startswith(f"{prefix}/")]
    if found:
        dotgit.unlock(folder, *(f"{PINS}/{name}" for name in found))
        git.act(folder, "update-ref", "--stdin", stdin="".join(f"delete {PINS}/{name}\n" for name in found))
    return len(found)


def push(folder: Path, remote: str, name: str, base: str, head: str) -> None:
    """Put both commits of a round on *remote* under their pins. Raises GitFailed."""
    # Forced, since a round that is captured again after a crash may have another head. Only MAM writes these refs.
    git.act(folder, "push", "--quiet", "--", remote, f"+{base}:{PINS}/{name}/base", f"+{head}:{PINS}/{name}/head")


def unpush(folder: Path, remote: str, prefix: str) -> None:
    """Remove every pin below *prefix* from *remote*. Raises GitFailed."""
    there = git.ask(folder, "ls-remote", "--", remote, f"{PINS}/{prefix}/*").split()[1::2]
    if there:
        git.act(folder, "push", "--quiet", "--delete", "--", remote, *there)
