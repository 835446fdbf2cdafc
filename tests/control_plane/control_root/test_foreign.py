"""What a clone brings along decides nothing: its settings, its `.mam`, a file that MAM did not write."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.broker.errors import FileRefused
from mam.control_plane.config import layout as layouts
from mam.control_plane.config.settings import Settings
from mam.control_plane.control_root import create, foreign
from mam.control_plane.control_root.context import Mam, Moved
from mam.control_plane.sessions import sessions_yaml
from tests.support import git, repository, run_mam
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile


def at(repo: Path, **values: str) -> Mam:
    environ = {"PATH": os.environ["PATH"], "HOME": str(repo.parent / "home"), **values}
    settings = Settings(environ, environ, repo)
    return Mam(settings, layouts.layout(settings, str(repo)), by="test")


def made(repo: Path) -> Mam:
    mam = at(repository(repo))
    create.make(mam.layout, mam.settings.environ)
    return mam


def track(repo: Path, path: str, *, mode: str = "100644") -> None:
    """Put a path into the index, as a clone of a repository that has it."""
    blob = git(repo, "hash-object", "-w", "README")
    git(repo, "update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")


def test_a_clone_runs_nothing_that_its_settings_name(tmp_path: Path) -> None:
    repo, ran = repository(tmp_path / "repo"), tmp_path / "ran"
    evil = repo / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {ran}\n", "utf-8")
    evil.chmod(0o755)
    (repo / ".mam.env").write_text("MAM_NATS_SERVER=evil.sh\nMAM_MUX=headless\n", "utf-8")
    git(repo, "add", "-f", ".")
    git(repo, "commit", "-qm", "settings")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    assert run_mam("init", cwd=clone).code == 0

    for verb in (["up"], ["agent", "create", "w", "--agent", "command", "--", "true"], ["down"], ["status"]):
        said = run_mam(*verb, "--json", cwd=clone)
        assert (said.code, said.error["code"]) == (2, "untrusted")
        assert f"MAM_NATS_SERVER={clone}/evil.sh" in said.error["message"]
        assert f"`mam trust {clone}/.mam.env`" in said.error["remedy"]

    assert not ran.exists()
    assert run_mam("trust", ".mam.env", cwd=clone).out.endswith(f"  MAM_NATS_SERVER={clone}/evil.sh\n")
    assert run_mam("status", cwd=clone).code == 0
    with (clone / ".mam.env").open("a", encoding="utf-8") as file:
        file.write("# another word\n")
    assert run_mam("status", cwd=clone).code == 2


@pytest.mark.parametrize("path", [".mam/registry.db", ".MAM/jobs/x", ".mam"])
def test_a_mam_that_git_tracks_is_refused_and_nothing_is_made(tmp_path: Path, path: str) -> None:
    repo, outside = repository(tmp_path / "repo"), tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (repo / ".mam").symlink_to(outside)
    track(repo, path, mode="120000" if path == ".mam" else "100644")
    mam = at(repo)

    with pytest.raises(foreign.Tracked):
        create.make(mam.layout, mam.settings.environ)
    with pytest.raises(foreign.Tracked):
        create.make(mam.layout, mam.settings.environ, in_git=False)

    assert list(outside.iterdir()) == []
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755


@pytest.mark.parametrize("version", [[], ["--index-version", "4"], ["--split-index"]], ids=["plain", "short", "split"])
def test_a_mam_that_git_begins_to_track_is_refused_by_the_next_verb_that_acts(
    tmp_path: Path, version: list[str]
) -> None:
    mam = made(tmp_path / "repo")
    mam.check_place()
    track(mam.layout.root, ".mam/registry.db")
    if version:
        git(mam.layout.root, "update-index", *version)

    with pytest.raises(foreign.Tracked) as refused:
        mam.check_place()
    assert refused.value.first == ".mam/registry.db"
    for verb in (
        ()
        if version
        else (["registry", "rebuild"], ["registry", "import"], ["job", "delegate", "--to", "w", "--brief", "-"])
    ):
        assert run_mam(*verb, "--json", cwd=mam.layout.root, stdin="x").error["code"] == "mam_tracked"

    git(mam.layout.root, "rm", "-rfq", "--cached", ".mam")
    mam.check_place()


def test_git_is_asked_once_for_each_state_of_an_index_that_does_not_tell_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mam = made(tmp_path / "repo")
    with monkeypatch.context() as patch:
        patch.setattr("mam.wrappers.git.command.ask", lambda *words: pytest.fail("git was asked"))
        (tmp_path / "repo" / ".git" / "index").touch()
        mam.check_place()
    track(mam.layout.root, "docs/.mam/page")
    mam.check_place()
    monkeypatch.setattr("mam.wrappers.git.command.ask", lambda *words: pytest.fail("git was asked"))

    mam.check_place()

    (tmp_path / "repo" / ".git" / "index").touch()
    with pytest.raises(pytest.fail.Exception):
        mam.check_place()


def test_a_note_that_the_work_tree_brings_along_is_not_read(tmp_path: Path) -> None:
    mam = made(tmp_path / "repo")
    mam.check_place()

    notes = list((tmp_path / "home").rglob("untracked/*.json"))

    assert len(notes) == 1 and not notes[0].is_relative_to(mam.layout.root)


def test_a_registry_that_names_its_place_by_a_relative_path_is_not_ours(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk.mam.registry.transaction() as tx:
        tx.set_meta("control_root", ".")
    monkeypatch.chdir(desk.mam.layout.root)

    with pytest.raises(Moved):
        desk.mam.check_place()


@pytest.mark.parametrize("content", ["alias ll=ls\n", "sessions: []\n", "\0\0"])
def test_a_file_that_mam_did_not_write_is_never_replaced(desk: Desk, tmp_path: Path, content: str) -> None:
    other = tmp_path / ".bashrc"
    other.write_text(content, "utf-8")
    mam = Mam(desk.mam.settings, desk.mam.layout._replace(sessions_yaml=other), by="test")

    with pytest.raises(FileRefused, match="would be replaced"):
        mam.check_place()
    with pytest.raises(FileRefused):
        sessions_yaml.write(mam)
    assert other.read_text("utf-8") == content

    os.mkfifo(fifo := tmp_path / "fifo")
    with pytest.raises(FileRefused):
        foreign.check_sessions_file(mam.layout._replace(sessions_yaml=fifo))


@pytest.mark.parametrize("edit", [lambda text: text, lambda text: text.partition("\n")[2], lambda text: ""])
def test_a_print_of_mams_own_is_replaced_wherever_it_lies(
    desk: Desk, tmp_path: Path, edit: Callable[[str], str]
) -> None:
    mam = Mam(desk.mam.settings, desk.mam.layout._replace(sessions_yaml=tmp_path / "agents.yaml"), by="test")
    sessions_yaml.write(mam)
    printed = mam.layout.sessions_yaml.read_text("utf-8")
    mam.layout.sessions_yaml.write_text(edit(printed), "utf-8")

    mam.check_place()
    sessions_yaml.write(mam)

    assert mam.layout.sessions_yaml.read_text("utf-8") == printed
