"""What the documents say of worktrees is so: what git shares is tried, what was weighed and decided is all there."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import git, repository
from tests.support.desk import Desk
from tests.support.hidden_work import commit, write
from tests.support.worktree_verbs import text_of


def _refs(one: Path, two: Path) -> bool:
    git(one, "branch", "made-in-one")
    return git(two, "branch", "--list", "made-in-one") != ""


def _configuration(one: Path, two: Path) -> bool:
    git(one, "config", "mam.test", "set in one")
    return git(two, "config", "mam.test") == "set in one"


def _hooks(one: Path, two: Path) -> bool:
    hook = one / git(one, "rev-parse", "--git-path", "hooks") / "pre-commit"
    write(hook, "#!/bin/sh\nexit 7\n")
    hook.chmod(0o755)
    tried = subprocess.run(["git", "commit", "--allow-empty", "-qm", "x"], cwd=two, capture_output=True)
    hook.unlink()
    return tried.returncode != 0


def _objects(one: Path, two: Path) -> bool:
    return git(two, "cat-file", "-t", commit(one, "new.txt")) == "commit"


def _stashes(one: Path, two: Path) -> bool:
    write(one / "README", "changed in one\n")
    git(one, "stash")
    return git(two, "stash", "list") != ""


SHARED: dict[str, Callable[[Path, Path], bool]] = {
    "refs": _refs,
    "configuration": _configuration,
    "hooks": _hooks,
    "object store": _objects,
    "stashes": _stashes,
}


@pytest.mark.req("M10")
def test_what_worktrees_are_said_to_share_they_share(tmp_path: Path) -> None:
    said = re.search(r"Worktrees of one repository share (.*?);", text_of("loops.md"))
    assert said is not None
    named = re.split(r", | and ", said[1])
    one, two = repository(tmp_path / "one"), tmp_path / "two"
    git(one, "worktree", "add", "-q", "-b", "two", str(two))

    assert set(named) == set(SHARED)
    assert [name for name in named if not SHARED[name](one, two)] == []


@pytest.mark.req("M12")
def test_a_process_of_the_same_user_reads_the_keys_as_the_documents_say(desk: Desk) -> None:
    assert "Central state is not a security boundary: all processes of one user can read the same keys." in text_of(
        "loops.md"
    )
    read = subprocess.run(["cat", desk.mam.layout.control_key], env={"PATH": "/usr/bin:/bin"}, capture_output=True)

    assert read.returncode == 0 and read.stdout == desk.mam.layout.control_key.read_bytes() != b""


SENTENCES = {
    "M10": [
        "they share a `.venv` where somebody linked one (MAM makes each its own), caches of tools in the home "
        "directory, local services and ports, and your credentials.",
        "Reviewers are asked not to write; nothing but the check afterwards makes them read-only.",
        "Variables that point every verb at the central registry were once supported in parts only;",
        "What one says of the cost of such models (agents an issue, tokens) are estimates;",
        "and even that is not complete isolation",
    ],
    "M11": [
        "MAM is C with D, and E as a guard.",
        "It grew in stages: first creators at once and one loop at a time,",
        "was tried as a recipe first and became code afterwards.",
    ],
}


@pytest.mark.req("M10", "M11")
@pytest.mark.parametrize("line", SENTENCES)
def test_the_documents_say_in_whole_sentences_what_worktrees_are_not_and_how_it_came(line: str) -> None:
    assert [sentence for sentence in SENTENCES[line] if sentence not in text_of("loops.md")] == []


@pytest.mark.req("M11")
def test_each_alternative_that_was_weighed_has_its_model_and_why_it_is_not_enough_alone() -> None:
    rows = re.findall(r"\| ([A-Z]) \| ([^|]+) \| ([^|]+) \|", text_of("loops.md"))

    assert [row[0] for row in rows] == ["A", "B", "C", "D", "E"]
    assert all(len(model.split()) > 3 and len(why.split()) > 3 for _, model, why in rows)
