"""What `agent stop --purge` removes: one conversation of one agent in one folder, and never anything of another's."""

import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from mam.broker.host import fault_points
from mam.control_plane.sessions import lifecycle
from mam.control_plane.sessions.lookup import SessionBusy, UnknownSession
from tests.support.desk import Desk

OWN = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def claude_keeps(home: Path, cwd: Path, conversation: str) -> Path:
    folder = (
        home / ".claude" / "projects" / "".join(char if char.isascii() and char.isalnum() else "-" for char in str(cwd))
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{conversation}.jsonl"
    path.write_text(json.dumps({"type": "user", "cwd": str(cwd), "sessionId": conversation}) + "\n", "utf-8")
    return path


def codex_keeps(home: Path, cwd: Path, conversation: str) -> Path:
    folder = home / ".codex" / "sessions" / "2026" / "11" / "30"
    folder.mkdir(parents=True, exist_ok=True)
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    about = {"id": conversation, "cwd": str(cwd), "source": "cli", "timestamp": at}
    path = folder / f"rollout-2026-11-30T10-12-17-{conversation}.jsonl"
    path.write_text(json.dumps({"type": "session_meta", "payload": about}) + "\n", "utf-8")
    return path


def grok_keeps(home: Path, cwd: Path, conversation: str) -> Path:
    path = home / ".grok" / "sessions" / quote(str(cwd.resolve()), safe="") / conversation
    path.mkdir(parents=True)
    (path / "chat.jsonl").write_text("{}\n", "utf-8")
    return path


@pytest.mark.req("M53")
@pytest.mark.parametrize(
    ("agent", "keeps"),
    [("claude", claude_keeps), ("codex", codex_keeps), ("grok", grok_keeps)],
    ids=lambda v: str(v)[:9],
)
def test_only_the_sessions_own_conversation_goes(desk: Desk, tmp_path: Path, agent: str, keeps: object) -> None:
    assert callable(keeps)
    home, cwd = desk.mam.layout.root, tmp_path / "tree 한국어"
    for folder in (cwd, tmp_path / "elsewhere"):
        folder.mkdir()
    desk.session("writer", agent=agent, cwd=str(cwd), conversation=OWN, status="stopped")
    own = keeps(home, cwd, OWN)
    others = [keeps(home, cwd, OTHER), keeps(home, tmp_path / "elsewhere", "33333333-3333-4333-8333-333333333333")]

    assert lifecycle.purge(desk.mam, "writer") == [own]

    assert not own.exists() and all(path.exists() for path in others)
    note = json.loads((desk.mam.layout.run_dir("writer") / "purged.json").read_text("utf-8"))
    assert (note["conversation"], note["files"]) == (OWN, [str(own)])
    with desk.mam.registry.view() as view:
        assert view.session("writer") is None
    assert not desk.mam.layout.session_key("writer").exists()


@pytest.mark.parametrize("agent", ["opencode", "command", "scripted"])
def test_an_agent_that_keeps_no_files_of_its_own_is_purged_without(desk: Desk, agent: str) -> None:
    desk.session("writer", agent=agent, status="ended")

    assert lifecycle.purge(desk.mam, "writer") == []
    with pytest.raises(UnknownSession):
        lifecycle.purge(desk.mam, "writer")


def test_one_that_lives_is_not_purged(desk: Desk) -> None:
    desk.session("writer", status="running")

    with pytest.raises(SessionBusy):
        lifecycle.purge(desk.mam, "writer")


@pytest.mark.parametrize("point", ["json.rename", "registry.commit", "registry.committed", "projection.rename"])
def test_a_purge_that_dies_is_finished_by_the_next_one(desk: Desk, tmp_path: Path, point: str) -> None:
    desk.session("writer", agent="claude", cwd=str(tmp_path), conversation=OWN, status="stopped")
    own = claude_keeps(desk.mam.layout.root, tmp_path, OWN)
    child = os.fork()
    if child == 0:
        try:
            fault_points.arm(f"{point}:1:crash", "cli")
            lifecycle.purge(desk.mam, "writer")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    try:
        lifecycle.purge(desk.mam, "writer")
    except UnknownSession:
        pass  # it had come that far

    assert not own.exists() and not desk.mam.layout.session_key("writer").exists()
    with desk.mam.registry.view() as view:
        assert view.session("writer") is None
