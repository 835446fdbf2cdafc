"""Two installations of MAM, as in a worktree of its own repository: one serves a control root, the other asks."""

import os
import sqlite3
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mam.control_plane.control_root import installation, monitor_process, service
from mam.control_plane.registry import migrations
from tests.support import MAM, Root, Said
from tests.support.desk import Desk


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The `mam` of a second installation, in a virtual environment of its own."""
    folder = tmp_path / "other"
    venv.create(folder, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    here = sysconfig.get_path("purelib")
    (packages / "same.pth").write_text(f"import site; site.addsitedir({here!r})\n", "utf-8")
    mam = folder / "bin" / "mam"
    start = "import sys\nfrom mam.control_plane.cli import main\nsys.exit(main())\n"
    mam.write_text(f"#!{folder}/bin/python\n{start}", "utf-8")
    mam.chmod(0o755)
    return mam


def run(mam: Path, root: Root, *words: str) -> Said:
    done = subprocess.run([mam, *words], cwd=root.path, env={**os.environ, **root.env}, capture_output=True, text=True)
    return Said(done.returncode, done.stdout, done.stderr)


def program(pid: int) -> str:
    """The script that a process was started from."""
    return psutil.Process(pid).cmdline()[1]


def forget(root: Root) -> None:
    """Make the control root one of 0.1.0, which has no record."""
    with sqlite3.connect(root.parts.layout.database) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'runtime'")
    connection.close()


def test_another_installation_starts_monitor_and_runner_of_the_recorded_one_and_says_so(
    root: Root, other: Path
) -> None:
    up = run(other, root, "up")
    made = run(other, root, "agent", "create", "w", "--agent", "scripted", "--role", "creator")

    assert (up.code, made.code) == (0, 0), up.err + made.err
    assert f"served by {MAM}, and not by the mam that you run" in up.err
    monitor = monitor_process.look(root.parts.layout)
    assert monitor is not None
    assert program(monitor.process.pid) == MAM
    assert program(root.session("w").pid) == MAM
    assert f"served by {MAM}" in run(other, root, "status").out
    assert f"served by {MAM}; you run {other}" in run(other, root, "doctor").out
    refused = run(other, root, "monitor", "run", "--json")
    assert (refused.code, refused.error["code"]) == (2, "other_runtime")

    run(other, root, "down")
    service.install(service.describe(root.parts, platform="linux"), start=False)
    taken = run(other, root, "init", "--runtime", "--json")
    assert taken.json["runtime"] == str(other)
    unit = service.describe(root.parts, platform="linux")
    assert unit.path.read_text("utf-8") == unit.text and f'ExecStart="{other}"' in unit.text
    assert run(other, root, "up").code == 0
    monitor = monitor_process.look(root.parts.layout)
    assert monitor is not None
    assert program(monitor.process.pid) == str(other)


def test_a_root_without_a_record_takes_the_mam_of_its_next_up_and_says_so(root: Root) -> None:
    forget(root)
    assert root.ok("status")["runtime"] is None

    up = root.mam("up")

    assert up.code == 0 and f"served by {MAM} from now on" in up.err
    assert root.ok("status")["runtime"] == MAM
    assert "from now on" not in root.mam("up").err


def test_a_recorded_program_that_is_gone_is_named_with_the_command_that_replaces_it(root: Root) -> None:
    with root.registry.transaction() as tx:
        tx.set_meta("runtime", "/gone/bin/mam")

    for verb in (["up"], ["agent", "create", "w", "--agent", "command", "--", "true"], ["monitor", "run"]):
        said = root.mam(*verb, "--json")
        assert (said.code, said.error["code"]) == (2, "runtime_gone")
        assert "/gone/bin/mam" in said.error["message"]
        assert f"`mam init --runtime --root {root.path}`" in said.error["remedy"]
    assert "/gone/bin/mam" in root.mam("status").out and "/gone/bin/mam" in root.mam("doctor").out
    assert root.session("w") is None

    assert root.mam("init", "--runtime").code == 0
    assert root.mam("up").code == 0


def test_another_installation_does_not_migrate_the_registry(desk: Desk) -> None:
    with desk.mam.registry.transaction() as tx:
        tx.set_meta("runtime", sys.executable)
        tx.connection.execute(f"PRAGMA user_version = {migrations.VERSION - 1}")

    with pytest.raises(installation.OtherRuntime):
        monitor_process.upgrade(desk.mam)


def test_the_same_program_by_another_path_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(Path(MAM).parent)

    assert installation.is_running(str(tmp_path / "bin" / "mam"))
    assert not installation.is_running(sys.executable)


@pytest.mark.parametrize("verb", ["--moved", "--copied"])
def test_a_root_that_was_moved_or_copied_is_served_by_the_mam_that_says_so(
    make_root: Callable[..., Root], tmp_path: Path, verb: str
) -> None:
    root = make_root()
    with root.registry.transaction() as tx:
        tx.set_meta("runtime", str(root.path / ".venv" / "bin" / "mam"))
    root.path = root.path.rename(tmp_path / "moved")

    assert root.mam("init", verb).code == 0

    assert root.ok("status")["runtime"] == MAM
