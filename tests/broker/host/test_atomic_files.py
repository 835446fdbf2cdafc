"""Files in one step: whole or not at all, private from the first byte, and as durable as they were asked to be."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mam.broker.host import atomic_files, fault_points
from mam.broker.host.atomic_files import Durability


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.fixture
def armed() -> Iterator[None]:
    """Faults of this process, gone afterwards."""
    yield
    fault_points.arm("", "test")


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def write(path: Path, content: bytes, durability: Durability = Durability.NAME, **options: bool) -> None:
    atomic_files.write(path, content, durability, point="try.rename", **options)


@pytest.mark.parametrize(
    ("durability", "synced"),
    [(Durability.PROCESS, []), (Durability.FILE, ["file"]), (Durability.NAME, ["file", "folder"])],
)
def test_a_durability_syncs_what_it_promises(
    folder: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, synced: list[str]
) -> None:
    real, seen = os.fsync, []

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        assert (folder / "file").exists() == is_folder, "the content comes before the name, the name before its sync"
        seen.append("folder" if is_folder else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write(folder / "file", b"x", durability)

    assert seen == synced


@pytest.mark.parametrize("umask", [0, 0o777], indirect=True, ids=oct)
@pytest.mark.parametrize("mode", [0o600, 0o755], ids=oct)
def test_the_mode_is_the_one_that_was_asked_for_under_every_umask(folder: Path, umask: None, mode: int) -> None:
    atomic_files.write(folder / "file", b"x", Durability.PROCESS, point="try.rename", mode=mode)

    assert stat.S_IMODE((folder / "file").stat().st_mode) == mode


def test_a_link_is_replaced_and_not_followed(folder: Path) -> None:
    (folder / "aim").write_bytes(b"precious")
    (folder / "file").symlink_to(folder / "aim")

    write(folder / "file", b"new")

    assert (folder / "aim").read_bytes() == b"precious"
    assert not (folder / "file").is_symlink() and (folder / "file").read_bytes() == b"new"


@pytest.mark.parametrize("there", ["file", "link to nothing"])
def test_an_exclusive_write_replaces_nothing_and_leaves_nothing(folder: Path, there: str) -> None:
    path = folder / "file"
    if there == "file":
        path.write_bytes(b"old")
    else:
        path.symlink_to(folder / "missing")

    with pytest.raises(FileExistsError):
        write(path, b"new", exclusive=True)

    assert list(folder.iterdir()) == [path]
    assert there != "file" or path.read_bytes() == b"old"


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("point", ["try.fsync", "try.rename"])
def test_a_write_that_the_disk_refuses_changes_nothing(folder: Path, armed: None, point: str, exclusive: bool) -> None:
    if not exclusive:
        (folder / "file").write_bytes(b"old")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    fault_points.arm(f"{point}:1:ENOSPC", "test")

    with pytest.raises(OSError, match="No space"):
        write(folder / "file", b"new", exclusive=exclusive)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_in_its_place_is_refused_and_stays(folder: Path) -> None:
    (folder / "file").mkdir()

    with pytest.raises(OSError, match="file"):
        write(folder / "file", b"new")

    assert [path.is_dir() for path in folder.iterdir()] == [True]


WRITER = """
import sys
from pathlib import Path
from mam.broker.host import atomic_files, fault_points
from mam.broker.host.atomic_files import Durability
fault_points.arm(sys.argv[2] + ":1:crash", "test")
atomic_files.write(Path(sys.argv[1]), b"new" * 1000, Durability.NAME, point="try.rename")
"""


@pytest.mark.parametrize(
    ("point", "content"), [("try.fsync", b"old"), ("try.rename", b"old"), ("folder.sync", b"new" * 1000)]
)
def test_a_writer_that_is_killed_leaves_one_whole_content(folder: Path, point: str, content: bytes) -> None:
    path = folder / "file"
    path.write_bytes(b"old")

    died = subprocess.run([sys.executable, "-c", WRITER, path, point], check=False)

    assert died.returncode == -signal.SIGKILL
    assert path.read_bytes() == content
    assert [each for each in folder.iterdir() if each != path and not each.name.startswith(".")] == []


def test_of_writers_at_once_each_puts_a_whole_file_there_and_leaves_nothing(folder: Path) -> None:
    path, gate = folder / "file", threading.Barrier(8)
    contents = [bytes([ord("a") + number]) * 10_000 for number in range(8)]

    def put(content: bytes) -> bool:
        gate.wait()
        for _ in range(20):
            write(path, content, Durability.PROCESS)
            if path.read_bytes() not in contents:
                return False
        return True

    with ThreadPoolExecutor(len(contents)) as pool:
        whole = list(pool.map(put, contents))

    assert all(whole) and list(folder.iterdir()) == [path]


@pytest.mark.parametrize("put", [atomic_files.write_json, atomic_files.write_note])
def test_a_record_comes_back_as_it_was(folder: Path, put: Callable[[Path, dict[str, object]], None]) -> None:
    content: dict[str, object] = {"path": os.fsdecode(b"/srv/\xff"), "text": "é\n☃", "list": [1, None, {"a": True}]}

    put(folder / "file", content)

    assert atomic_files.read(folder / "file") == content
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"1", b"\xff\xfe", b"[" * 100_000, json.dumps("text").encode()], ids=range(7)
)
def test_what_is_no_whole_object_reads_as_an_empty_one(folder: Path, content: bytes) -> None:
    (folder / "file").write_bytes(content)

    assert atomic_files.read(folder / "file") == {}
    assert atomic_files.read(folder / "missing") == {}
    assert atomic_files.read(folder) == {}
