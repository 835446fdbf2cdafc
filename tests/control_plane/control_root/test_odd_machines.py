"""Machines and directories that nobody would wish for, and still has."""

import importlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.control_plane import cli
from tests.support import MAM, Root, git, repository, run_mam

pytestmark = pytest.mark.hostile

BARE = {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HOME": ""},
        {"HOME": "/nonexistent"},
        {"LC_ALL": "C", "LANG": ""},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"TERM": ""},
        {"PATH": ""},
        {"COLUMNS": "1", "LINES": "0"},
    ],
    ids=["bare", "home empty", "home missing", "no locale", "ascii only", "no terminal", "path empty", "no columns"],
)
def test_a_job_is_done_whatever_the_environment_lacks(
    make_root: Callable[..., Root], monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    for name in list(os.environ):
        if name not in ("PYTEST_CURRENT_TEST", "CI", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
            monkeypatch.delenv(name)
    for name, value in BARE.items():
        monkeypatch.setenv(name, value)
    root = make_root("한국어 repo")
    root.env |= environ

    root.agent("writer", {"started": {}}, {"report": {"text": "fertig: äöü 한국어"}})
    job = root.delegate("writer", "schreib es auf: äöü 한국어")
    done = root.mam("job", "wait", job, "--timeout", "30", "--json")

    assert done.code == 0, done.err
    assert done.json["every_event_verified"]
    assert root.mam("status").code == 0 and root.mam("why", job).code == 0


def test_a_working_directory_that_is_gone_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = f"cd '{tmp_path}/gone' && rmdir '{tmp_path}/gone' && exec {MAM} status --json"

    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)

    assert done.returncode == 2
    assert '"code": "usage"' in done.stderr and "Traceback" not in done.stderr


def as_nobody(call: Callable[[], int], out: Path) -> int:
    """Run *call* in a child process that is not root, everything it needs being imported already."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            sys.stdout = os.fdopen(1, "w", closefd=False)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            code = call()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001 (a forked child must never return into pytest)
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """tmp_path, reachable for other users."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() != "root" or str(folder) == "/tmp":
            break
        folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize(
    "words", [["status"], ["job", "list"], ["init"], ["up"], ["agent", "list"], ["tail", "--no-follow"]]
)
def test_somebody_elses_control_root_is_a_typed_error(open_path: Path, root: Root, words: list[str]) -> None:
    for module in ("agent", "job", "root", "show", "registry"):
        importlib.import_module(f"mam.control_plane.cli.{module}")
    in_rooms = ("control_root.monitor_process", "monitor.monitor", "control_root.create", "explain.loops")
    for module in (*in_rooms, "maintenance.doctor"):
        importlib.import_module(f"mam.control_plane.{module}")
    out = open_path / "out"
    out.touch()
    out.chmod(0o666)

    code = as_nobody(lambda: cli.main([*words, "--root", str(root.path), "--json"]), out)

    said = out.read_text("utf-8")
    assert code in (1, 2), said
    assert '"error"' in said and "Traceback" not in said and '"internal"' not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_a_mam_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    plain = repository(tmp_path / "repo")
    (plain / ".mam").mkdir()
    os.chown(plain / ".mam", 12345, 12345)

    said = run_mam("init", "--json", cwd=plain)

    assert said.code == 1 and said.error["code"] == "file_refused"
    assert "belongs to user 12345" in said.error["message"]


def test_init_and_up_twice_are_harmless(root: Root) -> None:
    before = root.parts.fingerprint

    assert [root.mam("init").code, root.mam("up").code, root.mam("up").code, root.mam("init").code] == [0] * 4
    assert root.parts.fingerprint == before
    assert [root.mam("down").code for _ in range(2)] == [0, 0]


def test_a_repository_without_commits_or_on_a_detached_head_can_be_a_control_root(
    make_root: Callable[..., Root],
) -> None:
    root = make_root()
    git(root.path, "checkout", "-q", "--detach")
    root.agent()

    assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0


def test_a_link_to_the_repository_is_the_same_control_root(root: Root, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root.path)
    root.agent()

    assert len(root.ok("agent", "list", cwd=tmp_path / "link")) == 1


def test_an_env_file_that_is_none_is_named_with_its_line(root: Root) -> None:
    (root.path / ".mam.env").write_text("MAM_MUX=headless\nthis is no setting\n", "utf-8")

    said = root.mam("status", "--json")

    assert said.code == 2
    assert ".mam.env:2" in said.error["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAM_HEARTBEAT_S", "soon"),
        ("MAM_BROKER_PORT", "http"),
        ("MAM_BROKER_URL", "mqtt://u:secret@h"),
        ("MAM_DELIVER_WITHIN_S", "-1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(root: Root, name: str, value: str) -> None:
    root.mam("down")

    said = root.mam("agent", "create", "writer", "--agent", "scripted", "--json", env={name: value})

    assert said.code != 0 and "secret" not in said.err
    assert name in said.err or "broker URL" in said.err


def test_names_that_are_no_text_are_refused(root: Root) -> None:
    odd = os.fsdecode(os.fsencode(str(root.path.parent)) + b"/caf\xe9")
    os.mkdir(odd)

    for words, cwd in (
        (["agent", "create", "w", "--agent", "scripted", "--cwd", odd], root.path),
        (["init"], Path(odd)),
    ):
        done = subprocess.run([MAM, *words, "--json"], cwd=cwd, capture_output=True)
        assert done.returncode == 2
        assert b'"code": "usage"' in done.stderr
