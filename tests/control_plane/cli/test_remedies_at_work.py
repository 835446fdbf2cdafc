"""Remedies carried out: the command that an error names, run as it stands, ends the trouble that the error told."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import kept_root
from tests.control_plane.cli.test_remedies import NAMED
from tests.control_plane.registry.test_upgrade import make_older
from tests.support import MAM, Root, git, repository

DONE: dict[str, Any] = {"report": {"text": "done"}}
FOR_EVER: tuple[dict[str, Any], ...] = ({"started": {}}, {"hang": {}})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """One control root for the troubles that leave the rest of it whole. Each test uses names of its own."""
    with kept_root(tmp_path_factory.mktemp("remedies")) as root:
        for name, value in (("name", "Test"), ("email", "test@localhost")):
            git(root.path, "config", f"user.{name}", value)
        yield root


def refused(root: Root, code: str, *words: str, cwd: Path | None = None) -> list[str]:
    """Run *words*, which must fail with *code*, and return the commands that the remedy names."""
    said = root.mam(*words, "--json", cwd=cwd, stdin="do it")
    assert said.code != 0 and said.error["code"] == code, said.out + said.err
    return NAMED.findall(said.error["remedy"])


def carry_out(root: Root, command: str, *, cwd: Path | None = None) -> None:
    """Run *command* as a person would paste it."""
    program, *words = shlex.split(command)
    argv = [MAM if program == "mam" else program, *words]
    done = subprocess.run(argv, cwd=cwd or root.path, env={**os.environ, **root.env}, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def cured(
    root: Root, code: str, words: Sequence[str], *chosen: int, cwd: Path | None = None, gate: Path | None = None
) -> None:
    """
    *words* fail with *code*; after the *chosen* commands of the remedy (else its first) they succeed.

    *gate* is made in between: an agent that waits for it goes on.
    """
    commands = refused(root, code, *words, cwd=cwd)
    if gate is not None:
        gate.touch()
    for each in chosen or (0,):
        carry_out(root, commands[each], cwd=cwd)
    again = root.mam(*words, "--json", cwd=cwd, stdin="do it")
    assert again.code == 0, again.err


def delegated(to: str) -> list[str]:
    return ["job", "delegate", "--to", to, "--brief", "-"]


def test_an_agent_that_does_not_run_is_resumed(shared: Root) -> None:
    shared.agent("stopped")
    shared.ok("agent", "stop", "stopped")

    cured(shared, "session_not_running", delegated("stopped"))


def test_a_name_that_exists_is_continued(shared: Root) -> None:
    shared.agent("existing")
    shared.ok("agent", "stop", "existing")

    (command,) = refused(shared, "session_exists", "agent", "create", "existing", "--agent", "scripted")
    carry_out(shared, command)

    assert shared.session("existing").status == "running"


def until_there(gate: Path) -> list[dict[str, Any]]:
    """A script that reports once *gate* exists."""
    return [{"started": {}}, {"shell": f"until [ -e {gate} ]; do sleep 0.1; done"}, DONE]


def test_work_for_a_busy_agent_is_possible_after_the_wait_that_is_named(shared: Root, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    shared.agent("busy", *until_there(gate))
    shared.delegate("busy")

    cured(shared, "session_busy", delegated("busy"), gate=gate)


def test_a_busy_agent_is_stopped_after_the_wait_that_is_named(shared: Root, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    shared.agent("quick", *until_there(gate))
    shared.delegate("quick")

    cured(shared, "session_busy", ["agent", "stop", "quick"], gate=gate)


def test_an_open_job_is_archived_after_it_was_cancelled(shared: Root) -> None:
    shared.agent("hanging", *FOR_EVER)
    job = shared.delegate("hanging")

    cured(shared, "job_open", ["job", "archive", job])


def test_a_job_that_ended_is_tried_again(shared: Root) -> None:
    shared.agent("patient", DONE)
    job = shared.delegate("patient")
    shared.ok("job", "wait", job)

    (command,) = refused(shared, "job_ended", "job", "cancel", job)
    carry_out(shared, command)

    assert shared.job(job).attempt == 2


def test_a_worktree_that_another_agent_writes_in_is_free_after_that_one_stops(shared: Root) -> None:
    shared.ok("worktree", "prepare", "taken")
    shared.ok("agent", "create", "first", "--agent", "scripted", "--worktree", "taken")

    cured(shared, "worktree_taken", ["agent", "create", "second", "--agent", "scripted", "--worktree", "taken"])


def test_a_worktree_that_is_not_there_is_prepared(shared: Root) -> None:
    cured(shared, "unknown_worktree", ["agent", "create", "new", "--agent", "scripted", "--worktree", "unmade"], 0, 1)


def test_a_worktree_whose_files_are_gone_is_completed(shared: Root) -> None:
    shutil.rmtree(shared.ok("worktree", "prepare", "lost")["path"])

    cured(shared, "worktree_not_ready", ["agent", "create", "seeker", "--agent", "scripted", "--worktree", "lost"])


def test_a_worktree_with_uncommitted_work_is_removed_after_the_commit(shared: Root) -> None:
    tree = Path(shared.ok("worktree", "prepare", "dirty")["path"])
    (tree / "work.txt").write_text("not yet committed\n", "utf-8")

    cured(shared, "worktree_dirty", ["worktree", "remove", "dirty"])


def test_a_locked_worktree_is_removed_after_it_was_unlocked(shared: Root) -> None:
    tree = shared.ok("worktree", "prepare", "locked")["path"]
    git(shared.path, "worktree", "lock", tree)

    cured(shared, "tree_locked", ["worktree", "remove", "locked"])


def test_an_agent_whose_directory_is_gone_gets_it_again(shared: Root) -> None:
    shared.ok("worktree", "prepare", "home")
    shared.ok("agent", "create", "dweller", "--agent", "scripted", "--worktree", "home")
    shared.ok("agent", "stop", "dweller")
    shared.ok("worktree", "remove", "home")

    commands = refused(shared, "place_gone", "agent", "resume", "dweller")
    for command in commands:
        carry_out(shared, command)

    assert len(commands) == 2 and shared.session("dweller").status == "running"


def test_an_agent_that_is_named_from_another_directory_is_stopped_in_its_own(shared: Root) -> None:
    shared.agent("distant")

    (command,) = refused(shared, "other_place", "agent", "stop", "distant", "--cwd", str(shared.path.parent))
    carry_out(shared, command)

    assert shared.session("distant").status == "stopped"


def test_a_registry_that_was_lost_is_made_again_from_its_log(root: Root) -> None:
    root.agent()
    root.ok("agent", "stop", "writer")
    root.ok("down")
    for path in (root.path / ".mam").glob("registry.db*"):
        path.unlink()

    cured(root, "no_registry", ["status"])
    assert root.session("writer").status == "stopped"


def test_a_registry_of_garbage_is_made_again_from_its_log(root: Root) -> None:
    root.ok("up")
    root.kill_monitor()
    (root.path / ".mam" / "registry.db").write_bytes(b"garbage" * 1000)

    cured(root, "registry_unusable", ["status"], 1, 2)


def test_a_registry_of_an_older_schema_is_migrated(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    make_older(root, monkeypatch)

    cured(root, "schema_mismatch", ["status"])


def test_a_directory_without_a_control_root_gets_one(shared: Root, tmp_path: Path) -> None:
    place = repository(tmp_path / "plain")

    cured(shared, "no_control_root", ["status"], cwd=place)


def test_a_control_root_that_was_moved_says_how_it_goes_on(root: Root) -> None:
    root.ok("down")
    root.path = root.path.rename(root.path.with_name("elsewhere"))

    cured(root, "control_root_moved", ["up"])


def test_a_monitor_of_this_root_that_runs_is_shown(shared: Root) -> None:
    shared.ok("up")

    (command,) = refused(shared, "monitor_runs", "monitor", "run")
    carry_out(shared, command)
