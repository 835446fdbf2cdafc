"""Where a control root may lie: on disks whose locks end with their holder."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mam.control_plane.config import filesystems
from mam.control_plane.config.filesystems import Mount, NetworkFileSystem, mount_of
from mam.control_plane.control_root import create
from mam.control_plane.loops import locks as loop_locks
from mam.control_plane.loops.locks import LoopRuns
from tests.support.desk import Desk

MOUNTS = [
    Mount("/", "ext4"),
    Mount("/home", "nfs4"),
    Mount("/home/me/local", "xfs"),
    Mount("/home/me/local", "tmpfs"),
    Mount("/mnt/an other", "cifs"),
]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/repo/.mam", "ext4"),
        ("/home/me/repo/.mam", "nfs4"),
        ("/home/me/local/repo", "tmpfs"),
        ("/homeless", "ext4"),
        ("/mnt/an other/x", "cifs"),
    ],
)
def test_a_path_lies_on_its_innermost_and_newest_mount(path: str, kind: str) -> None:
    found = mount_of(Path(path), MOUNTS)

    assert found is not None and found.kind == kind


def test_where_nobody_can_tell_nothing_is_known() -> None:
    assert mount_of(Path("/x"), []) is None


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Path, str], None]:
    """Have the system's list of mounts say what lies at a place."""

    def mount(place: Path, kind: str) -> None:
        listed = tmp_path / "proc" / "self" / "mounts"
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text(f"/dev/root / ext4 rw 0 0\nserver:/share {place} {kind} rw 0 0\n", "utf-8")
        monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))

    return mount


@pytest.mark.req("M79")
@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "smb2", "afs", "afpfs", "ncpfs", "webdav", "fuse.davfs"]
)
def test_a_control_root_on_a_network_file_system_is_refused_with_the_reason_and_a_way_out(
    desk: Desk, mounted: Callable[[Path, str], None], kind: str
) -> None:
    mounted(desk.mam.layout.root, kind)

    for attempt in (
        lambda: loop_locks.held(desk.mam, "loop-1").__enter__(),
        lambda: create.make(desk.mam.layout, desk.mam.settings.environ, in_git=False),
    ):
        with pytest.raises(NetworkFileSystem) as caught:
            attempt()
        assert kind in str(caught.value) and "local disk" in caught.value.remedy and caught.value.exit_code == 2
    assert not loop_locks.runs(desk.mam, "loop-1")


@pytest.mark.req("M79")
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "apfs", "fuse.ntfs"])
def test_a_local_one_is_taken_and_its_locks_hold(desk: Desk, mounted: Callable[[Path, str], None], kind: str) -> None:
    mounted(desk.mam.layout.root, kind)

    with loop_locks.held(desk.mam, "loop-1"):
        assert loop_locks.runs(desk.mam, "loop-1")
    assert not loop_locks.runs(desk.mam, "loop-1")


HOLDER = """
import sys
from pathlib import Path
from mam.broker.host import locks
with locks.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.req("M79")
def test_a_lock_of_another_process_holds_here_and_ends_with_that_process(desk: Desk) -> None:
    with loop_locks.held(desk.mam, "loop-1"):
        (lock,) = desk.mam.layout.loops.glob("loop-1*")
    lock.touch()
    argv = [sys.executable, "-c", HOLDER, str(lock)]
    other = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "held\n"

    with pytest.raises(LoopRuns), loop_locks.held(desk.mam, "loop-1"):
        pass
    other.kill()
    other.communicate()
    with loop_locks.held(desk.mam, "loop-1"):
        assert loop_locks.runs(desk.mam, "loop-1")


@pytest.mark.req("M79")
def test_this_machines_own_disk_is_taken(desk: Desk) -> None:
    filesystems.check(desk.mam.layout.mam)
