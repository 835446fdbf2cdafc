"""The binding to a control root: in the pane's environment, in the row, and where both differ."""

import json
import os
from pathlib import Path

import pytest

from tests.support import Root, git, repository, until
from tests.support.binding import BINDING, environ_of


@pytest.mark.req("M27", "M29", "M35", "M108")
def test_the_panes_own_environment_holds_the_binding_and_no_secret(root: Root) -> None:
    root.agent("first")
    said = root.mam("agent", "create", "second", "--agent", "scripted", env={"MAM_VERSION": "0.0.1", "CLAUDECODE": "1"})
    assert said.code == 0, said.err

    own = environ_of(root.session("second").agent_pid)

    assert {name: own[name] for name in BINDING} == {
        n: v for n, v in root.parts.layout.binding().items() if n in BINDING
    }
    assert own["MAM_ENV_FILE"] == str(root.path / ".mam.env")
    assert own["MAM_SESSION"] == "second"
    assert "MAM_VERSION" not in own and "CLAUDECODE" not in own
    secrets = [path.read_text().strip() for path in (root.path / ".mam" / "secrets").iterdir()]
    assert not [name for name, value in own.items() if any(secret in value for secret in secrets)]
    assert json.loads(root.session("second").binding)["WORKSPACE_ROOT"] == str(root.path)


@pytest.mark.req("M28")
def test_resume_takes_the_binding_of_the_row_and_not_of_the_caller(root: Root, tmp_path: Path) -> None:
    central = {name: str(tmp_path / "central" / name.lower()) for name in BINDING[1:]}
    assert root.mam("agent", "create", "writer", "--agent", "scripted", env=central).code == 0
    root.mam("agent", "stop", "writer")
    log = Path(central["DELEGATE_JOB_LOGS_DIR"]) / "runner-writer.log"
    log.unlink()

    assert root.mam("agent", "resume", "writer").code == 0

    own = environ_of(root.session("writer").agent_pid)
    assert {name: own[name] for name in BINDING} == {"WORKSPACE_ROOT": str(root.path), **central}
    until(log.exists, what="its runner writes where the row says")


@pytest.mark.req("M28", "M30")
def test_a_variable_that_differs_from_the_row_is_exit_2_and_rebind_moves_it(root: Root, tmp_path: Path) -> None:
    root.agent()
    root.mam("agent", "stop", "writer")
    other = {"MAM_JOBS_DIR": str(tmp_path / "other")}

    for verb in ("resume", "stop"):
        said = root.mam("agent", verb, "writer", "--json", env=other)
        assert (said.code, said.error["code"]) == (2, "other_binding")
        assert str(tmp_path / "other") in said.error["message"]

    assert root.mam("agent", "resume", "writer", "--rebind", env=other).code == 0
    assert environ_of(root.session("writer").agent_pid)["MAM_JOBS_DIR"] == str(tmp_path / "other")


@pytest.mark.req("M104")
def test_resuming_a_living_agent_leaves_it_alone_and_refreshes_its_binding(root: Root, tmp_path: Path) -> None:
    root.agent()
    before = root.session("writer")

    again = root.mam("agent", "resume", "writer", "--json")
    moved = root.mam("agent", "resume", "writer", "--rebind", "--json", env={"MAM_JOBS_DIR": str(tmp_path / "new")})

    assert (again.code, moved.code) == (0, 0)
    after = root.session("writer")
    assert (after.agent_pid, after.generation) == (before.agent_pid, before.generation)
    assert json.loads(after.binding)["MAM_JOBS_DIR"] == str(tmp_path / "new")
    assert root.mam("agent", "resume", "writer", "--json", env={"MAM_JOBS_DIR": str(tmp_path / "x")}).code == 2


def test_resume_from_another_directory_is_exit_2_with_the_right_command(root: Root, tmp_path: Path) -> None:
    root.agent()
    root.mam("agent", "stop", "writer")

    said = root.mam("agent", "resume", "writer", "--cwd", str(tmp_path), "--json")

    assert (said.code, said.error["code"]) == (2, "other_place")
    assert f"--cwd {root.path}" in said.error["remedy"]
    assert root.session("writer").status == "stopped"


@pytest.mark.req("M33")
@pytest.mark.parametrize("below", ["", "packages/api"], ids=["the top of a tree", "below its top"])
def test_a_row_says_where_the_agent_really_works(root: Root, tmp_path: Path, below: str) -> None:
    place = tmp_path / "tree" / below
    git(root.path, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "tree"))
    place.mkdir(parents=True, exist_ok=True)

    assert root.mam("agent", "create", "writer", "--agent", "scripted", "--workspace", str(place)).code == 0

    row = root.session("writer")
    assert row.cwd == str(place)
    assert os.readlink(f"/proc/{row.agent_pid}/cwd") == str(place)
    assert not [*tmp_path.glob("tree/**/.mam")]


@pytest.mark.req("M31")
def test_the_table_of_variables_in_the_docs_is_what_the_verbs_do(root: Root, tmp_path: Path) -> None:
    """docs/architecture.md holds the table; each cell `yes` is tried here: the verb follows the variable."""
    table = Path(__file__).parents[3].joinpath("docs", "architecture.md").read_text("utf-8")
    rows = [line for line in table.splitlines() if line.startswith("| `mam ") and line.count("|") == 6]
    other = repository(tmp_path / "other")
    assert root.mam("init", cwd=other).code == 0
    central = {
        "WORKSPACE_ROOT": str(other),
        "AGENT_SESSIONS_YAML": str(tmp_path / "c" / "sessions.yaml"),
        "MAM_JOBS_DIR": str(tmp_path / "c" / "jobs"),
        "DELEGATE_JOB_LOGS_DIR": str(tmp_path / "c" / "logs"),
    }
    root.env |= central
    proven = _drive_all(root, other, central)

    documented = {row.split("`")[1].removeprefix("mam "): [c.strip() for c in row.split("|")[2:6]] for row in rows}

    assert documented == {verb: ["yes" if name in cells else "–" for name in BINDING] for verb, cells in proven.items()}
    root.path = other  # what was started here is ended there


def _drive_all(root: Root, other: Path, central: dict[str, str]) -> dict[str, set[str]]:
    """Which variables each verb was seen to follow."""
    everything, jobs_only = set(BINDING), {"WORKSPACE_ROOT", "MAM_JOBS_DIR"}
    assert root.mam("agent", "create", "w", "--agent", "scripted").code == 0
    assert Path(central["AGENT_SESSIONS_YAML"]).exists()
    assert (Path(central["DELEGATE_JOB_LOGS_DIR"]) / "runner-w.log").exists()
    job = root.delegate("w")
    assert (Path(central["MAM_JOBS_DIR"]) / job / "brief.md").exists()
    assert not list((other / ".mam" / "jobs").iterdir())
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0
    assert root.ok("status")["root"] == str(other)
    assert root.ok("job", "show", job)["report_path"].startswith(central["MAM_JOBS_DIR"])
    assert root.mam("agent", "stop", "w").code == 0
    assert root.mam("agent", "resume", "w").code == 0
    assert (Path(central["DELEGATE_JOB_LOGS_DIR"]) / "monitor.log").exists()
    assert root.mam("agent", "stop", "w").code == 0
    root.mam("down")
    refuses = {
        name: root.mam("agent", "stop", "w", "--json", env={name: str(root.path)}).code
        for name in ("AGENT_SESSIONS_YAML", "MAM_JOBS_DIR", "DELEGATE_JOB_LOGS_DIR")
    }
    assert set(refuses.values()) == {2}
    return {
        "agent create": everything,
        "agent resume": everything,
        "agent stop": everything,
        "job delegate": everything,
        "job wait": jobs_only,
        "status": {"WORKSPACE_ROOT"},
        "monitor run": everything,
    }
