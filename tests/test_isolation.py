"""The suite itself: it runs anywhere, and leaves no trace in the control plane that it is run by."""

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import FULL, Root, git, until

REPOSITORY = Path(__file__).parents[1]
# A part of the suite that makes control roots, sessions and jobs of its own, and starts them; in full a larger one.
PART = ["tests/control_plane/sessions/test_roles.py", "tests/control_plane/messaging/test_outbox.py"]
if FULL:
    PART += ["tests/control_plane/control_root/test_create.py", "tests/control_plane/messaging/test_inbox.py"]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *PART]


def state_of(folder: Path) -> dict[str, str]:
    """Every file below *folder* with its hash; what a running monitor writes about itself is left out."""
    own = ("monitor.json", "monitor.log", "audit.jsonl", "host.log", "screen.json", "registry.db-shm", "nats.log")
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in own and "store" not in path.parts:
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def counts(root: Root) -> tuple[int, int, int]:
    with root.registry.view() as view:
        return len(view.sessions()), len(view.jobs()), view.last_event()


PROGRAMS = {
    "soak.py",
    "verb_server.py",
    "run_verbs.py",
}  # run as processes of their own: what they change is theirs alone


@pytest.mark.req("M105")
def test_no_test_changes_the_environment_directly() -> None:
    guilty = []
    for path in (REPOSITORY / "tests").rglob("*.py"):
        if path.name in PROGRAMS:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call | ast.Subscript):
                continue
            text = ast.unparse(node)
            stores = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
            changes = ("os.environ.update(", "os.environ.pop(", "os.environ.setdefault(", "os.putenv(", "os.unsetenv(")
            if (stores and text.startswith("os.environ[")) or text.startswith(changes):
                guilty.append(f"{path.name}:{node.lineno}")
    assert guilty == []


@pytest.mark.req("M105", "M106")
def test_a_suite_that_inherits_a_production_binding_adds_nothing_to_it(root: Root) -> None:
    root.agent()
    root.mam("job", "wait", root.delegate())
    root.mam("agent", "stop", "writer")
    root.mam("down")
    before = state_of(root.path)
    inherited = {**os.environ, **root.parts.layout.binding(), "MAM_SESSION": "writer", "MAM_BROKER_PORT": "1"}

    done = subprocess.run([sys.executable, *PYTEST], cwd=REPOSITORY, env=inherited, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout[-3000:]
    assert state_of(root.path) == before


@pytest.mark.slow
@pytest.mark.req("M107")
def test_the_suite_passes_in_a_detached_tree_with_the_interpreter_that_a_review_names(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this is no checkout")
    tree = tmp_path / "tree"
    git(REPOSITORY, "worktree", "add", "-q", "--detach", str(tree), "HEAD")
    try:
        # The tree's own code, with the interpreter that a review brief names: the tree has none.
        environ = {**os.environ, "PYTHONPATH": str(tree / ".types"), "AGENT_PYTHON_BIN": sys.executable}
        python = environ["AGENT_PYTHON_BIN"]

        done = subprocess.run([python, *PYTEST], cwd=tree, env=environ, capture_output=True, text=True)
        where = subprocess.run(
            [python, "-c", "import mam.broker; print(mam.broker.__file__)"],
            cwd=tree,
            env=environ,
            capture_output=True,
            text=True,
        )
    finally:
        git(REPOSITORY, "worktree", "remove", "--force", str(tree))

    assert done.returncode == 0, done.stdout[-3000:]
    assert where.stdout.startswith(str(tree))


@pytest.mark.req("M107")
def test_the_suite_passes_inside_a_pane_with_the_binding_set(root: Root) -> None:
    out = root.path.parent / "pane.out"
    command = f"cd {REPOSITORY} && {sys.executable} {' '.join(PYTEST)} > {out} 2>&1; echo rc $? >> {out}"
    said = root.mam("agent", "create", "suite", "--agent", "command", "--no-wait", "--", "sh", "-c", command)
    assert said.code == 0, said.err
    before = counts(root)

    until(lambda: out.exists() and "rc " in out.read_text("utf-8"), within_s=120, what="the suite ended")

    assert "rc 0" in out.read_text("utf-8"), out.read_text("utf-8")[-3000:]
    assert counts(root)[:2] == before[:2] == (1, 0)
