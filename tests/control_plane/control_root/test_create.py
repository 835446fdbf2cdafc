import hashlib
import os
import shutil
from pathlib import Path

import pytest

from mam.broker.errors import FileRefused, Usage
from mam.broker.host import atomic_files
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.config.layout import NoControlRoot
from mam.control_plane.control_root import create
from mam.control_plane.control_root.context import Mam, Moved
from mam.control_plane.jobs import jobs
from mam.control_plane.maintenance import relocate
from mam.control_plane.sessions import sessions
from mam.wrappers.git.command import NoRepository
from tests.support import Root, git, repository, run_mam
from tests.support.desk import Desk


def at(folder: Path, **environ: str) -> config.Settings:
    return config.Settings(environ, environ, folder)


@pytest.mark.req("M37")
def test_a_fingerprint_is_twelve_hex_of_the_path_and_a_salt() -> None:
    assert create.fingerprint(Path("/srv/shop"), "") == hashlib.sha256(b"/srv/shop").hexdigest()[:12]
    assert create.fingerprint(Path("/srv/shop"), "a") != create.fingerprint(Path("/srv/shop"), "b")


@pytest.mark.req("M37")
def test_the_fingerprint_is_drawn_once_and_survives_a_second_init(desk: Desk) -> None:
    before = desk.mam.fingerprint

    assert create.make(desk.mam.layout, desk.mam.settings.environ, in_git=False) is False
    assert Mam(desk.mam.settings, desk.mam.layout, by="test").fingerprint == before


def test_init_in_a_directory_without_git_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    layout = layouts.layout(at(tmp_path), str(tmp_path))

    with pytest.raises(NoRepository) as caught:
        create.make(layout, {})
    assert caught.value.exit_code == 2
    assert not layout.mam.exists()


@pytest.mark.parametrize("words", [["list"], ["prepare", "one"]], ids=" ".join)
def test_a_control_root_without_git_has_no_worktrees_and_says_so(tmp_path: Path, words: list[str]) -> None:
    assert run_mam("init", "--no-git", cwd=tmp_path).code == 0

    said = run_mam("worktree", *words, "--json", cwd=tmp_path)

    assert (said.code, said.error["code"]) == (2, "no_repository") and "git init" in said.error["remedy"]


def test_a_file_in_the_place_of_mam_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".mam").write_text("mine")

    with pytest.raises(FileRefused):
        create.make(layouts.layout(at(tmp_path), str(tmp_path)), {}, in_git=False)
    assert (tmp_path / ".mam").read_text() == "mine"


def test_a_link_to_somebody_elses_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".mam").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    with pytest.raises(FileRefused, match="belongs to user"):
        create.make(layouts.layout(at(tmp_path), str(tmp_path)), {}, in_git=False)


def test_git_clean_and_stash_leave_the_control_root_alone(root: Root) -> None:
    (root.path / "junk").write_text("x")

    git(root.path, "clean", "-fdx")
    (root.path / "junk").write_text("x")
    git(root.path, "stash", "--all")

    assert (root.path / ".mam" / "registry.db").exists()
    assert (root.path / ".mam" / "secrets" / "control.key").exists()
    assert not (root.path / "junk").exists()


@pytest.mark.req("M3", "M35")
def test_git_never_takes_up_the_control_root_nor_the_file_with_its_settings(root: Root, tmp_path: Path) -> None:
    git(root.path, "worktree", "add", "-q", str(tmp_path / "linked"))
    for tree in (root.path, tmp_path / "linked"):
        (tree / ".mam.env").write_text("MAM_BROKER_PASSWORD=secret\n", "utf-8")
        git(tree, "add", "--all")
        assert git(tree, "status", "--porcelain") == ""
    assert git(root.path, "ls-files") == "README"


def test_init_from_a_linked_worktree_finds_the_main_checkout(root: Root, tmp_path: Path) -> None:
    git(root.path, "worktree", "add", "-q", str(tmp_path / "linked"))

    said = root.ok("init", cwd=tmp_path / "linked")

    assert (said["root"], said["made"]) == (str(root.path), False)
    assert not (tmp_path / "linked" / ".mam").exists()


def test_the_control_root_is_found_from_subfolders_and_linked_worktrees_alike(root: Root, tmp_path: Path) -> None:
    git(root.path, "worktree", "add", "-q", str(tmp_path / "linked"))
    deep = tmp_path / "linked" / "a" / "b"
    deep.mkdir(parents=True)

    assert layouts.find_root(at(deep)) == root.path
    assert layouts.find_root(at(root.path / ".mam" / "jobs")) == root.path


@pytest.mark.req("M1")
def test_flag_then_variable_then_repository_decide_the_control_root(root: Root, tmp_path: Path) -> None:
    other = repository(tmp_path / "other")

    assert layouts.find_root(at(root.path, WORKSPACE_ROOT=str(other))) == other
    assert layouts.find_root(at(root.path, WORKSPACE_ROOT=str(other)), str(root.path)) == root.path
    assert layouts.find_root(at(root.path)) == root.path
    with pytest.raises(NoControlRoot):
        layouts.find_root(at(other))
    with pytest.raises(Usage):
        layouts.find_root(at(root.path, WORKSPACE_ROOT=str(tmp_path / "nowhere")))


@pytest.mark.req("M1", "M3")
def test_every_place_lies_below_the_control_root_from_whichever_directory_it_is_asked(
    root: Root, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(root.path, "worktree", "add", "-q", str(linked))
    (linked / "sub").mkdir()

    found = [layouts.layout(at(folder)) for folder in (root.path, linked, linked / "sub")]
    found.append(layouts.layout(at(tmp_path, WORKSPACE_ROOT=str(root.path))))

    assert found == [found[0]] * 4
    named = found[0]._asdict() | {"mam": found[0].mam, "reviews": found[0].reviews, "run": found[0].run}
    above = {"worktrees": tmp_path / "repo.worktrees", "reviews": tmp_path / "repo.worktrees"}
    assert {name: path for name, path in named.items() if not path.is_relative_to(above.get(name, root.path))} == {}


def test_a_registry_that_was_moved_is_refused_until_it_is_told(root: Root, tmp_path: Path) -> None:
    job_folder_before = _with_a_job(root)
    fingerprint = root.parts.fingerprint
    root.mam("down")
    moved = tmp_path / "moved"
    root.path.rename(moved)
    root.path = moved

    assert root.mam("up", "--json").error["code"] == "control_root_moved"
    assert root.mam("init", "--moved").code == 0
    assert root.parts.fingerprint == fingerprint
    assert root.job("job-00000001").folder == job_folder_before.replace("/repo/", "/moved/")
    root.parts.check_place()


def _with_a_job(root: Root) -> str:
    root.agent()
    root.delegate("writer", "do it", "--id", "job-00000001", "--wait")
    root.mam("agent", "stop", "writer")
    folder: str = root.job("job-00000001").folder
    return folder


def test_a_copy_gets_a_fingerprint_of_its_own_and_no_sessions(desk: Desk) -> None:
    desk.session()
    desk.job()
    before = desk.mam.fingerprint
    with desk.mam.registry.transaction() as tx:
        tx.set_meta("control_root", "/elsewhere")
    copy = Mam(desk.mam.settings, desk.mam.layout, by="test")
    with pytest.raises(Moved):
        copy.check_place()

    relocate.copied(copy)

    after = Mam(desk.mam.settings, desk.mam.layout, by="test")
    after.check_place()
    with after.registry.view() as view:
        assert view.sessions() == [] and view.outbox() == []
        job = jobs.need(view, "job-00000001")
    assert after.fingerprint != before
    assert (job.state, job.topic_prefix) == ("cancelled", f"mam/{after.fingerprint}/jobs")


def test_what_is_written_for_a_job_of_a_copy_is_written_into_the_copy(desk: Desk, tmp_path: Path) -> None:
    desk.session()
    desk.job()
    copy = tmp_path / "copy"
    shutil.copytree(desk.mam.layout.root, copy, symlinks=True, ignore=lambda *_: {"wake", "monitor.wake"})
    mam = Mam(desk.mam.settings, layouts.layout(desk.mam.settings, str(copy)), by="test")

    relocate.copied(mam)

    with mam.registry.view() as view:
        job = jobs.need(view, "job-00000001")
    record = atomic_files.read(copy / ".mam" / "jobs" / job.id / "job.json")
    assert job.folder == str(copy / ".mam" / "jobs" / job.id)
    assert str(record["report"]).startswith(f"{copy}/") and str(record["key_file"]).startswith(f"{copy}/")


def test_where_its_own_agents_or_monitor_run_it_is_no_copy_and_nothing_is_forgotten(root: Root) -> None:
    root.agent()
    fingerprint = root.parts.fingerprint

    with_agent = root.mam("init", "--copied", "--json")
    root.ok("agent", "stop", "writer")
    with_monitor = root.mam("init", "--copied", "--json")

    assert (with_agent.code, with_monitor.code) == (2, 2)
    assert "writer" in with_agent.error["message"] and "its monitor" in with_monitor.error["message"]
    assert root.parts.fingerprint == fingerprint and root.session("writer").status == "stopped"
    root.mam("down")
    assert root.mam("init", "--copied").code == 0


@pytest.mark.req("M103")
def test_a_pane_elsewhere_without_a_control_root_is_exit_2_and_says_so(tmp_path: Path) -> None:
    repository(tmp_path / "plain")

    said = run_mam("agent", "create", "w", "--agent", "scripted", "--workspace", str(tmp_path), cwd=tmp_path / "plain")

    assert said.code == 2
    assert "binding cannot be computed" in said.err


def test_names_that_no_topic_could_carry_are_refused(desk: Desk) -> None:
    for name in ("with space", "a.b", "Ünï", "0123", "-x", "a/b", "x" * 49, "", "UP"):
        with pytest.raises(Exception, match="cannot be used"):
            sessions.create(desk.mam, sessions.AgentRequest(name, "scripted"))
    for name in ("no", "true", "e3"):
        assert desk.session(name).name == name
