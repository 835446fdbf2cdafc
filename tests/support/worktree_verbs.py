"""Worktrees made and asked about from the command line."""

import json
from pathlib import Path
from typing import Any

from tests.support import Root, git

DOCS = Path(__file__).parents[2] / "docs"


def prepare(root: Root, name: str = "one", *words: str, **more: Any) -> Path:
    return Path(root.ok("worktree", "prepare", name, "--no-venv", *words, **more)["path"])


def creator(root: Root, tree: str = "one", *script: dict[str, Any]) -> str:
    """A scripted creator in a prepared worktree; its name."""
    words = ["agent", "create", "--agent", "scripted", "--worktree", tree]
    if script:
        path = root.path.parent / f"{tree}.json"
        path.write_text(json.dumps(list(script)), "utf-8")
        words += ["--", "--script", str(path)]
        said = root.mam(*words[:6], "--json", *words[6:])
        assert said.code == 0, said.err
        return str(said.json["name"])
    return str(root.ok(*words)["name"])


def refused(root: Root, *words: str, **more: Any) -> Any:
    said = root.mam(*words, "--json", **more)
    assert said.code != 0, f"mam {' '.join(words)} was not refused\n{said.out}"
    return said.error | {"exit": said.code}


def row(root: Root, name: str = "one") -> Any:
    with root.registry.view() as view:
        return view.worktree(name)


def leftovers(root: Root) -> dict[str, Any]:
    """Everything that a worktree is made of."""
    admin = root.path / ".git" / "worktrees"
    beside = root.path.parent / "repo.worktrees"
    return {
        "branches": git(root.path, "branch", "--format=%(refname:short)").split(),
        "entries": sorted(path.name for path in admin.iterdir()) if admin.is_dir() else [],
        "trees": sorted(path.name for path in beside.iterdir()) if beside.is_dir() else [],
        "rows": [tree["name"] for tree in root.ok("worktree", "list")],
    }


NOTHING = {"branches": ["main"], "entries": [], "trees": [], "rows": []}


def found(root: Root, code: str) -> str:
    with root.registry.view() as view:
        return next((finding.text for finding in view.findings() if finding.code == code), "")


def text_of(name: str) -> str:
    return " ".join((DOCS / name).read_text("utf-8").split())
