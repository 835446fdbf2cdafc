"""Sessions through their whole life, from the command line, in headless panes with a real broker."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from mam.control_plane.sessions import runtime
from tests.support import MAM, Root, git, repository, until

BINDING = ("WORKSPACE_ROOT", "AGENT_SESSIONS_YAML", "MAM_JOBS_DIR", "DELEGATE_JOB_LOGS_DIR")


def environ_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.decode("utf-8", "surrogateescape").split("=", 1) for pair in pairs if b"=" in pair)


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


def test_a_stopped_agent_is_gone_keeps_its_memory_and_stopping_twice_is_harmless(root: Root) -> None:
    root.agent()
    root.mam("job", "wait", root.delegate())
    pids = (root.session("writer").pid, root.session("writer").agent_pid)

    assert [root.mam("agent", "stop", "writer").code for _ in range(2)] == [0, 0]

    assert [process_identity.start_time(pid) for pid in pids] == [None, None]
    assert root.session("writer").status == "stopped"
    assert root.mam("agent", "resume", "writer").code == 0
    job = root.delegate()
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0
    memory = root.path / ".mam" / "run" / "writer" / "memory.json"
    assert len(json.loads(memory.read_text())) == 2


def test_an_agent_with_a_job_is_not_stopped_by_accident(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")

    said = root.mam("agent", "stop", "writer", "--json")

    assert (said.code, said.error["code"]) == (5, "session_busy")
    assert root.session("writer").status == "running"
    assert root.mam("agent", "stop", "writer", "--force").code == 0
    assert root.mam("job", "wait", job, "--timeout", "20").code == 1
    assert root.job(job).state == "lost"


def test_a_killed_agent_is_noticed_with_its_code_and_its_job_is_lost(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")

    os.kill(root.session("writer").agent_pid, signal.SIGKILL)

    until(lambda: root.session("writer").status == "ended")
    until(lambda: root.job(job).state == "lost")
    assert root.session("writer").exit_code == -9
    assert root.ok("why", "writer")["next"] == "mam agent resume writer"


def test_a_killed_runner_takes_its_agent_along_and_is_noticed(root: Root) -> None:
    root.agent()
    row = root.session("writer")

    os.kill(row.pid, signal.SIGKILL)

    until(lambda: root.session("writer").status == "ended")
    until(lambda: process_identity.start_time(row.agent_pid) is None)
    assert "without a word" in root.session("writer").ended_reason


def test_a_command_that_ends_at_once_is_no_ready_agent(root: Root) -> None:
    said = root.mam("agent", "create", "brief", "--agent", "command", "--json", "--", "true")

    assert said.code == 4
    assert said.error["code"] == "agent_not_ready"
    assert said.error["data"]["waited_s"] < 30  # it did not wait for what had ended, and does not say that it did
    until(lambda: root.session("brief").status == "ended")


def test_a_name_is_taken_only_once(root: Root) -> None:
    root.agent()

    said = root.mam("agent", "create", "writer", "--agent", "scripted", "--json")

    assert (said.code, said.error["code"]) == (1, "session_exists")
    assert root.session("writer").status == "running"


@pytest.mark.req("M91", "M92")
def test_there_is_one_monitor_however_many_start_it_and_from_wherever(root: Root, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(root.path, "worktree", "add", "-q", "-b", "topic", str(tree))
    environ = {**os.environ, **root.env}
    starts = [
        subprocess.Popen([MAM, "up"], cwd=cwd, env=environ, stdout=-3, stderr=-3) for cwd in (root.path, tree) * 3
    ]

    assert [child.wait(120) for child in starts] == [0] * 6

    known = monitor_process.look(root.parts.layout)
    assert known is not None
    until(lambda: _monitors(root) == [str(known.process.pid)], what="those that came second have ended")
    assert os.readlink(f"/proc/{known.process.pid}/cwd") == str(root.path)
    said = root.mam("monitor", "run", "--json", cwd=tree)
    assert (said.code, said.error["code"]) == (1, "monitor_runs")


def _monitors(root: Root) -> list[str]:
    argv = ["pgrep", "-f", f"monitor run --root {root.path}$"]
    return subprocess.run(argv, capture_output=True, text=True).stdout.split()


@pytest.mark.req("M92")
def test_the_opt_out_is_respected_by_every_verb_that_starts_a_monitor(root: Root) -> None:
    closed = {"MAM_NO_SUBSCRIBER_DAEMON": "1"}
    root.agent()
    job = root.delegate()
    root.mam("job", "wait", job)
    root.mam("down")

    for words in (
        ["up"],
        ["agent", "resume", "writer"],
        ["job", "delegate", "--to", "writer", "--brief", "README"],
        ["job", "wait", job],
        ["job", "cancel", "job-00000000"],
        ["status"],
        ["why", "writer"],
    ):
        root.mam(*words, env=closed)
        assert monitor_process.look(root.parts.layout) is None, words


def test_the_monitor_starts_its_broker_again(root: Root) -> None:
    root.agent()
    root.kill_broker()

    job = root.delegate()

    assert root.mam("job", "wait", job, "--timeout", "30").code == 0


def test_the_sessions_file_says_what_the_registry_says(root: Root) -> None:
    root.agent("no")
    path = root.path / ".mam" / "agent-sessions.yaml"

    until(lambda: yaml.safe_load(path.read_text("utf-8"))["sessions"][0]["status"] == "running")

    entry = yaml.safe_load(path.read_text("utf-8"))["sessions"][0]
    assert (entry["name"], entry["pane"]["cwd"]) == ("no", str(root.path))


def test_roles_are_edited_in_the_file_and_everything_else_is_refused(root: Root) -> None:
    root.agent()
    path = root.path / ".mam" / "agent-sessions.yaml"
    root.mam("agent", "stop", "writer")
    root.mam("down")
    root.mam("registry", "export")
    text = path.read_text("utf-8")

    for broken, code in (
        (text.replace('"role": "creator"', '"role": "creator"\n  "role": "x"'), "import_refused"),
        (text.replace('"status": "stopped"', '"status": "running"'), "import_refused"),
        (text.replace('"creator"', "no"), "import_refused"),
        (text.replace('"generation": ', '"generation": 9'), "stale_import"),
        (text.replace('"writer"', '"nobody"', 1), "unknown_session"),
        ("[" * 5000, "import_refused"),
        (text.replace('"creator"', '"two words"'), "bad_name"),
    ):
        path.write_text(broken, "utf-8")
        assert root.mam("registry", "import", "--json").error["code"] == code
    path.write_text(text.replace('"creator"', '"planner,reviewer"'), "utf-8")
    assert root.ok("registry", "import")["changed"] == ["writer"]
    assert root.session("writer").role == "planner,reviewer"


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


def test_every_part_of_a_session_can_be_gone_before_it_is_stopped(root: Root) -> None:
    root.agent()
    row = root.session("writer")
    runtime.multiplexer(root.parts, row).close(row.pane, runtime.tag(root.parts, "writer"))
    root.mam("down")

    assert [root.mam("agent", "stop", "writer").code for _ in range(2)] == [0, 0]
    assert root.session("writer").status == "stopped"


def test_a_workspace_server_is_never_shared(make_root: Callable[..., Root], needs: Callable[[str], None]) -> None:
    needs("tmux")
    one, two = make_root("a/same", mux="tmux"), make_root("b/same", mux="tmux")
    one.agent()
    two.agent()

    assert one.session("writer").mux_server != two.session("writer").mux_server
    assert one.mam("agent", "stop", "writer").code == 0
    assert runtime.alive(two.session("writer"))


def test_attach_shows_the_agents_pane_in_a_terminal_until_its_person_leaves(
    make_root: Callable[..., Root], needs: Callable[[str], None]
) -> None:
    needs("tmux")
    root = make_root(mux="tmux")
    root.agent()
    master, slave = pty.openpty()
    words = [MAM, "agent", "attach", "writer"]
    env = {**os.environ, **root.env, "TERM": "xterm"}
    person = subprocess.Popen(
        words, cwd=root.path, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        shown = b""
        while b"scripted>" not in shown:
            assert select.select([master], [], [], 60)[0], shown[-2000:]
            shown += os.read(master, 65536)
        leave = ["tmux", "-L", root.session("writer").mux_server, "detach-client", "-s", "writer"]
        subprocess.run(leave, check=True)
        while person.poll() is None:  # its goodbye is read, or it could not end
            if select.select([master], [], [], 0.1)[0]:
                with suppress(OSError):
                    os.read(master, 65536)
    finally:
        person.kill()
        os.close(master)

    assert person.returncode == 0 and runtime.alive(root.session("writer"))


def test_a_pane_whose_number_another_agent_has_now_is_never_taken_for_the_old_ones(
    make_root: Callable[..., Root], needs: Callable[[str], None]
) -> None:
    needs("tmux")
    root = make_root(mux="tmux")
    root.agent()
    assert root.mam("agent", "stop", "writer").code == 0
    subprocess.run(["tmux", "-L", root.session("writer").mux_server, "kill-server"], capture_output=True)
    gone = root.mam("agent", "attach", "writer", "--json")
    root.agent("second")
    assert root.session("second").pane == root.session("writer").pane  # a new server counts from the beginning

    said = root.mam("agent", "attach", "writer", "--json")

    assert [(each.code, each.error["code"]) for each in (gone, said)] == [(2, "usage")] * 2
    assert root.session("second").pane in root.ok("agent", "attach", "second")["command"]
