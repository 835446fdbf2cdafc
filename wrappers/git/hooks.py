"""
Hooks that keep commits off the main checkout's branch: a help against mistakes, not a lock.

`pre-commit` refuses commits in the main checkout. `reference-transaction` refuses every other way to move its branch
(merge, reset, rebase, pull, update-ref). A process that disables hooks, or writes the ref's file, passes both. Hooks
that were there before are kept, and run first.
"""

import os
from pathlib import Path
from typing import NamedTuple

from mam.broker.errors import MamError
from mam.broker.host import atomic_files, fault_points
from mam.broker.host.atomic_files import Durability
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit

MARK = "# mam: guard of the main checkout"
KEPT = ".before-mam"
ALLOW = "MAM_ALLOW_MAIN"

_PRE_COMMIT = f"""#!/bin/sh
{MARK}
own="$0{KEPT}"
if [ -x "$own" ]; then "$own" "$@" || exit; fi
[ "${{{ALLOW}:-}}" = 1 ] && exit 0
if [ "$(git rev-parse --absolute-git-dir)" = "$(cd "$(git rev-parse --git-common-dir)" && pwd -P)" ]; then
  echo "mam: commits are made in worktrees, not in the main checkout (mam worktree prepare NAME)" >&2
  echo "  to commit here all the same: {ALLOW}=1 git commit …" >&2
  exit 1
fi
"""

_REFERENCES = f"""#!/bin/sh
{MARK}
own="$0{KEPT}"
said=$(cat)
if [ -x "$own" ]; then printf '%s\\n' "$said" | "$own" "$@" || exit; fi
[ "$1" = prepared ] || exit 0
[ "${{{ALLOW}:-}}" = 1 ] && exit 0
case "
$said
" in
*" refs/heads/@BRANCH@
"*) ;;
*) exit 0 ;;
esac
# What leaves it where it is passes: `reset --hard`, and the packing of refs, after which only its own file goes.
now=$(git rev-parse --verify --quiet "refs/heads/@BRANCH@")
case "
$said
" in
*" HEAD
"*) packed=/dev/null ;;
*) packed="$(git rev-parse --git-common-dir)/packed-refs" ;;
esac
printf '%s\\n' "$said" | while read -r old new ref; do
  [ "$ref" = "refs/heads/@BRANCH@" ] || continue
  [ "$new" = "$now" ] && continue
  [ -z "$(printf %s "$new" | tr -d 0)" ] && grep -qxF -e "$old $ref" "$packed" 2>/dev/null && continue
  exit 1
done && exit 0
echo "mam: @BRANCH@ is the main checkout's branch; it moves only by {ALLOW}=1 or mam loop … --promote merge" >&2
echo "  files that git has changed already go back by: git reset --merge" >&2
exit 1
"""


class NotGuardable(MamError):
    """The hooks, or one of them, cannot be installed."""

    folder: str
    why: str
    hint: str

    code = "not_guardable"
    message = "the main checkout {folder} cannot be guarded: {why}"
    remedy_text = "{hint}"


class Guard(NamedTuple):
    """The folder of the hooks, and the branch that they guard."""

    folder: Path
    branch: str


def install(main: Path) -> Guard:
    """
    Guard the branch that *main* is on. Installing twice is harmless; only the branch of the last time is guarded.

    Raises NotGuardable for a detached HEAD, and where the project has a hooks folder of its own.
    """
    branch = dotgit.branch_of(main)
    if branch is None:
        raise NotGuardable(folder=str(main), why="its HEAD is detached", hint="switch to the branch to be guarded")
    folder = _folder(main)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("pre-commit", _PRE_COMMIT), ("reference-transaction", _REFERENCES)):
        hook, kept = folder / name, folder / f"{name}{KEPT}"
        if os.path.lexists(hook) and not _is_ours(hook):
            if os.path.lexists(kept):
                hint = f"keep one of them as {name}, and remove the other"
                raise NotGuardable(folder=str(main), why=f"{hook} and {kept} are both there", hint=hint)
            fault_points.point("guard.keep")
            hook.rename(kept)
        content = text.replace("@BRANCH@", _quoted(branch)).encode()
        # After a crash, an empty hook would guard nothing, and git would run it without a warning.
        atomic_files.write(hook, content, Durability.FILE, mode=0o755, point="guard.install")
    return Guard(folder, branch)


def uninstall(main: Path) -> bool:
    """Undo `install`: the hooks from before come back. Returns whether there was something to undo."""
    common = dotgit.shared_dir(main)
    undone = False
    for name in ("pre-commit", "reference-transaction"):
        hook = (common / "hooks" / name) if common else None
        if hook is None or (os.path.lexists(hook) and not _is_ours(hook)):
            continue
        before = hook.with_name(f"{name}{KEPT}")
        if not hook.exists() and not os.path.lexists(before):
            continue
        if os.path.lexists(before):
            fault_points.point("guard.restore")
            before.replace(hook)
        else:
            hook.unlink()
        undone = True
    return undone


def installed(main: Path) -> bool:
    """Whether both hooks are in place."""
    common = dotgit.shared_dir(main)
    return common is not None and all(_is_ours(common / "hooks" / n) for n in ("pre-commit", "reference-transaction"))


def _folder(main: Path) -> Path:
    """Return the shared hooks folder. Raises NotGuardable where the project has its own, which it may track."""
    common = git.common_dir(main)
    try:
        # The last value comes from this very command, which runs without hooks.
        own = git.ask(main, "config", "-z", "--get-all", "core.hooksPath").split("\0")[:-2]
    except git.GitFailed:
        own = []
    if own:
        hint = f"call `{common}/hooks/…` from it, or unset core.hooksPath"
        raise NotGuardable(folder=str(main), why=f"core.hooksPath is {own[-1]}", hint=hint)
    return common / "hooks"


def _is_ours(hook: Path) -> bool:
    try:
        return MARK in hook.read_text("utf-8", "replace")
    except OSError:
        return False


def _quoted(branch: str) -> str:
    """Return a branch name as it stands between double quotes in the shell."""
    return "".join(f"\\{char}" if char in '$"`\\' else char for char in branch)
