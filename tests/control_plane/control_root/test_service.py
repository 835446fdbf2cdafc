"""The monitor as a service: installed, started, undone, with a session manager that does what it is told, or fails."""

import os
import plistlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mam.control_plane.control_root import monitor_process, service
from tests.support import Root

# Notes what it is asked for. Where `fails` holds a word that it is given, it fails, as without a session.
MANAGER = """\
#!/bin/sh
echo "$0 $*" | sed 's,.*/,,' >> {folder}/asked
for word in "$@"; do
  grep -qx -e "$word" {folder}/fails 2>/dev/null && {{ echo "Failed to connect to bus" >&2; exit 1; }}
done
exit 0
"""

Manager = Callable[[], list[str]]


@pytest.fixture
def manager(root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    """A session manager in front of PATH; returns what it was asked for."""
    folder = tmp_path / "manager"
    folder.mkdir()
    for name in ("systemctl", "launchctl"):
        (folder / name).write_text(MANAGER.format(folder=folder))
        (folder / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    asked = folder / "asked"
    return lambda: asked.read_text().splitlines() if asked.exists() else []


def fail(tmp_path: Path, word: str) -> None:
    (tmp_path / "manager" / "fails").write_text(f"{word}\n")


def test_what_an_install_starts_an_uninstall_ends(root: Root, manager: Manager) -> None:
    path = Path(root.ok("monitor", "install")["path"])
    unit = path.name
    assert path.exists()
    assert manager() == ["systemctl --user daemon-reload", f"systemctl --user enable --now {unit}"]

    assert root.ok("monitor", "uninstall")["removed"] is True
    assert not path.exists() and manager()[2:] == [f"systemctl --user disable --now {unit}"]


def test_an_install_that_fails_is_a_typed_error_and_leaves_nothing_enabled(
    root: Root, manager: Manager, tmp_path: Path
) -> None:
    fail(tmp_path, "enable")

    said = root.mam("monitor", "install", "--json")

    path = Path(root.ok("monitor", "install", "--print")["path"])
    assert (said.code, said.error["code"]) == (1, "service_failed") and "Failed to connect" in said.error["message"]
    assert not path.exists() and manager()[-1] == f"systemctl --user disable --now {path.name}"


def test_an_install_that_fails_leaves_the_earlier_one_as_it_was(root: Root, manager: Manager, tmp_path: Path) -> None:
    path = Path(root.ok("monitor", "install")["path"])
    path.write_text("# changed by its user\n")
    fail(tmp_path, "daemon-reload")

    assert root.mam("monitor", "install").code == 1

    assert path.read_text() == "# changed by its user\n"
    assert not any("disable" in line for line in manager())


@pytest.mark.parametrize("point", ["service.fsync", "service.rename"])
def test_an_install_that_the_disk_refuses_leaves_the_earlier_one_as_it_was(
    root: Root, manager: Manager, point: str
) -> None:
    path = Path(root.ok("monitor", "install")["path"])
    path.write_text("# changed by its user\n")

    said = root.mam("monitor", "install", "--json", env={"MAM_FAULT": f"{point}:1:ENOSPC"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert path.read_text() == "# changed by its user\n" and list(path.parent.iterdir()) == [path]


def test_an_installed_monitor_takes_the_place_of_the_one_that_runs(root: Root, manager: Manager) -> None:
    root.ok("up")
    assert monitor_process.look(root.parts.layout) is not None

    root.ok("monitor", "install")

    assert monitor_process.look(root.parts.layout) is None  # this manager starts nothing


def test_where_no_service_can_be_started_a_monitor_runs_on(root: Root, manager: Manager, tmp_path: Path) -> None:
    root.ok("up")
    fail(tmp_path, "enable")

    assert root.mam("monitor", "install").code == 1

    assert monitor_process.look(root.parts.layout) is not None


def test_a_uninstall_without_its_manager_removes_the_file_all_the_same(
    root: Root, manager: Manager, tmp_path: Path
) -> None:
    path = Path(root.ok("monitor", "install")["path"])
    fail(tmp_path, "disable")

    assert root.ok("monitor", "uninstall")["removed"] is True
    assert not path.exists()


def odd(path: str) -> Any:
    layout = SimpleNamespace(root=Path(path), binding=lambda: {"WORKSPACE_ROOT": path})
    settings = SimpleNamespace(environ={"HOME": "/home/me"})
    return cast("Any", SimpleNamespace(
        settings=settings, layout=layout, command="/opt/100%/$x/mam", fingerprint="0123456789ab", meta=lambda _: "s"
    ))  # fmt: skip


def test_a_unit_of_systemd_spells_odd_paths_as_systemd_reads_them() -> None:
    text = service.describe(odd('/srv/a "b" 50% $c\\d'), platform="linux").text

    in_environment = '/srv/a \\"b\\" 50%% $c\\\\d'
    assert f'Environment="WORKSPACE_ROOT={in_environment}"' in text
    quoted = '/srv/a \\"b\\" 50%% $$c\\\\d'
    assert f'ExecStart="/opt/100%%/$$x/mam" "monitor" "run" "--root" "{quoted}"' in text


@pytest.mark.parametrize("path", ["/srv/repo", "/srv/a & <b>"])
def test_an_agent_of_launchd_is_xml_that_says_the_same_and_is_unloaded(path: str) -> None:

    described = service.describe(odd(path), platform="darwin")

    said = plistlib.loads(described.text.encode())
    assert said["ProgramArguments"] == ["/opt/100%/$x/mam", "monitor", "run", "--root", path]
    assert (said["EnvironmentVariables"], said["KeepAlive"]) == ({"WORKSPACE_ROOT": path}, {"SuccessfulExit": False})
    assert described.path == Path("/home/me/Library/LaunchAgents") / f"{said['Label']}.plist"
    assert described.stop == [["launchctl", "unload", "-w", str(described.path)]]
