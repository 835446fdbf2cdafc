"""What a fresh worktree needs so that work can begin: submodules, excludes, a virtual environment, a setup command."""

import os
import shlex
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from mam.broker.errors import MamError
from mam.broker.host import fault_points
from mam.broker.host.progress import Progress
from mam.control_plane.control_root.context import Mam
from mam.wrappers import process
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit, uncommitted
from mam.wrappers.git.command import GitFailed

# Never to be staged, in any work tree of the repository: git has one exclude file for all. No slash behind .venv,
# so that a link of that name is meant as well.
EXCLUDED = ("/.venv", ".pytest_cache/", "__pycache__/", ".mypy_cache/", ".ruff_cache/", "*.egg-info/")
# Ignored things that a command makes again; anything else that git ignores may be a person's (.env, notes, data).
_REGENERABLE = {
    ".venv", "venv", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox",
    "target", "build", "dist", ".eggs", ".gradle", ".next", ".turbo", "htmlcov", ".hypothesis", ".cache",
}  # fmt: skip
_REGENERABLE_ENDS = (".pyc", ".pyo", ".o", ".so", ".egg-info", ".class")
_TEST_EXTRAS = ("dev", "test", "tests", "testing")  # as extras, and as groups of PEP 735
SETUP_S = 3600.0


class OutfitFailed(MamError):
    """A step after the checkout failed: submodules, the environment, or the setup command."""

    what: str
    why: str
    hint: str

    code = "outfit_failed"
    message = "the worktree could not be fitted out: {what}\n{why}"
    remedy_text = "{hint}"


def regenerable(name: str) -> bool:
    """Whether the ignored path *name* (relative, `/` behind a folder) is a cache, an environment or a build product."""
    path = PurePosixPath(name)
    return any(part in _REGENERABLE or part.endswith(_REGENERABLE_ENDS) for part in path.parts)


def environment(mam: Mam, tree: Path, *, venv: bool | None, setup: str, say: Progress) -> None:
    """A virtual environment of *tree*'s own (*venv* None: where it is Python), then *setup*. Raises OutfitFailed."""
    left_out = ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH")
    environ = {k: v for k, v in process.unnested(mam.settings.environ).items() if k not in left_out}
    if venv if venv is not None else is_python(tree):
        _venv(tree, environ, say)
        fault_points.point("worktree.venv")
    if setup:
        say(f"setup: {setup}")
        _do(["sh", "-c", setup], tree, environ, hint="correct the command of --setup")


def is_python(tree: Path) -> bool:
    return any((tree / name).exists() for name in ("pyproject.toml", "setup.py", "requirements.txt"))


def submodules(root: Path, tree: Path, say: Progress) -> None:
    """
    Check out the submodules of *tree*, taken from the main checkout's own clones where it has them.

    So no network is needed for what is here already, and commits that were never pushed are found.
    """
    links = [entry.path for entry in uncommitted.index_entries(tree) if entry.mode == "160000"]
    named = _names(tree)
    for path in links:
        if path not in named:
            continue  # a link that .gitmodules does not know: nothing says where it would come from
        say(f"submodule {path}")
        try:
            _submodule(root / path, tree, path, named[path])
        except GitFailed as error:
            hint = f"`git submodule update --init {path}` in the main checkout, then again"
            raise OutfitFailed(what=f"submodule {path}", why=str(error), hint=hint) from error
        submodules(root / path, tree / path, say)


def _submodule(source: Path, tree: Path, path: str, name: str) -> None:
    """Check out one submodule, from *source* where that is a clone of it. Raises GitFailed."""
    local = dotgit.own_dir(source) is not None
    allowed = ("-c", "protocol.file.allow=always")
    words = [*allowed, "-c", f"submodule.{name}.url={source}"] if local else [*allowed]
    # --checkout: a configuration can name any command as the way to update.
    git.act(tree, *words, "submodule", "update", "--init", "--checkout", "--", path)
    if not local:
        return
    # Its remote is the real one, and what the main checkout's clone has is kept there also when this one is removed.
    heads = ("+refs/heads/*:refs/remotes/main-checkout/*", "+HEAD:refs/remotes/main-checkout/HEAD")
    remotes = "+refs/remotes/origin/*:refs/remotes/origin/*"
    git.act(tree / path, *allowed, "fetch", "--quiet", "--prune", "--no-tags", "--", str(source), remotes, *heads)
    url = git.ask(source, "config", "--default", "", "--get", "remote.origin.url")
    if url:
        git.act(tree / path, "remote", "set-url", "--", "origin", url)


def _names(tree: Path) -> dict[str, str]:
    """Submodule names by their paths, as .gitmodules says."""
    if not (tree / ".gitmodules").exists():
        return {}
    said = git.ask(tree, "config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    found = {}
    for record in said.split("\0"):
        key, _, path = record.partition("\n")
        if path:
            found[path] = key.removeprefix("submodule.").removesuffix(".path")
    return found


def _venv(tree: Path, environ: dict[str, str], say: Progress) -> None:
    target = tree / ".venv"
    search = environ.get("PATH", os.defpath)
    uv = shutil.which("uv", path=search)
    python = shutil.which("python3", path=search) or "python3"
    if target.is_symlink():
        target.unlink()  # a shared environment would import the code of the last one that installed into it
    say(f"making {target}")
    if not (target / "bin" / "python").exists():
        make = [uv, "venv", "--quiet", str(target)] if uv else [python, "-m", "venv", str(target)]
        _do(make, tree, environ, hint="--no-venv, or --setup with what your project needs")
    inside = str(target / "bin" / "python")
    install = [uv, "pip", "install", "--quiet", "--python", inside] if uv else [inside, "-m", "pip", "install", "-q"]
    if not uv:
        install.append("--disable-pip-version-check")
    project = _project(tree)
    wanted = _wanted(tree, project) + _groups(project, install, environ, say)
    if not wanted:
        return
    say(f"installing {' '.join(wanted)}")
    _do([*install, *wanted], tree, environ, hint="--no-venv, or --setup with what your project needs")
    if not any(target.glob("lib/python*/site-packages/pytest")):
        where = "name it in an extra or a dependency group (dev, test)"
        say(f"no pytest came along: {where}, or give `mam loop run --test CMD` for reviewers")


def _project(tree: Path) -> dict[str, Any]:
    """What pyproject.toml says; nothing where there is none. Raises OutfitFailed."""
    try:
        return tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise OutfitFailed(what="pyproject.toml", why=str(error), hint="repair it, or --no-venv") from error


def _wanted(tree: Path, project: dict[str, Any]) -> list[str]:
    """What to install: the project itself with its test extras, or its requirements."""
    words: list[str] = []
    for name in ("requirements.txt", "requirements-dev.txt"):
        if (tree / name).exists():
            words += ["-r", name]
    if "project" in project or "build-system" in project:
        extras = [n for n in _TEST_EXTRAS if n in project.get("project", {}).get("optional-dependencies", {})]
        words += ["-e", f".[{','.join(extras)}]" if extras else "."]
    elif (tree / "setup.py").exists():
        words += ["-e", "."]
    return words


def _groups(project: dict[str, Any], install: Sequence[str], environ: dict[str, str], say: Progress) -> list[str]:
    """The words for the project's dependency groups of tests; none, and a line, where *install* knows no groups."""
    there = project.get("dependency-groups", {})
    words = [word for name in _TEST_EXTRAS if name in there for word in ("--group", name)]
    if not words:
        return []
    if "--group" not in process.run([*install, "--help"], env=environ, timeout_s=60, expect=()).stdout:
        then = f".venv/bin/pip install -U pip && .venv/bin/pip install {' '.join(words)}"
        say(f"not installed: {' '.join(words)}, which needs pip 25.1; do it there yourself, or by --setup: {then}")
        return []
    return words


def _do(command: Sequence[str], tree: Path, environ: dict[str, str], *, hint: str) -> None:
    try:
        process.run(command, cwd=tree, env=environ, timeout_s=SETUP_S)
    except MamError as error:
        whole = shlex.join(command)
        why = str(error).removeprefix(whole).lstrip("\n")  # which names the command as well
        raise OutfitFailed(what=whole[:300], why=why[-2000:], hint=hint) from error
