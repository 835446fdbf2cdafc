"""The spool: what is written survives, whole, until it is settled."""

import functools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mam.broker import spool
from mam.broker.envelope.payloads import new_id, now_ms
from tests.support import until

TOPIC = "jobs/job-0123456789ab"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spool").mkdir(mode=0o700)
    return tmp_path / "spool"


def put(folder: Path, wire: bytes = b"wire", *, beat: bool = False) -> str:
    event_id = new_id()
    spool.write(folder, event_id, TOPIC, wire, beat=beat)
    return event_id


def ids(folder: Path) -> list[str]:
    return [item.id for item in spool.pending(folder)]


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=80), st.binary())
def test_topic_and_bytes_come_back_exactly(topic: str, wire: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        event_id = new_id()
        path = spool.write(Path(name), event_id, topic, wire)
        assert list(spool.pending(Path(name))) == [spool.Spooled(path, event_id, topic, wire, False)]


@pytest.mark.parametrize(("beat", "synced"), [(False, ["event", "folder"]), (True, [])])
def test_an_event_and_its_place_are_on_the_disk_before_it_counts_as_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, beat: bool, synced: list[str]
) -> None:
    real, seen = os.fsync, []

    def fsync(descriptor: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "event")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    put(folder, beat=beat)
    assert seen == synced


def test_a_spooled_event_is_private(folder: Path) -> None:
    before = os.umask(0)
    try:
        path = spool.write(folder, new_id(), TOPIC, b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _is_past(moment_ms: int) -> bool:
    return now_ms() > moment_ms


def test_the_oldest_comes_first(folder: Path) -> None:
    written = []
    for _ in range(5):
        written.append(put(folder))
        until(functools.partial(_is_past, now_ms()), "the next millisecond")
    assert ids(folder) == written


def test_order_is_that_of_the_names_whatever_order_the_files_came_in(folder: Path) -> None:
    written = [f"{number:032x}" for number in range(6)]
    for number in (3, 0, 5, 1, 4, 2):
        (folder / f"{1_700_000_000_000 + number}-{written[number]}.event").write_bytes(b"t\nw")
    assert ids(folder) == written


def test_a_beat_is_known_from_an_event(folder: Path) -> None:
    event, beat = put(folder), put(folder, beat=True)
    assert {item.id: item.beat for item in spool.pending(folder)} == {event: False, beat: True}


def test_settling_drops_the_named_ones_and_twice_is_harmless(folder: Path) -> None:
    first, second, third = (put(folder) for _ in range(3))
    settled = [entry for entry in spool.entries(folder) if entry.id in (first, third)]
    assert spool.settle(settled) == 2
    assert ids(folder) == [second]
    assert spool.settle(settled) == 0
    assert ids(folder) == [second]


def test_other_files_are_neither_read_nor_dropped(folder: Path) -> None:
    event_id = "0" * 32
    others = [f".1700000000000-{event_id}.event.17", f"1700000000000-{event_id}.event.new", f"1-{event_id}.event"]
    others += [f"1700000000000-{event_id[1:]}.event", "README", f"1700000000000-{'A' * 32}.event"]
    for name in others:
        (folder / name).write_bytes(b"t\nw")
    (folder / f"1700000000000-{event_id}.event").mkdir()
    assert ids(folder) == []
    assert spool.settle(spool.entries(folder)) == 0
    assert len(list(folder.iterdir())) == len(others) + 1


def test_a_file_or_folder_that_vanishes_meanwhile_is_no_error(folder: Path) -> None:
    for _ in range(3):
        put(folder)
    entries = spool.entries(folder)
    waiting = spool.pending(folder)
    first = next(waiting)
    gone, kept = sorted(path for path in folder.iterdir() if path != first.path)
    gone.unlink()
    assert [item.path for item in waiting] == [kept]
    shutil.rmtree(folder)
    assert ids(folder) == []
    assert spool.settle(entries) == 0


def test_burying_keeps_the_bytes_elsewhere(folder: Path, tmp_path: Path) -> None:
    put(folder, b"nobody can read this")
    (item,) = spool.pending(folder)
    dead = spool.bury(item, tmp_path / "dead")
    assert ids(folder) == []
    assert dead.read_bytes() == f"{TOPIC}\nnobody can read this".encode()
    assert stat.S_IMODE((tmp_path / "dead").stat().st_mode) == 0o700
    put(folder)
    (item,) = spool.pending(folder)
    spool.bury(item, tmp_path / "dead")
    assert len(list(spool.pending(tmp_path / "dead"))) == 2


WRITER = """
import resource, signal, sys
from pathlib import Path
from mam.broker import spool
from mam.broker.envelope.payloads import new_id
folder, limit, die = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "die"
if die:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    spool.write(folder, new_id(), "jobs/job-0123456789ab", b"x" * 5000)
except OSError as error:
    sys.exit(error.errno)
"""


def test_a_writer_that_is_killed_half_way_leaves_nothing_to_read(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, folder, "1000", "die"], check=False)
    assert done.returncode == -signal.SIGXFSZ
    (half,) = folder.iterdir()
    assert half.stat().st_size == 1000
    assert ids(folder) == []
    put(folder)
    assert len(ids(folder)) == 1


def test_a_writer_without_room_says_so_and_leaves_no_file(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, folder, "1000", "live"], check=False)
    assert done.returncode > 0
    assert list(folder.iterdir()) == []


LOOP = """
import sys
from pathlib import Path
from mam.broker import spool
from mam.broker.envelope.payloads import new_id
while True:
    name = new_id()
    spool.write(Path(sys.argv[1]), name, "jobs/job-0123456789ab", name.encode() * 100)
    print(name, flush=True)
"""


def test_what_a_killed_writer_had_written_is_there_and_whole(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LOOP, folder], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline().strip() for _ in range(20)]
        writer.kill()
        said += writer.stdout.read().split()
    waiting = list(spool.pending(folder))
    assert set(said) <= {item.id for item in waiting}
    assert [item.id for item in waiting if item.wire != item.id.encode() * 100] == []


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may write anywhere, so a test about permissions is somebody else meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_only_be_read_keeps_nothing_and_loses_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        with ordinary_user():
            event_id = put(folder)
            (path,) = folder.iterdir()
        folder.chmod(0o555)
        with ordinary_user():
            with pytest.raises(PermissionError):
                put(folder)
            with pytest.raises(PermissionError):
                spool.settle(spool.entries(folder))
            assert ids(folder) == [event_id]
        assert list(folder.iterdir()) == [path]
        folder.chmod(0o777)


class TestWake:
    @pytest.fixture
    def fifo(self, tmp_path: Path) -> Path:
        os.mkfifo(tmp_path / "wake", 0o600)
        return tmp_path / "wake"

    def test_a_reader_is_nudged(self, fifo: Path) -> None:
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        try:
            assert spool.wake(fifo) is True
            assert os.read(reader, 10) == b"!"
        finally:
            os.close(reader)

    def test_without_a_reader_or_a_fifo_nothing_waits(self, fifo: Path) -> None:
        assert spool.wake(fifo) is False
        assert spool.wake(fifo.with_name("none")) is False

    def test_a_full_fifo_is_not_waited_for(self, fifo: Path) -> None:
        both = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        try:
            with pytest.raises(BlockingIOError):
                while True:
                    os.write(both, b"!" * 4096)
            assert spool.wake(fifo) is False
            os.read(both, 1 << 16)
            assert spool.wake(fifo) is True
        finally:
            os.close(both)
