"""Two people on one machine: the other one's control root is closed, and one's own works beside it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import MAM, Root

pytestmark = pytest.mark.hostile

OTHER = 65534  # nobody


def as_other(*words: str, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "MAM_MUX": "headless", "TMPDIR": str(home)}
    return subprocess.run(
        [MAM, *words], cwd=cwd, env=environ, user=OTHER, group=OTHER, extra_groups=[], capture_output=True, text=True
    )


@pytest.fixture
def other_home(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can act as somebody else")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-")) or folder == tmp_path:
            folder.chmod(0o755)
    home = tmp_path / "other"
    home.mkdir()
    os.chown(home, OTHER, OTHER)
    try:
        ready = as_other("--version", cwd=home, home=home).returncode == 0
    except PermissionError:
        ready = False
    if not ready:
        pytest.skip("this checkout or its interpreter is closed to other users")
    return home


def test_the_control_root_of_somebody_else_is_a_clear_refusal(root: Root, other_home: Path) -> None:
    root.agent()
    before = sorted(str(path) for path in root.parts.layout.mam.rglob("*") if "run" not in path.parts)

    for words in (["status"], ["up"], ["init"], ["agent", "stop", "writer"], ["job", "list"], ["doctor"]):
        said = as_other(*words, cwd=root.path, home=other_home)
        assert said.returncode not in (0, None), words
        assert "Traceback" not in said.stderr and "defect of mam" not in said.stderr, said.stderr
        assert said.stderr or "broken" in said.stdout

    assert sorted(str(path) for path in root.parts.layout.mam.rglob("*") if "run" not in path.parts) == before
    assert root.session("writer").status == "running"


def test_each_persons_own_control_root_works_beside_the_other(root: Root, other_home: Path) -> None:
    root.agent()
    repo = other_home / "repo"
    subprocess.run(
        ["git", "init", "-q", str(repo)], user=OTHER, group=OTHER, env={"HOME": str(other_home), **os.environ}
    )
    try:
        for words in (["init"], ["agent", "create", "writer", "--agent", "scripted"], ["status"]):
            said = as_other(*words, cwd=repo, home=other_home)
            assert said.returncode == 0, said.stderr
        assert str(root.path) not in said.stdout
        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0
    finally:
        as_other("agent", "stop", "writer", cwd=repo, home=other_home)
        as_other("down", cwd=repo, home=other_home)
