"""Secret files: private, made once, and refused when they are not what they should be."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mam.broker.envelope import keys
from mam.broker.envelope.keys import KeyMissing, SecretPermissions
from mam.broker.errors import FileUnusable


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "job.key"
    keys.create(path)
    return path


def refusal(path: Path) -> FileUnusable:
    with pytest.raises(FileUnusable) as caught:
        keys.load(path)
    return caught.value


@pytest.mark.req("M38")
def test_a_key_is_32_bytes_that_come_back_and_no_two_are_alike(tmp_path: Path) -> None:
    made = [keys.create(tmp_path / name) for name in "abc"]
    assert [keys.load(tmp_path / name) for name in "abc"] == made
    assert {len(token) for token in made} == {32}
    assert len(set(made)) == 3


def test_a_key_is_private_under_every_umask(tmp_path: Path, open_umask: None) -> None:
    keys.create(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_an_existing_file_is_never_replaced(key: Path) -> None:
    before = key.read_bytes()
    with pytest.raises(FileExistsError):
        keys.create(key)
    assert key.read_bytes() == before


def test_of_many_makers_at_once_one_wins(tmp_path: Path) -> None:
    path, made, lost = tmp_path / "key", [], []
    gate = threading.Barrier(8)

    def make() -> None:
        gate.wait()
        try:
            made.append(keys.create(path))
        except FileExistsError as error:
            lost.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(lost)) == (1, 7)
    assert keys.load(path) == made[0]


@pytest.mark.parametrize("target", ["exists", "missing"])
def test_a_link_is_never_written_through(tmp_path: Path, target: str) -> None:
    aim = tmp_path / "aim"
    if target == "exists":
        aim.write_bytes(b"precious")
    (tmp_path / "key").symlink_to(aim)
    with pytest.raises(FileExistsError):
        keys.create(tmp_path / "key")
    assert aim.exists() == (target == "exists")
    assert target == "missing" or aim.read_bytes() == b"precious"


def test_a_link_is_refused_even_to_a_good_key(key: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(key)
    assert isinstance(refusal(tmp_path / "link"), SecretPermissions)


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001], ids=oct)
def test_a_key_that_others_may_use_is_refused_by_its_mode(key: Path, bit: int) -> None:
    key.chmod(0o600 | bit)
    error = refusal(key)
    assert isinstance(error, SecretPermissions)
    assert error.code == "secret_permissions"
    assert f"{0o600 | bit:04o}" in str(error)
    key.chmod(0o600)
    assert len(keys.load(key)) == 32


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_of_another_user_is_refused(key: Path) -> None:
    os.chown(key, 12345, 12345)
    error = refusal(key)
    assert isinstance(error, SecretPermissions)
    assert "12345" in str(error)


def test_a_missing_key_is_named_with_what_to_do(tmp_path: Path) -> None:
    error = refusal(tmp_path / "job-x.key")
    assert isinstance(error, KeyMissing)
    assert error.code == "key_missing"
    assert str(tmp_path / "job-x.key") in str(error)
    assert "mam doctor" in error.remedy


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir(mode=0o700)
    assert isinstance(refusal(tmp_path / "key"), SecretPermissions)


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    os.mkfifo(path, 0o600)
    refused = []
    reader = threading.Thread(target=lambda: refused.append(refusal(path)))
    reader.start()
    reader.join(3)  # whole where the claim holds: nothing is waited for
    waited = reader.is_alive()
    if waited:
        os.close(os.open(path, os.O_WRONLY))
        reader.join()
    assert not waited
    assert isinstance(refused[0], SecretPermissions)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"not a key",
        b"\xff" * 64,
        b"zz" * 32,
        b"ab" * 31,
        b"ab" * 33,
        b"a" * 63,
        b"ab" * 2048,
        "é".encode() * 32,
    ],
    ids=range(10),
)
def test_foreign_content_and_other_lengths_are_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    error = refusal(path)
    assert error.code == "file_refused"
    shown = str(error) + repr(error.data)
    assert len(content) < 8 or content.decode("latin-1").strip() not in shown
    assert "backup" in error.remedy


def test_the_token_is_in_no_error_about_its_file(key: Path) -> None:
    token = keys.load(key)
    key.chmod(0o640)
    error = refusal(key)
    assert token.hex() not in str(error) + repr(error) + repr(error.data) + error.remedy


@pytest.mark.req("M38")
def test_each_use_and_scope_has_a_key_of_its_own_and_none_is_the_token() -> None:
    token = bytes(range(32))
    made = {keys.derive(token, use, scope) for use in ("event-mac", "cmd", "rt", "card") for scope in ("a", "b", "")}
    assert len(made) == 12
    assert token not in made
    assert keys.derive(token, "cmd", "a") == keys.derive(token, "cmd", "a")
    assert keys.derive(bytes(32), "cmd", "a") != keys.derive(token, "cmd", "a")
