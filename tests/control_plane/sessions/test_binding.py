"""The binding to a control root: in the pane's environment, in the row, and where both differ."""

import json
import os
from pathlib import Path

import pytest

from mam.control_plane.control_root import monitor_process
from tests.support import Root, git, repository, until
from tests.support.binding import BINDING, environ_of
from tests.support.commands import start_mam


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


class Elsewhere:
    """A second control root, whose verbs are called from the first one with all four variables set."""

    def __init__(self, root: Root, folder: Path) -> None:
        self.root, self.home, self.folder = root, root.path, folder
        self.path = repository(folder / "other")
        assert root.mam("init", cwd=self.path).code == 0

    def variables(self, name: str) -> dict[str, str]:
        """Places that nothing but the verb *name* is told of."""
        below = self.folder / name.replace(" ", "-")
        own = {variable: str(below / variable.lower()) for variable in BINDING[1:]}
        return {"WORKSPACE_ROOT": str(self.path), **own}

    def down(self) -> None:
        self.root.mam("down", env=self.variables("down"))

    def followed(self, told: dict[str, str]) -> set[str]:
        """What a verb did where it was *told*: files that it left, and the environment of a monitor that it started."""
        monitor = monitor_process.look(self.root.parts.layout)
        watching = environ_of(monitor.process.pid) if monitor is not None else {}
        left = {name for name in BINDING[1:] if Path(told[name]).is_file() or [*Path(told[name]).glob("*")]}
        return left | {name for name in BINDING if watching.get(name) == told[name]}

    def refuses(self, told: dict[str, str], *verb: str) -> set[str]:
        """Which variables a verb compares with the row of the agent `w`, which was made as *told*."""
        found = set()
        for name in BINDING:
            differs = {**told, name: str(self.home if name == "WORKSPACE_ROOT" else self.folder / "differs")}
            said = self.root.mam(*verb, "--json", env=differs, cwd=self.folder, stdin="do it")
            if said.code == 2 and (said.error["code"] == "unknown_session" or name in said.error["message"]):
                found.add(name)
        return found


@pytest.mark.req("M30", "M31")
@pytest.mark.timeout(600)
def test_the_table_of_variables_in_the_docs_is_what_the_verbs_do(root: Root, tmp_path: Path) -> None:
    """Each cell of the table in docs/architecture.md is compared with what its verb was seen to follow."""
    table = Path(__file__).parents[3].joinpath("docs", "architecture.md").read_text("utf-8")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `mam ") and line.count("|") == 6]
    other = Elsewhere(root, tmp_path)
    root.path = other.path  # what is started there is ended there

    try:
        seen = _drive_all(root, other, other.home)
    finally:
        root.mam("down", "--root", str(other.home))  # a verb that refuses an agent may have begun it

    documented = {row[1].strip(" `").removeprefix("mam "): [cell.strip() for cell in row[2:6]] for row in rows}
    assert documented == {verb: ["yes" if name in cells else "–" for name in BINDING] for verb, cells in seen.items()}


def _drive_all(root: Root, other: Elsewhere, home: Path) -> dict[str, set[str]]:
    """Which variables each verb was seen to follow; called in the first control root, which stays empty."""
    seen, told = {}, {verb: other.variables(verb) for verb in ("create", "up", "wait", "look", "loop")}
    hang = other.folder / "hang.json"
    hang.write_text(json.dumps([{"started": {}}, {"hang": {}}]), "utf-8")
    create = ["--agent", "scripted", "--role", "creator,reviewer", "--", "--script", str(hang)]
    for name in ("w", "r"):
        assert root.mam("agent", "create", name, *create, env=told["create"], cwd=home).code == 0
    pane = environ_of(root.session("w").agent_pid)
    seen["agent create"] = {name for name in BINDING if pane[name] == told["create"][name]}
    other.down()

    for verb, words in (("status", ["status"]), ("monitor once", ["monitor", "once"])):
        root.mam(*words, env=told["look"], cwd=other.folder)
        assert root.mam("status", "--json", env=told["look"], cwd=home).json["root"] == str(other.path)
        seen[verb] = {"WORKSPACE_ROOT"} | other.followed(told["look"])

    assert root.mam("up", env=told["up"], cwd=home).code == 0
    seen["up"] = other.followed(told["up"])
    other.down()
    delegate = ["job", "delegate", "--to", "w", "--brief", "-"]
    seen["job delegate"] = other.refuses(told["create"], *delegate)
    job = root.mam(*delegate, "--json", env=told["create"], cwd=home, stdin="do it").json["id"]
    until(lambda: root.job(job).state == "running")
    other.down()
    assert root.mam("job", "wait", job, "--timeout", "5", env=told["wait"], cwd=home).code == 4
    seen["job wait"] = other.followed(told["wait"])
    other.down()

    seen["agent stop"] = other.refuses(told["create"], "agent", "stop", "w")
    seen["agent resume"] = other.refuses(told["create"], "agent", "resume", "w")
    other.down()

    tree = other.folder / "tree"
    git(other.path, "worktree", "add", "-q", "-b", "topic", str(tree))
    git(tree, "commit", "-q", "--allow-empty", "-m", "empty")
    (tree / "new.txt").write_text("new\n", "utf-8")
    git(tree, "add", "new.txt")
    git(tree, "commit", "-qm", "new")
    words = [
        "loop",
        "run",
        "--task",
        "-",
        "--review-only",
        "--reviewers",
        "r",
        "--worktree",
        str(tree),
        "--id",
        "loop-x",
    ]
    child = start_mam(*words, cwd=home, env={**root.env, **told["loop"]}, stdin="look at it\n")
    reviewed = Path(told["loop"]["MAM_JOBS_DIR"])
    until(lambda: [*reviewed.glob("*/brief.md")], what="a reviewer was asked")
    seen["loop run"] = other.followed(told["loop"])
    assert root.mam("loop", "cancel", "loop-x", env=told["loop"], cwd=home).code == 0
    assert child.wait(120) == 1
    own = Root(home, mux="headless")
    with own.registry.view() as view:
        assert (view.sessions(), view.jobs(), view.loops()) == ([], [], [])
    return seen
