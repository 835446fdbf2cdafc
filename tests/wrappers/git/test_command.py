"""Questions about repositories, asked of real ones."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from mam.wrappers import process
from mam.wrappers.git import command as git
from mam.wrappers.git import dotgit
from mam.wrappers.git.command import GitFailed, NoRepository
from tests.support import git as run_git
from tests.support import repository

NAMES = ["two words", "line\nbreak", "line break at the end\n", "한국어 ✓", "-dash", "quote'\"", "$HOME", "a#b"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "main repo")


@pytest.fixture
def linked(repo: Path, tmp_path: Path) -> Path:
    """A linked worktree of *repo*."""
    tree = tmp_path / "linked tree"
    run_git(repo, "worktree", "add", "-q", "-b", "side", str(tree))
    return tree


def test_the_top_is_found_from_a_subfolder(repo: Path) -> None:
    (repo / "a" / "b").mkdir(parents=True)
    assert git.top(repo / "a" / "b") == repo


def test_the_top_of_a_linked_worktree_is_its_own(linked: Path) -> None:
    assert git.top(linked) == linked


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_a_directory_is_understood(tmp_path: Path, name: str) -> None:
    made = repository(tmp_path / "up" / name)
    tree = tmp_path / "trees" / name
    run_git(made, "worktree", "add", "-q", "-b", "side", str(tree))
    assert (git.top(made), git.top(tree)) == (made, tree)
    assert git.main_checkout(tree) == made
    assert git.common_dir(tree) == made / ".git"


def test_a_name_that_is_no_utf8_is_understood(tmp_path: Path) -> None:
    made = repository(tmp_path / "bytes \udcff")
    assert git.top(made) == made
    assert git.main_checkout(made) == made


def test_the_main_checkout_is_found_from_everywhere(repo: Path, linked: Path) -> None:
    for below in (repo, linked):
        (below / "deep" / "er").mkdir(parents=True)
        assert git.main_checkout(below) == repo
        assert git.main_checkout(below / "deep" / "er") == repo


def test_the_main_checkout_of_a_submodule_is_the_submodule(repo: Path, tmp_path: Path) -> None:
    part = repository(tmp_path / "part")
    run_git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part), "sub")
    assert git.main_checkout(repo / "sub") == repo / "sub"


def test_the_main_checkout_of_a_separate_git_directory_is_where_its_files_are(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", f"--separate-git-dir={tmp_path / 'apart'}", str(tmp_path / "files"))
    assert git.main_checkout(tmp_path / "files") == tmp_path / "files"


def test_a_repository_without_commits_is_a_repository(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "fresh")
    assert git.top(tmp_path / "fresh") == git.main_checkout(tmp_path / "fresh") == tmp_path / "fresh"


@pytest.mark.parametrize("question", [git.top, git.common_dir, git.main_checkout, lambda path: git.exclude(path, "x")])
def test_a_folder_without_git_is_no_repository(tmp_path: Path, question: object) -> None:
    assert callable(question)
    for folder in (tmp_path, tmp_path / "not there"):
        with pytest.raises(NoRepository, match=str(folder)):
            question(folder)


def test_a_bare_repository_has_no_work_tree_and_answers_with_its_own_folder(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "--bare", "bare.git")
    bare = tmp_path / "bare.git"
    with pytest.raises(NoRepository):
        git.top(bare)
    assert git.main_checkout(bare) == bare


def test_a_failure_says_what_git_said(repo: Path) -> None:
    with pytest.raises(GitFailed, match="no-such-branch") as caught:
        git.ask(repo, "rev-parse", "--verify", "no-such-branch^{commit}")
    assert str(repo) in str(caught.value)


class TestExclude:
    def lines(self, repo: Path) -> list[str]:
        return (repo / ".git" / "info" / "exclude").read_text("utf-8").splitlines()

    def test_patterns_are_added_once(self, repo: Path) -> None:
        assert git.exclude(repo, ".mam/", ".mam.env") == [".mam/", ".mam.env"]
        assert git.exclude(repo, ".mam/", ".mam.env") == []
        assert [self.lines(repo).count(pattern) for pattern in (".mam/", ".mam.env")] == [1, 1]

    def test_git_obeys_them_in_the_main_checkout_and_in_a_linked_worktree(self, repo: Path, linked: Path) -> None:
        assert git.exclude(linked, ".mam/") == [".mam/"]
        assert ".mam/" in self.lines(repo)
        for tree in (repo, linked):
            (tree / ".mam").mkdir()
            (tree / ".mam" / "file").write_text("", "utf-8")
            assert run_git(tree, "status", "--porcelain") == ""

    def test_what_a_person_wrote_stays_also_without_a_last_line_break(self, repo: Path) -> None:
        path = repo / ".git" / "info" / "exclude"
        path.write_bytes(b"mine\n*.\xff\nlast")
        git.exclude(repo, ".mam/")
        assert path.read_bytes() == b"mine\n*.\xff\nlast\n.mam/\n"

    def test_a_missing_file_and_folder_are_made(self, repo: Path) -> None:
        (repo / ".git" / "info" / "exclude").unlink()
        (repo / ".git" / "info").rmdir()
        git.exclude(repo, ".mam/")
        assert self.lines(repo) == [".mam/"]


class TestHostileSurroundings:
    def test_variables_that_name_another_repository_do_not_divert_an_answer(
        self, repo: Path, linked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = repository(tmp_path / "other")
        diverting = {
            "GIT_DIR": str(other / ".git"),
            "GIT_WORK_TREE": str(other),
            "GIT_COMMON_DIR": str(other / ".git"),
            "GIT_INDEX_FILE": str(other / ".git" / "index"),
            "GIT_PREFIX": "deep/",
            "GIT_CEILING_DIRECTORIES": str(repo),
        }
        for name, value in diverting.items():
            monkeypatch.setenv(name, value)
        below = repo / "below"
        below.mkdir()
        assert (git.top(below), git.main_checkout(linked)) == (repo, repo)
        git.exclude(linked, ".mam/")
        assert ".mam/" in (repo / ".git" / "info" / "exclude").read_text("utf-8")
        assert ".mam/" not in (other / ".git" / "info" / "exclude").read_text("utf-8")
        assert git.ask(linked, "ls-files") == "README"

    def test_configuration_from_the_environment_does_not_reach_git(
        self, repo: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in {"COUNT": "1", "KEY_0": "core.bare", "VALUE_0": "true"}.items():
            monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
        monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.worktree'='/'")
        assert git.top(repo) == repo

    def test_all_variables_that_git_calls_local_are_scrubbed(self) -> None:
        assert set(process.run(["git", "rev-parse", "--local-env-vars"]).stdout.split()) <= set(process.OF_GIT)

    def test_a_program_in_the_repositorys_configuration_is_not_run(self, repo: Path, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        program = tmp_path / "monitor"
        program.write_text(f"#!/bin/sh\necho ran > '{ran}'\n", "utf-8")
        program.chmod(0o755)
        run_git(repo, "config", "core.fsmonitor", str(program))
        run_git(repo, "status")
        assert ran.exists(), "this test shows nothing: git itself did not run the program"
        ran.unlink()
        assert git.ask(repo, "status", "--porcelain") == ""
        git.top(repo), git.main_checkout(repo), git.exclude(repo, ".mam/")
        assert not ran.exists()

    def test_a_question_changes_no_file_of_the_repository(self, repo: Path) -> None:
        os.utime(repo / "README", (1, 1))  # plain `git status` would refresh the index now
        index = (repo / ".git" / "index").read_bytes()
        git.ask(repo, "status", "--porcelain")
        assert (repo / ".git" / "index").read_bytes() == index

    def test_a_question_may_be_asked_from_a_directory_that_is_gone(self, repo: Path, tmp_path: Path) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        script = "import os, sys; from pathlib import Path; from mam.wrappers.git import command as git;"
        script += "os.rmdir(os.getcwd());"
        done = process.run([sys.executable, "-c", f"{script} print(git.top(Path(sys.argv[1])))", str(repo)], cwd=gone)
        assert done.stdout == f"{repo}\n"

    def test_without_git_the_error_says_so(self, repo: Path, tmp_path: Path) -> None:
        bare = tmp_path / "bin"
        bare.mkdir()
        (bare / "env").symlink_to("/usr/bin/env")
        script = (
            "import sys; from pathlib import Path; from mam.wrappers.git import command as git\n"
            "try: git.ask(Path(sys.argv[1]), 'status')\n"
            "except git.GitFailed as error: print(error)"
        )
        done = process.run([sys.executable, "-c", script, str(repo)], env={"PATH": str(bare)}, expect=())
        assert "git is not installed" in done.stdout, done.stderr


def test_a_git_that_is_interrupted_keeps_nobody_from_ending(repo: Path) -> None:
    """GitPython's timer is a thread that a process waits for at its end."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            git.act(repo, "-c", "alias.wait=!exec sleep 3", "wait")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(10)
            assert not thread.is_alive()


def test_git_and_what_it_starts_see_no_password_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAM_BROKER_PASSWORD", "s3cret-canary")
    assert "s3cret-canary" not in git.act(repository(tmp_path / "repo"), "-c", "alias.shown=!env", "shown")


def test_work_in_a_linked_worktree_writes_to_the_folders_that_it_is_granted_and_to_no_others(
    repo: Path, linked: Path
) -> None:
    granted = dotgit.written_by_commits(linked)
    before = _all_in(repo / ".git")
    (linked / "README").write_text("changed\n", "utf-8")
    for words in (["stash"], ["stash", "pop"], ["commit", "-qam", "c"], ["switch", "-qc", "other"], ["tag", "t"]):
        run_git(linked, *words)
    run_git(linked, "rebase", "-q", "main")

    changed = [path for path, state in _all_in(repo / ".git").items() if before.get(path) != state]

    assert changed and [path for path in changed if not any(path.is_relative_to(folder) for folder in granted)] == []
    assert not any((repo / ".git" / name).is_relative_to(folder) for name in ("hooks", "config") for folder in granted)


def test_a_main_checkout_and_what_is_no_repository_need_no_folders_elsewhere(repo: Path, tmp_path: Path) -> None:
    assert dotgit.written_by_commits(repo) == dotgit.written_by_commits(tmp_path) == []


def _all_in(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*") if path.is_file()}
