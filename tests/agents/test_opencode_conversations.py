"""How opencode is launched, and how a conversation of its own is found again: in a real database, as it keeps one."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mam.agents import catalog, opencode
from mam.agents.protocol import Permissions, Seat

A, B = "ses_dd39e9fadffeRoEIZhWakgnkuL", "ses_dd3a535b4ffeGseDJWGAeqCSm6"
LAUNCHED = 1_796_000_000.0


def seat(home: Path, conversation: str | None = None, cwd: Path | None = None) -> Seat:
    run_dir = home / "run"
    run_dir.mkdir(exist_ok=True)
    return Seat("w", cwd or home, home, "", ("-m", "x/y"), conversation, run_dir)


def database(home: Path) -> sqlite3.Connection:
    """What adapters may rely on of opencode's own database, which is kept in WAL mode as well."""
    folder = home / ".local/share/opencode"
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "opencode.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, time_created INTEGER)"
    )
    connection.execute("CREATE TABLE IF NOT EXISTS part (session_id TEXT, data TEXT)")
    return connection


def keep(
    home: Path, conversation: str, *, cwd: Path, began: float = LAUNCHED + 5, parent: str | None = None, said: str = ""
) -> None:
    with closing(database(home)) as kept, kept:
        kept.execute("INSERT INTO session VALUES (?, ?, ?, ?)", (conversation, parent, str(cwd), int(began * 1000)))
        kept.execute("INSERT INTO part VALUES (?, ?)", (conversation, json.dumps({"type": "text", "text": said})))


def launched(home: Path, *argv: str) -> None:
    path = home / "run/launch.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"argv": argv}), "utf-8")
    os.utime(path, (LAUNCHED, LAUNCHED))


def resumed(home: Path, conversation: str | None = None) -> str | None:
    launch = opencode.resume(seat(home, conversation))
    if launch is None:
        return None
    assert [*launch.argv[:2], *launch.argv[3:]] == ["opencode", "--session", "-m", "x/y"]
    assert launch.env == opencode.launch(seat(home)).env
    return launch.argv[2]


def test_opencode_draws_its_own_id_and_is_kept_from_replacing_itself(tmp_path: Path) -> None:
    assert opencode.new_conversation() is None
    launch = opencode.launch(seat(tmp_path))
    assert list(launch.argv) == ["opencode", "-m", "x/y"] and launch.env["OPENCODE_DISABLE_AUTOUPDATE"] == "1"
    assert opencode.launch(seat(tmp_path)._replace(program="/opt/opencode")).argv[0] == "/opt/opencode"
    adapter = catalog.find("opencode")
    assert adapter.grants(Permissions([tmp_path])) == []
    assert not adapter.keeps_conversations


def test_its_plug_in_runs_the_mam_of_its_seat_and_yields_to_settings_of_its_users(tmp_path: Path) -> None:
    launch = opencode.launch(seat(tmp_path)._replace(mam="/opt/my mam/mam"))
    assert launch.env["MAM_COMMAND"] == "/opt/my mam/mam"
    assert list(launch.defaults) == ["OPENCODE_TUI_CONFIG"]
    settings = Path(launch.defaults["OPENCODE_TUI_CONFIG"])
    (plugin,) = json.loads(settings.read_text("utf-8"))["plugin"]
    assert (settings.parent / plugin).is_file()


def test_nothing_is_resumed_where_nothing_was_kept(tmp_path: Path) -> None:
    assert resumed(tmp_path) is None
    assert resumed(tmp_path, A) is None
    assert not (tmp_path / ".local").exists()


def test_a_known_conversation_is_resumed_in_its_own_folder_only(tmp_path: Path) -> None:
    keep(tmp_path, A, cwd=tmp_path)
    keep(tmp_path, B, cwd=tmp_path / "other")
    assert resumed(tmp_path, A) == A
    assert resumed(tmp_path, B) is None


def test_the_conversation_that_began_here_since_the_launch_is_found(tmp_path: Path) -> None:
    launched(tmp_path, "opencode")
    keep(tmp_path, A, cwd=tmp_path, began=LAUNCHED - 60)
    assert resumed(tmp_path) is None
    keep(tmp_path, B, cwd=tmp_path)
    assert resumed(tmp_path) == B


def test_what_the_last_launch_continued_is_continued_again(tmp_path: Path) -> None:
    launched(tmp_path, "opencode", "--session", A, "-m", "x/y")
    keep(tmp_path, A, cwd=tmp_path, began=LAUNCHED - 60)
    keep(tmp_path, B, cwd=tmp_path)
    assert resumed(tmp_path) == A


def test_among_several_the_one_with_a_job_of_this_seat_is_found(tmp_path: Path) -> None:
    launched(tmp_path, "opencode")
    keep(tmp_path, A, cwd=tmp_path, said="[MAM job job-0123456789ab, attempt 1]\nRead the brief")
    keep(tmp_path, B, cwd=tmp_path, said="[MAM job job-ba9876543210, attempt 1]\nRead the brief")
    assert resumed(tmp_path) is None
    (tmp_path / "run/deliveries").mkdir()
    (tmp_path / "run/deliveries/job-0123456789ab-1").write_text("{}", "utf-8")
    assert resumed(tmp_path) == A


def test_what_a_sub_agent_did_on_the_side_does_not_count(tmp_path: Path) -> None:
    launched(tmp_path, "opencode")
    keep(tmp_path, A, cwd=tmp_path)
    keep(tmp_path, B, cwd=tmp_path, parent=A)
    assert resumed(tmp_path) == A


def test_a_conversation_that_its_user_named_is_not_named_twice(tmp_path: Path) -> None:
    launched(tmp_path, "opencode", "-s", A)
    keep(tmp_path, A, cwd=tmp_path)
    for args in (["-s", A], ["--session", A], [f"--session={A}"], ["--continue"]):
        launch = opencode.resume(seat(tmp_path)._replace(args=args))
        assert launch is not None
        assert list(launch.argv) == ["opencode", *args]


def test_a_folder_is_known_by_its_real_path_as_well(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    keep(tmp_path, A, cwd=(tmp_path / "real").resolve())
    assert opencode.resume(seat(tmp_path, A, tmp_path / "link")) is not None


def test_what_was_written_last_is_read_while_opencode_still_holds_its_database(tmp_path: Path) -> None:
    with closing(database(tmp_path)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        busy.execute("INSERT INTO session VALUES (?, NULL, ?, ?)", (A, str(tmp_path), int(LAUNCHED * 1000)))
        assert resumed(tmp_path, A) is None
        busy.commit()
        assert resumed(tmp_path, A) == A


@pytest.mark.parametrize("content", [b"", b"no database\n" * 100])
def test_a_database_that_cannot_be_read_holds_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".local/share/opencode/opencode.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert resumed(tmp_path, A) is None


def test_a_home_with_odd_signs_in_its_path_is_found(tmp_path: Path) -> None:
    home = tmp_path / "50% of ü? #1"
    home.mkdir()
    keep(home, A, cwd=home)
    assert resumed(home, A) == A
