"""The guard of the main checkout: every ordinary way to move its branch is refused, everything else works as before."""

import os
import subprocess
from pathlib import Path

import pytest

from mam.wrappers.git import command as mam_git
from mam.wrappers.git import hooks
from mam.wrappers.git.hooks import NotGuardable
from tests.support import git, repository
from tests.support.hidden_work import commit, write

BRANCHES = [
    "main",
    "trunk+1",
    "it's",
    'a"b',
    "$HOME",
    "a`id`b",
    "rel/1.x",
    "한국어",
    "a(b)&c;d",
    "#1",
    "a=b,c!d%e@f",
    "50%",
]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Guarded, with a worktree on `side`, two commits ahead of main, and an origin that is ahead as well."""
    made = repository(tmp_path / "repo")
    commit(made, "app.py", "one\n")
    git(made, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    commit(tmp_path / "tree", "side.txt")
    commit(tmp_path / "tree", "side2.txt")
    git(tmp_path, "clone", "-q", "--bare", str(made), "origin.git")
    git(tmp_path / "origin.git", "update-ref", "refs/heads/main", "refs/heads/side")
    git(made, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(made, "fetch", "-q", "origin")
    hooks.install(made)
    return made


def attempt(tree: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    environ = {**os.environ, "GIT_EDITOR": "true", **environ}
    return subprocess.run(["git", *identity, *words], cwd=tree, env=environ, capture_output=True, text=True)


ROUTES = {
    "fast-forward": ("merge", "--ff-only", "side"),
    "true merge": ("merge", "--no-ff", "-m", "m", "side"),
    "cherry-pick": ("cherry-pick", "side"),
    "revert": ("revert", "--no-edit", "HEAD"),
    "rebase": ("rebase", "side"),
    "reset": ("reset", "--hard", "HEAD~1"),
    "pull": ("pull", "-q", "--ff-only", "origin", "main"),
    "update-ref": ("update-ref", "refs/heads/main", "refs/heads/side"),
    "amend without hooks": ("commit", "--amend", "--no-verify", "-m", "other"),
    "commit without hooks": ("commit", "--allow-empty", "--no-verify", "-m", "other"),
    "fetch into it": ("fetch", "-q", "--update-head-ok", "origin", "main:main"),
}


@pytest.mark.req("M8")
@pytest.mark.parametrize("route", ROUTES)
def test_every_ordinary_way_to_move_the_branch_is_refused(repo: Path, route: str) -> None:
    before = git(repo, "rev-parse", "main")

    said = attempt(repo, *ROUTES[route])

    assert said.returncode != 0
    assert git(repo, "rev-parse", "main") == before
    assert "MAM_ALLOW_MAIN=1" in said.stderr


@pytest.mark.req("M8")
@pytest.mark.parametrize("route", ROUTES)
def test_each_of_them_works_where_it_is_allowed(repo: Path, route: str) -> None:
    before = git(repo, "rev-parse", "main")

    said = attempt(repo, *ROUTES[route], MAM_ALLOW_MAIN="1")

    assert said.returncode == 0, said.stderr
    assert git(repo, "rev-parse", "main") != before


@pytest.mark.req("M8")
def test_a_commit_in_the_main_checkout_is_refused_on_every_branch_and_allowed_on_demand(repo: Path) -> None:
    git(repo, "switch", "-qc", "other")
    write(repo / "app.py", "two\n")
    git(repo, "add", "app.py")

    said = attempt(repo, "commit", "-m", "two")

    assert said.returncode == 1 and "mam worktree prepare" in said.stderr
    assert attempt(repo, "commit", "-qm", "two", MAM_ALLOW_MAIN="1").returncode == 0


@pytest.mark.req("M8")
@pytest.mark.parametrize("value", ["", "0", "no", "true", "11", " 1"])
def test_only_the_value_1_allows_it(repo: Path, value: str) -> None:
    before = git(repo, "rev-parse", "HEAD")

    for words in (("commit", "--allow-empty", "-m", "two"), ("update-ref", "refs/heads/main", "refs/heads/side")):
        assert attempt(repo, *words, MAM_ALLOW_MAIN=value).returncode != 0
    git(repo, "switch", "-qc", "other")  # where the pre-commit hook alone refuses
    assert attempt(repo, "commit", "--allow-empty", "-m", "two", MAM_ALLOW_MAIN=value).returncode != 0

    assert git(repo, "rev-parse", "main") == git(repo, "rev-parse", "other") == before


def test_update_ref_from_a_worktree_and_by_standard_input_is_refused_too(repo: Path, tmp_path: Path) -> None:
    before = git(repo, "rev-parse", "main")
    assert attempt(tmp_path / "tree", "update-ref", "refs/heads/main", "HEAD").returncode != 0
    text = f"start\nupdate refs/heads/main {git(repo, 'rev-parse', 'side')}\nprepare\ncommit\n"
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["git", "update-ref", "--stdin"], cwd=repo, input=text, text=True, env=environ, check=False)

    assert done.returncode != 0
    assert git(repo, "rev-parse", "main") == before


def test_other_branches_worktrees_tags_and_fetches_are_untouched(repo: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    commit(tree, "more.txt")
    git(tree, "commit", "-q", "--amend", "-m", "other")
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    git(tree, "switch", "-qc", "main-2")
    git(tree, "branch", "a/main")
    git(tree, "branch", "main2")
    git(tree, "rebase", "-q", "side")
    git(repo, "tag", "main-tag")
    git(repo, "fetch", "-q", "origin")
    git(tree, "push", "-q", "origin", "HEAD:refs/heads/new")
    git(repo, "worktree", "add", "-q", "-b", "third", str(tmp_path / "third"))
    git(repo, "branch", "-D", "third-not") if git(repo, "branch", "--list", "third-not") else None
    git(repo, "switch", "-qc", "fourth")
    git(repo, "stash", "list")

    assert git(repo, "rev-parse", "origin/new") == git(tree, "rev-parse", "HEAD")


STAYS = {
    "reset hard": ("reset", "-q", "--hard"),
    "reset merge": ("reset", "-q", "--merge"),
    "reset soft": ("reset", "-q", "--soft", "HEAD"),
    "pack": ("pack-refs", "--all"),
    "collect": ("gc", "-q"),
    "stash": ("stash", "-q"),
}


@pytest.mark.req("M8")
@pytest.mark.parametrize("how", STAYS)
def test_what_leaves_the_branch_where_it_is_passes(repo: Path, how: str) -> None:
    before = git(repo, "rev-parse", "main")
    write(repo / "app.py", "changed\n")

    for _ in range(2):  # the second time its ref lies in packed-refs, where it was packed
        said = attempt(repo, *STAYS[how])
        assert said.returncode == 0, said.stderr
    assert git(repo, "rev-parse", "main") == before


@pytest.mark.req("M8")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ("update-ref", "-d", "refs/heads/main"),
        ("update-ref", "-d", "refs/heads/main", "BEFORE"),  # as git prunes a ref that it packed
        ("update-ref", "-d", "HEAD", "BEFORE"),
        ("branch", "-m", "main", "trunk"),
    ],
    ids=" ".join,
)
def test_a_branch_that_would_go_is_kept(repo: Path, words: tuple[str, ...], packed: bool) -> None:
    before = git(repo, "rev-parse", "main")
    if packed:
        git(repo, "pack-refs", "--all")

    assert attempt(repo, *(before if word == "BEFORE" else word for word in words)).returncode != 0
    assert git(repo, "rev-parse", "main") == before


def test_a_packed_branch_whose_name_only_begins_alike_does_not_let_the_branch_go(repo: Path) -> None:
    git(repo, "branch", "main2")
    before = git(repo, "rev-parse", "main")
    git(repo, "pack-refs", "--all")
    (repo / ".git" / "refs" / "heads" / "main").write_text(f"{before}\n")
    packed = repo / ".git" / "packed-refs"
    packed.write_text("".join(line for line in packed.open() if not line.endswith(" refs/heads/main\n")))

    # From a worktree: there the main branch is not HEAD, and its going looks most like the pruning of a packed ref.
    assert attempt(repo.parent / "tree", "update-ref", "-d", "refs/heads/main", before).returncode != 0
    assert git(repo, "rev-parse", "main") == before


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_branch_of_any_name_is_guarded_and_only_that(tmp_path: Path, branch: str) -> None:
    repo = repository(tmp_path / "re po's")
    git(repo, "branch", "-m", branch)
    git(repo, "branch", f"{branch}x")
    git(repo, "branch", f"x{branch}")
    git(repo, "tag", branch)
    new = git(repo, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "new")
    assert hooks.install(repo).branch == branch

    assert attempt(repo, "pack-refs", "--all").returncode == 0
    assert attempt(repo, "update-ref", f"refs/heads/{branch}", new).returncode != 0
    for other in (f"refs/heads/{branch}x", f"refs/heads/x{branch}", f"refs/tags/{branch}"):
        said = attempt(repo, "update-ref", other, new)
        assert said.returncode == 0, said.stderr


class TestHooksThatWereThere:
    def hook(self, repo: Path, name: str, text: str) -> Path:
        path = repo / ".git" / "hooks" / name
        path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        path.chmod(0o755)
        return path

    def test_they_run_first_decide_and_come_back(self, tmp_path: Path) -> None:
        repo = repository(tmp_path / "repo")
        log = tmp_path / "log"
        before = {
            name: self.hook(
                repo, name, f'echo "{name} $*" >> {log}; cat >> {log}; [ ! -e {tmp_path}/refuse ]'
            ).read_text()
            for name in ("pre-commit", "reference-transaction")
        }
        hooks.install(repo)
        hooks.install(repo)
        git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))

        log.unlink(missing_ok=True)
        sha = commit(tmp_path / "tree", "more.txt")
        text = log.read_text("utf-8")
        assert "pre-commit" in text and "reference-transaction prepared" in text and f"{sha} refs/heads/side" in text
        (tmp_path / "refuse").touch()
        write(tmp_path / "tree" / "more2.txt")
        git(tmp_path / "tree", "add", ".")
        assert attempt(tmp_path / "tree", "commit", "-m", "x").returncode != 0
        assert attempt(tmp_path / "tree", "commit", "--no-verify", "-m", "x").returncode != 0

        assert hooks.uninstall(repo) is True
        assert hooks.uninstall(repo) is False
        folder = repo / ".git" / "hooks"
        assert {name: (folder / name).read_text() for name in before} == before
        assert not list(folder.glob("*before-mam*")) and not list(folder.glob(".*"))

    @pytest.mark.parametrize("name", ["pre-commit", "reference-transaction"])
    def test_each_of_them_refuses_by_itself_what_the_guard_lets_pass(self, tmp_path: Path, name: str) -> None:
        repo = repository(tmp_path / "repo")
        git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
        self.hook(repo, name, "exit 1")
        hooks.install(repo)

        assert attempt(tmp_path / "tree", "commit", "--allow-empty", "-m", "x").returncode != 0
        hooks.uninstall(repo)
        (repo / ".git" / "hooks" / name).unlink()
        assert attempt(tmp_path / "tree", "commit", "--allow-empty", "-m", "x").returncode == 0

    def test_a_hook_that_is_a_link_comes_back_as_one(self, tmp_path: Path) -> None:
        repo = repository(tmp_path / "repo")
        hook = repo / ".git" / "hooks" / "pre-commit"
        hook.symlink_to("../../not/there/yet")

        hooks.install(repo)
        hooks.uninstall(repo)

        assert os.readlink(hook) == "../../not/there/yet"

    def test_a_hook_that_cannot_be_run_stays_idle_and_comes_back(self, tmp_path: Path) -> None:
        repo = repository(tmp_path / "repo")
        self.hook(repo, "pre-commit", "exit 1").chmod(0o644)
        hooks.install(repo)
        git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
        commit(tmp_path / "tree", "more.txt")
        hooks.uninstall(repo)

        assert not os.access(repo / ".git" / "hooks" / "pre-commit", os.X_OK)

    def test_two_generations_of_hooks_are_refused_and_none_is_lost(self, tmp_path: Path) -> None:
        """Another tool wrote over the guard: its hook and the one that was kept are both somebody's."""
        repo = repository(tmp_path / "repo")
        self.hook(repo, "pre-commit", "echo first")
        hooks.install(repo)
        self.hook(repo, "pre-commit", "echo second")

        with pytest.raises(NotGuardable, match="before-mam"):
            hooks.install(repo)

        texts = [
            path.read_text() for path in (repo / ".git" / "hooks").glob("pre-commit*") if "sample" not in path.name
        ]
        assert sorted(text.split()[-1] for text in texts) == ["first", "second"]

    def test_a_hook_of_somebody_elses_is_not_removed_by_unguard(self, tmp_path: Path) -> None:
        repo = repository(tmp_path / "repo")
        hooks.install(repo)
        mine = self.hook(repo, "pre-commit", "exit 0")

        hooks.uninstall(repo)

        assert mine.exists() and not (repo / ".git" / "hooks" / "reference-transaction").exists()


@pytest.mark.parametrize("where", ["own/hooks", "/dev/null", ".husky"])
def test_a_hooks_folder_of_the_project_is_refused(tmp_path: Path, where: str) -> None:
    repo = repository(tmp_path / "repo")
    git(repo, "config", "core.hooksPath", where)

    with pytest.raises(NotGuardable, match=where):
        hooks.install(repo)
    assert not hooks.installed(repo)


def test_a_detached_head_is_refused(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    git(repo, "checkout", "-q", "--detach")

    with pytest.raises(NotGuardable, match="detached"):
        hooks.install(repo)


def test_guarded_from_a_worktree_it_is_the_shared_hooks_that_are_set(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))

    assert not hooks.installed(repo)
    assert hooks.install(repo).folder == repo / ".git" / "hooks"
    assert hooks.installed(repo) and hooks.installed(tmp_path / "tree")


def test_another_branch_can_be_guarded_later(repo: Path) -> None:
    git(repo, "switch", "-qc", "trunk")
    hooks.install(repo)

    assert attempt(repo, "update-ref", "refs/heads/trunk", "refs/heads/side").returncode != 0
    assert attempt(repo, "update-ref", "refs/heads/main", "refs/heads/side").returncode == 0


def test_what_mam_does_itself_passes_the_guard(repo: Path) -> None:
    mam_git.act(repo, "merge", "--ff-only", "--quiet", "side")

    assert git(repo, "rev-parse", "main") == git(repo, "rev-parse", "side")
