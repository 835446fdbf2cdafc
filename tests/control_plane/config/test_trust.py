"""A file of a work tree is obeyed as far as it names nothing, and beyond that while its user trusts its content."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from mam.broker.errors import MamError, Usage
from mam.control_plane.config import env_file, trust
from mam.control_plane.config.settings import Settings

REPOSITORY = Path(__file__).parents[3]
ROOMS = ("agents", "wrappers", "control_plane")

# Every function that asks whether a file of a work tree is obeyed, and the file. A new kind of file is a new line.
READERS = {("control_plane/config/env_file.py", "add"): ".mam.env"}

# Every name that the code looks for in a work tree, and why it needs no trust where it has none.
IN_A_WORK_TREE = {
    ".mam.env": "obeyed by trust.obey",
    ".mam": "MAM's own; refused where git tracks it (foreign.check_tracked)",
    ".git": "git's own; no clone can bring one",
    ".gitmodules": "git's own; MAM takes paths below the work tree from it",
    "pyproject.toml": "the project, which `worktree prepare` installs as its user asks; --no-venv leaves it out",
    "setup.py": "as pyproject.toml",
    ".venv": "the environment that `worktree prepare` makes",
    ".agents": "written, as MAM_REPORTS_ROOT asks",
    "src": "the code under review, on the path of its tests",
    "new.py": "written by a benchmark",
}


def seat(root: Path, **environ: str) -> Settings:
    given = {"HOME": str(root.parent / "home"), **environ}
    return Settings(given, given, root)


def written(root: Path, text: str) -> Path:
    root.mkdir(exist_ok=True)
    path = root / ".mam.env"
    path.write_text(text, "utf-8")
    return path


def allow(path: Path, settings: Settings) -> Path:
    return trust.allow(path, path.read_bytes(), root=path.parent, environ=settings.environ)


@pytest.mark.parametrize(
    "line",
    [
        "MAM_NATS_SERVER=evil.sh",
        "MAM_BROKER_URL=mqtt://127.0.0.1:1",
        "MAM_BROKER_PASSWORD_FILE=~/.ssh/id",
        "MAM_BROKER_USERS_DIR=users",
        "MAM_BROKER_CA_FILE=ca.pem",
        "MAM_BROKER_INSECURE=1",
        "MAM_TMUX_SERVER=default",
        "MAM_TMUX_CONF=tmux.conf",
        "MAM_ALLOW_MAIN=1",
        "MAM_CHAOS=seed=1,loss=1",
        "AGENT_SESSIONS_YAML=~/.bashrc",
        "MAM_JOBS_DIR=../elsewhere",
        "MAM_JOBS_DIR=.git/hooks",
        "MAM_JOBS_DIR=link/jobs",
        "DELEGATE_JOB_LOGS_DIR=/tmp/logs",
        "MAM_WORKTREES_DIR=/",
        "MAM_LOOP_WORKTREE=~/x",
        "WORKSPACE_ROOT=..",
        "MAM_A_SETTING_OF_LATER=1",
    ],
)
def test_a_setting_that_names_more_than_this_root_waits_for_trust_and_is_named(tmp_path: Path, line: str) -> None:
    root = tmp_path / "root"
    settings, path = seat(root), written(root, f"MAM_HEARTBEAT_S=5\n{line}\n")
    (root / "link").symlink_to(tmp_path)

    with pytest.raises(trust.Untrusted) as refused:
        env_file.add(settings, path, root)
    assert refused.value.names.startswith(line.partition("=")[0] + "=")
    assert refused.value.exit_code == 2 and refused.value.command == f"mam trust {path}"

    allow(path, settings)
    assert env_file.add(settings, path, root).text(line.partition("=")[0])


def test_numbers_switches_and_places_inside_of_the_root_need_no_trust(tmp_path: Path) -> None:
    root = tmp_path / "root"
    lines = [f"{name}=1" for name in env_file.HARMLESS]
    lines += [
        "MAM_JOBS_DIR=.mam/jobs",
        "AGENT_SESSIONS_YAML=agents.yaml",
        "WORKSPACE_ROOT=.",
        "EDITOR=vi",
        "MAM_CHAOS=",
    ]

    said = env_file.add(seat(root), written(root, "\n".join(lines)), root)

    assert said.text("MAM_JOBS_DIR") == str(root / ".mam/jobs")


def test_what_the_environment_overrides_needs_no_trust(tmp_path: Path) -> None:
    root = tmp_path / "root"
    path = written(root, "MAM_NATS_SERVER=evil.sh\n")

    said = env_file.add(seat(root, MAM_NATS_SERVER="/usr/bin/nats-server"), path, root)

    assert said.text("MAM_NATS_SERVER") == "/usr/bin/nats-server"


def test_trust_ends_with_the_content_and_holds_for_one_root_and_one_path(tmp_path: Path) -> None:
    root = tmp_path / "root"
    settings, path = seat(root), written(root, "MAM_NATS_SERVER=mine\n")
    content = path.read_bytes()
    record = allow(path, settings)

    def refused(path: Path, content: bytes, root: Path) -> bool:
        try:
            trust.obey(path, content, ["x"], root=root, environ=settings.environ)
        except trust.Untrusted:
            return True
        return False

    assert not refused(path, content, root)
    assert refused(path, content + b"\n", root)
    assert refused(root / "sub.env", content, root)
    assert refused(path, content, tmp_path)
    assert (record.stat().st_mode & 0o777, record.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not record.is_relative_to(root)
    assert trust.forget(path, root=root, environ=settings.environ)
    assert refused(path, content, root)


def test_a_file_outside_of_every_work_tree_is_its_users_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    own = tmp_path / "own.env"
    own.write_text("MAM_TMUX_SERVER=mine\n", "utf-8")

    assert env_file.add(seat(root), own, root).text("MAM_TMUX_SERVER") == "mine"

    (tmp_path / ".git").mkdir()
    with pytest.raises(trust.Untrusted) as refused:
        env_file.add(seat(root), own, root)
    assert refused.value.command == f"mam trust {own} --root {root}"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_nothing_is_trusted_and_that_is_said(tmp_path: Path, environ: Mapping[str, str]) -> None:
    path = written(tmp_path / "root", "MAM_NATS_SERVER=mine\n")

    with pytest.raises(trust.Untrusted):
        trust.obey(path, b"", ["x"], root=path.parent, environ=environ)
    with pytest.raises(MamError, match="no home"):
        trust.allow(path, b"", root=path.parent, environ=environ)


def test_a_state_directory_of_the_users_is_used(tmp_path: Path) -> None:
    assert trust.state_folder({"XDG_STATE_HOME": str(tmp_path), "HOME": "/h"}) == tmp_path / "mam"
    assert trust.state_folder({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == Path("/h/.local/state/mam")


def test_a_settings_file_that_is_none_is_refused_before_its_trust_is_asked(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(Usage, match="is not NAME=value"):
        env_file.add(seat(root), written(root, "MAM_NATS_SERVER=evil\nnothing\n"), root)


def functions() -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for room in ROOMS:
        for path in sorted((REPOSITORY / room).rglob("*.py")):
            where = str(path.relative_to(REPOSITORY))
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            found += [(where, node) for node in nodes if isinstance(node, ast.FunctionDef)]
    return found


def test_every_reader_of_a_work_trees_files_asks_the_one_function_and_is_listed() -> None:
    asking = {
        (where, function.name)
        for where, function in functions()
        if any(ast.unparse(node.func) == "trust.obey" for node in ast.walk(function) if isinstance(node, ast.Call))
    }
    below = re.compile(r"\b(?:root|tree|top|repo|checkout|candidate|found|c)\)? / '([^'{/]+)")
    named = {name for _, function in functions() for name in below.findall(ast.unparse(function))}

    assert asking == set(READERS)
    assert named - {"modules", "info"} == set(IN_A_WORK_TREE)  # those two lie in git's own directory


def test_each_setting_is_read_by_a_name_that_trust_is_asked_for() -> None:
    """What `powers` passes over has no effect: MAM reads no setting by another name."""
    read = set()
    for room in ROOMS:
        for path in (REPOSITORY / room).rglob("*.py"):
            read |= set(
                re.findall(r"ettings\.(?:text|path|flag|seconds|number|port)\(\"(\w+)\"", path.read_text("utf-8"))
            )

    strange = {
        name for name in read if not env_file.powers({name: "/x"}, Path("/root")) and name not in env_file.HARMLESS
    }
    assert len(read) > 20
    assert strange == {"TMUX_PANE"}  # told by tmux, and compared with panes of this root alone
