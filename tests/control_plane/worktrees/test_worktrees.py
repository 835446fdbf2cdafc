"""Worktrees from the command line: made, worked in by one writer each, committed in, removed, made again."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from tests.control_plane.sessions.test_sessions import BINDING, environ_of
from tests.support import MAM, Root, git, repository, until
from tests.support.hidden_work import FILE, commit, family, write

DOCS = Path(__file__).parents[3] / "docs"
HANG = ({"started": {}}, {"hang": {}})
# A project that pip can install without asking anybody for anything.
BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("tiny.pth", __import__("os").getcwd())
        said = "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\nProvides-Extra: dev\\n"
        wheel.writestr(f"{about}/METADATA", said)
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{about}/RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "1.0"
optional-dependencies.dev = []
"""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whom git knows."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "somebody@localhost")


def prepare(root: Root, name: str = "one", *words: str, **more: Any) -> Path:
    return Path(root.ok("worktree", "prepare", name, "--no-venv", *words, **more)["path"])


def creator(root: Root, tree: str = "one", *script: dict[str, Any]) -> str:
    """A scripted creator in a prepared worktree; its name."""
    words = ["agent", "create", "--agent", "scripted", "--worktree", tree]
    if script:
        path = root.path.parent / f"{tree}.json"
        path.write_text(json.dumps(list(script)), "utf-8")
        words += ["--", "--script", str(path)]
        said = root.mam(*words[:6], "--json", *words[6:])
        assert said.code == 0, said.err
        return str(said.json["name"])
    return str(root.ok(*words)["name"])


def refused(root: Root, *words: str, **more: Any) -> Any:
    said = root.mam(*words, "--json", **more)
    assert said.code != 0, f"mam {' '.join(words)} was not refused\n{said.out}"
    return said.error | {"exit": said.code}


def row(root: Root, name: str = "one") -> Any:
    with root.registry.view() as view:
        return view.worktree(name)


def state_of(root: Root) -> dict[str, Any]:
    """What nothing that happens in worktrees may change in the main checkout."""
    hooks = root.path / ".git" / "hooks"
    return {
        "status": git(root.path, "status", "--porcelain=v2", "--ignored", "-z"),
        "HEAD": (root.path / ".git" / "HEAD").read_text(),
        "main": git(root.path, "rev-parse", "main"),
        "config": (root.path / ".git" / "config").read_bytes(),
        "index": hashlib.sha256((root.path / ".git" / "index").read_bytes()).hexdigest(),
        "hooks": {path.name: path.read_bytes() for path in sorted(hooks.iterdir())},
        "files": {p.name: p.read_bytes() for p in sorted(root.path.iterdir()) if p.is_file()},
    }


def leftovers(root: Root) -> dict[str, Any]:
    """Everything that a worktree is made of."""
    admin = root.path / ".git" / "worktrees"
    beside = root.path.parent / "repo.worktrees"
    return {
        "branches": git(root.path, "branch", "--format=%(refname:short)").split(),
        "entries": sorted(path.name for path in admin.iterdir()) if admin.is_dir() else [],
        "trees": sorted(path.name for path in beside.iterdir()) if beside.is_dir() else [],
        "rows": [tree["name"] for tree in root.ok("worktree", "list")],
    }


def states(root: Root) -> list[str]:
    """What worktrees are; the same whoever is asked."""
    found, shown = (
        [each["state"] for each in said] for said in (root.ok("worktree", "list"), root.ok("status")["worktrees"])
    )
    assert found == shown
    return found


NOTHING = {"branches": ["main"], "entries": [], "trees": [], "rows": []}


class TestPreparing:
    @pytest.mark.req("M39")
    def test_it_makes_a_tree_on_a_branch_of_its_own_and_again_changes_nothing(self, root: Root) -> None:
        tree = prepare(root, "issue-20", "--setup", "echo ran >> setup.log")
        first = row(root, "issue-20")
        again = root.ok("worktree", "prepare", "issue-20", "--no-venv", "--setup", "echo ran >> setup.log")

        assert tree == root.path.parent / "repo.worktrees" / "issue-20" == Path(again["path"])
        assert git(tree, "branch", "--show-current") == "issue-20"
        assert (tree / "setup.log").read_text() == "ran\n"
        assert (first.state, row(root, "issue-20").state) == ("ready", "ready")
        assert row(root, "issue-20").base_sha == first.base_sha == git(root.path, "rev-parse", "main")

    @pytest.mark.req("M39")
    def test_base_branch_and_path_are_as_asked(self, root: Root, tmp_path: Path) -> None:
        old = git(root.path, "rev-parse", "main")
        commit(root.path, "more.txt")
        git(root.path, "branch", "there/before", old)

        prepare(root, "one", "--base", old, "--branch", "feature/one", "--path", str(tmp_path / "here"))
        prepare(root, "two", "--branch", "there/before")

        assert git(tmp_path / "here", "rev-parse", "feature/one") == old
        assert git(root.path, "rev-parse", "there/before") == row(root, "two").base_sha == old
        error = refused(root, "worktree", "prepare", "one", "--path", str(tmp_path / "elsewhere"))
        assert error["code"] == "path_taken" and str(tmp_path / "here") in error["message"]
        assert refused(root, "worktree", "prepare", "one", "--branch", "other")["code"] == "branch_taken"

    @pytest.mark.req("M39")
    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (["one", "--branch", "taken"], "branch_taken"),
            (["taken"], "branch_taken"),
            (["one", "--branch", "main"], "branch_taken"),
            (["one", "--branch", "main/x"], "branch_taken"),
            (["one", "--base", "nowhere"], "no_commit"),
            (["one", "--path", "full"], "path_taken"),
            (["one", "--path", "repo/inside"], "path_taken"),
            (["one", "--path", "file/below"], "path_taken"),
            (["one", "--path", "taken"], "path_taken"),
            (["Two Words"], "bad_name"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_what_cannot_be_is_refused_before_anything_is_touched(
        self, root: Root, tmp_path: Path, words: list[str], code: str
    ) -> None:
        git(root.path, "worktree", "add", "-q", "-b", "taken", str(tmp_path / "taken"))
        write(tmp_path / "full" / "mine.txt")
        write(tmp_path / "file")
        before = leftovers(root)

        error = refused(root, "worktree", "prepare", *words, cwd=tmp_path, env={"WORKSPACE_ROOT": str(root.path)})

        assert error["code"] == code and error["remedy"]
        assert leftovers(root) == before
        assert (tmp_path / "full" / "mine.txt").exists()

    @pytest.mark.req("M40")
    def test_a_python_project_gets_an_environment_of_its_own_in_which_it_runs(self, root: Root) -> None:
        for name, text in (("backend.py", BACKEND), ("pyproject.toml", PROJECT), ("tiny.py", "answer = 42\n")):
            commit(root.path, name, text)
        commit(root.path, "test_tiny.py", "import tiny\nassert tiny.answer == 42\nprint(tiny.__file__)\n")

        said = root.mam("worktree", "prepare", "one", "--json", timeout_s=170)

        tree = Path(said.json["path"])
        assert "no pytest came along" in said.err and "--test CMD" in said.err
        assert not (tree / ".venv").is_symlink() and not (root.path / ".venv").exists()
        python = tree / ".venv" / "bin" / "python"
        done = subprocess.run([python, str(tree / "test_tiny.py")], cwd="/", capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(tree / "tiny.py")
        prefix = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True)
        assert prefix.stdout.strip() == str(tree / ".venv")
        git(tree, "add", "--all")
        assert git(tree, "status", "--porcelain") == ""

    @pytest.mark.req("M40")
    @pytest.mark.parametrize("knows", [True, False], ids=["groups known", "groups unknown"])
    def test_the_dependency_groups_of_tests_come_along_where_the_installer_knows_them(
        self, root: Root, tmp_path: Path, knows: bool
    ) -> None:
        """A `uv` that writes down what it is asked for: neither it nor a pip of a certain age is everywhere."""
        commit(root.path, "pyproject.toml", '[dependency-groups]\nlint = ["nothing"]\ndev = ["pytest"]\ntest = []\n')
        uv = tmp_path / "bin" / "uv"
        says = "echo --group" if knows else "true"
        write(uv, f'#!/bin/sh\ncase "$*" in *--help) {says};; *) echo "$@" >> "$0.log";; esac\n')
        uv.chmod(0o755)
        env = {"PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}"}

        said = root.mam("worktree", "prepare", "one", "--json", env=env)

        assert said.code == 0, said.err
        asked = (tmp_path / "bin" / "uv.log").read_text("utf-8").splitlines()
        assert [line.split()[0] for line in asked] == (["venv", "pip"] if knows else ["venv"])
        assert asked[-1].endswith(" --group dev --group test") is knows
        assert ("not installed: --group dev --group test, which needs pip 25.1" in said.err) is not knows

    @pytest.mark.req("M41")
    @pytest.mark.parametrize("kind", ["a link", "a directory"])
    def test_environments_and_caches_are_never_staged(self, root: Root, tmp_path: Path, kind: str) -> None:
        tree = prepare(root)
        for place in (root.path, tree):
            (tmp_path / "shared").mkdir(exist_ok=True)
            if kind == "a link":
                (place / ".venv").symlink_to(tmp_path / "shared")
            else:
                write(place / ".venv" / "bin" / "python")
            for cache in (".pytest_cache/v", "src/__pycache__/a.pyc", ".mypy_cache/x", ".ruff_cache/x", "p.egg-info/x"):
                write(place / cache)
            git(place, "add", "--all")
            assert git(place, "status", "--porcelain") == ""

        prepare(root, "two")
        lines = (root.path / ".git" / "info" / "exclude").read_text("utf-8").splitlines()
        assert lines.count("/.venv") == 1
        assert not (root.path / ".git" / "worktrees" / "one" / "info").exists()

    @pytest.mark.req("M42")
    def test_submodules_come_from_the_main_checkout_without_any_network(self, root: Root, tmp_path: Path) -> None:
        family(tmp_path / "family")
        git(root.path, *FILE, "submodule", "--quiet", "add", str(tmp_path / "family" / "part"), "part")
        git(root.path, *FILE, "submodule", "--quiet", "update", "--init", "--recursive")
        git(root.path, "commit", "-qm", "part")
        git(root.path / "part", "checkout", "-q", "--detach")
        newer = commit(root.path / "part", "newer.txt")  # nobody but the main checkout has it, on no branch
        git(root.path, "add", "part")
        git(root.path, "commit", "-qm", "newer part")
        subprocess.run(["rm", "-r", str(tmp_path / "family")], check=True)

        tree = prepare(root)

        assert git(tree / "part", "rev-parse", "HEAD") == newer
        assert (tree / "part" / "deep" / "app.py").exists()
        assert git(tree / "part", "config", "remote.origin.url") == str(tmp_path / "family" / "part")
        assert git(tree, "status", "--porcelain") == ""
        root.ok("worktree", "remove", "one")  # what the main checkout has as well is not lost with the tree
        assert git(root.path / "part", "status", "--porcelain") == ""

    @pytest.mark.parametrize("setup", ["false", "echo x > README; false", "git commit -q --allow-empty -m x; exit 7"])
    def test_a_setup_that_fails_leaves_nothing_but_commits(self, root: Root, setup: str) -> None:
        before = leftovers(root)

        error = refused(root, "worktree", "prepare", "one", "--no-venv", "--setup", setup)

        assert error["code"] == "outfit_failed" and error["message"].count(setup) == 1
        if "commit" in setup:
            assert row(root).state == "preparing"
            assert prepare(root).is_dir()
        else:
            assert leftovers(root) == before == NOTHING

    def test_a_branch_that_was_there_before_outlives_a_setup_that_fails(self, root: Root) -> None:
        git(root.path, "branch", "mine")

        assert refused(root, "worktree", "prepare", "one", "--branch", "mine", "--no-venv", "--setup", "false")

        assert leftovers(root) == NOTHING | {"branches": ["main", "mine"]}

    def test_the_setup_runs_in_the_tree_and_for_its_repository_only(self, root: Root, tmp_path: Path) -> None:
        other = repository(tmp_path / "other")
        before = git(root.path, "rev-parse", "main"), git(other, "rev-parse", "main")
        leaked = {"GIT_DIR": str(other / ".git"), "GIT_INDEX_FILE": str(other / ".git" / "index"), "VIRTUAL_ENV": "/x"}
        setup = "pwd -P > where; git rev-parse --absolute-git-dir >> where; echo ${VIRTUAL_ENV:-none} >> where"

        tree = prepare(root, "one", "--setup", setup, env=leaked)

        assert (tree / "where").read_text().split() == [str(tree), str(root.path / ".git/worktrees/one"), "none"]
        assert (git(root.path, "rev-parse", "main"), git(other, "rev-parse", "main")) == before

    def test_a_setup_for_a_tree_that_is_ready_is_not_run_and_that_is_said(self, root: Root) -> None:
        tree = prepare(root)

        said = root.mam("worktree", "prepare", "one", "--setup", "touch made")

        assert said.code == 0 and "--setup was not run" in said.err
        assert not (tree / "made").exists()

    @pytest.mark.parametrize("switch", [("switch", "-qc", "other"), ("switch", "-q", "--detach")])
    def test_a_tree_that_left_its_branch_is_shown_as_that_with_the_way_back(
        self, root: Root, switch: tuple[str, ...]
    ) -> None:
        tree = prepare(root)
        git(tree, *switch)

        why = root.ok("why", "one")

        assert "not on one" in why["because"] and why["awaited"] == "a person"
        assert why["state"].startswith("off branch")
        assert states(root) == ["off branch"]
        subprocess.run(["sh", "-c", why["next"]], check=True, capture_output=True)
        assert root.ok("why", "one")["because"] == "it is as it should be"
        assert states(root) == ["ready"]

    @pytest.mark.parametrize("damage", ["rm -r {tree}", "rm -r {tree}; git -C {root} branch -D one", "rm {tree}/.git"])
    def test_a_tree_that_was_removed_by_hand_is_made_again(self, root: Root, damage: str) -> None:
        tree = prepare(root)
        sha = commit(tree, "work.txt") if "branch" not in damage else git(root.path, "rev-parse", "main")
        prepare(root, "two")
        git(tree, "checkout", "-q", "--detach") if "branch" in damage else None
        subprocess.run(["sh", "-c", damage.format(tree=tree, root=root.path)], check=True, capture_output=True)
        assert states(root) == ["missing", "ready"]

        if "/.git" in damage:  # files are there that may be somebody's
            assert refused(root, "worktree", "prepare", "one")["code"] == "path_taken"
            assert (tree / "work.txt").exists()
            return
        prepare(root)

        assert git(tree, "rev-parse", "HEAD") == git(root.path, "rev-parse", "one") == sha
        assert git(tree, "status", "--porcelain") == ""

    def test_what_all_worktrees_share_is_changed_under_one_lock(self, root: Root, tmp_path: Path) -> None:
        """A git in front of git looks whether the lock is free whenever something shared is changed."""
        family(tmp_path / "family")
        git(root.path, *FILE, "submodule", "--quiet", "add", str(tmp_path / "family" / "part"), "part")
        git(root.path, "commit", "-qm", "part")
        front = tmp_path / "bin" / "git"
        front.parent.mkdir()
        lock, log = root.path / ".git" / "mam-worktrees.lock", tmp_path / "log"
        front.write_text(
            f"""#!/bin/sh
case " $* " in *" worktree add "*|*" worktree remove "*|*" submodule update "*|*" update-ref "*)
  if flock -n '{lock}' true; then echo "free $*"; else echo "held $*"; fi >> '{log}'
esac
exec '{shutil.which("git")}' "$@"
"""
        )
        front.chmod(0o755)
        env = {"PATH": f"{front.parent}{os.pathsep}{os.environ['PATH']}"}

        prepare(root, env=env)
        root.ok("worktree", "remove", "one", env=env)
        refused(root, "worktree", "prepare", "two", "--no-venv", "--setup", "false", env=env)

        looks = [line.split(" ", 1)[0] for line in log.read_text().splitlines()]
        assert len(looks) >= 9 and set(looks) == {"held"}, log.read_text()

    def test_a_half_made_tree_is_not_counted_as_made(self, root: Root) -> None:
        died = root.mam("worktree", "prepare", "one", "--no-venv", env={"MAM_FAULT": "cli@tree.added:1:crash"})
        tree = Path(row(root).path)
        assert died.code == -9 and row(root).state == "preparing"
        git(root.path, "worktree", "lock", "--reason", "initializing", str(tree))  # as git leaves it when it is killed
        (tree / "README").unlink()
        error = refused(root, "agent", "create", "--agent", "scripted", "--worktree", "one")
        assert error["code"] == "worktree_not_ready" and "mam worktree prepare one" in error["remedy"]

        prepare(root)

        assert git(tree, "status", "--porcelain") == "" and row(root).state == "ready"
        assert "locked" not in git(root.path, "worktree", "list", "--porcelain")

    def test_work_in_an_interrupted_tree_outlives_a_setup_that_fails(self, root: Root) -> None:
        root.mam("worktree", "prepare", "one", "--no-venv", env={"MAM_FAULT": "cli@worktree.fitted:1:crash"})
        tree = Path(row(root).path)
        write(tree / "idea.txt")

        refused(root, "worktree", "prepare", "one", "--no-venv", "--setup", "false")

        assert (tree / "idea.txt").exists()
        assert prepare(root) == tree

    def test_files_that_came_meanwhile_survive_an_interrupted_prepare(self, root: Root) -> None:
        root.mam("worktree", "prepare", "one", env={"MAM_FAULT": "cli@worktree.row:1:crash"})
        write(Path(row(root).path) / "mine.txt")

        assert refused(root, "worktree", "prepare", "one")["code"] == "path_taken"

        assert (root.path.parent / "repo.worktrees" / "one" / "mine.txt").exists()


class TestWriters:
    @pytest.mark.req("M4", "M78")
    def test_several_creators_work_at_once_each_in_its_own_tree_on_its_own_branch(self, root: Root) -> None:
        trees = {name: prepare(root, name) for name in ("issue-1", "issue-2", "issue-3")}
        environ = {**os.environ, **root.env}
        words = [MAM, "agent", "create", "--agent", "scripted", "--worktree"]
        starts = [subprocess.Popen([*words, name], cwd=root.path, env=environ, stdout=-3, stderr=-3) for name in trees]
        assert [child.wait(120) for child in starts] == [0, 0, 0]
        script = 'SCRIPT: [{"started": {}}, {"shell": "pwd > who"}, {"report": {"text": "done"}}]'

        jobs = [root.delegate(f"creator-scripted-{name}", f"write it\n{script}\n") for name in trees]

        assert [root.mam("job", "wait", job, "--timeout", "60").code for job in jobs] == [0, 0, 0]
        for name, tree in trees.items():
            assert (tree / "who").read_text().strip() == str(tree)
            assert git(tree, "branch", "--show-current") == name
            assert root.session(f"creator-scripted-{name}").cwd == str(tree)

    @pytest.mark.req("M7")
    def test_a_tree_has_one_writer_whichever_way_the_second_one_comes(self, root: Root) -> None:
        tree = prepare(root)
        (tree / "sub").mkdir()
        first = creator(root)

        for words in (
            ["agent", "create", "second", "--agent", "scripted", "--worktree", "one"],
            ["agent", "create", "second", "--agent", "scripted", "--cwd", str(tree)],
            [
                "agent",
                "create",
                "second",
                "--agent",
                "scripted",
                "--cwd",
                str(tree / "sub"),
                "--role",
                "planner,creator",
            ],
        ):
            error = refused(root, *words)
            assert (error["exit"], error["code"]) == (5, "worktree_taken")
            assert first in error["message"] and root.session("second") is None
        assert (
            root.mam("agent", "create", "looks", "--agent", "scripted", "--cwd", str(tree), "--role", "reviewer").code
            == 0
        )

        root.ok("agent", "stop", first)
        root.ok("agent", "create", "second", "--agent", "scripted", "--worktree", "one")
        error = refused(root, "agent", "resume", first)
        assert (error["exit"], error["code"]) == (5, "worktree_taken")
        assert root.session(first).status == "stopped"

    @pytest.mark.req("M7")
    def test_of_many_creators_that_want_one_tree_at_once_one_gets_it(self, root: Root) -> None:
        prepare(root)
        root.mam("up")
        environ = {**os.environ, **root.env}
        words = ["--agent", "scripted", "--worktree", "one", "--no-wait"]
        starts = [
            subprocess.Popen(
                [MAM, "agent", "create", f"w{number}", *words], cwd=root.path, env=environ, stdout=-3, stderr=-3
            )
            for number in range(6)
        ]

        assert sorted(child.wait(120) for child in starts) == [0, 5, 5, 5, 5, 5]

    def test_a_name_a_place_and_a_worktree_that_do_not_fit_are_refused(self, root: Root, tmp_path: Path) -> None:
        assert (
            refused(root, "agent", "create", "--agent", "scripted", "--worktree", "none")["code"] == "unknown_worktree"
        )
        words = ["agent", "create", "w", "--agent", "scripted", "--worktree", "one", "--cwd", str(tmp_path)]
        assert refused(root, *words)["exit"] == 2

    @pytest.mark.req("M5")
    def test_reviewers_live_in_the_main_checkout_keep_their_memory_and_can_be_more(self, root: Root) -> None:
        prepare(root)
        root.agent("rev-a", role="reviewer")
        for _ in range(2):
            assert root.mam("job", "wait", root.delegate("rev-a"), "--timeout", "60").code == 0
        root.agent("rev-b", role="reviewer")
        root.ok("agent", "stop", "rev-a")
        root.ok("agent", "resume", "rev-a")

        assert {root.session(name).cwd for name in ("rev-a", "rev-b")} == {str(root.path)}
        memory = json.loads((root.path / ".mam" / "run" / "rev-a" / "memory.json").read_text())
        assert len(memory) == 2


class TestPanes:
    @pytest.mark.req("M27", "M29", "M43", "M44")
    @pytest.mark.parametrize("mux", ["headless", "tmux"])
    def test_a_creator_is_bound_to_the_main_checkout_and_starts_no_monitor(
        self, make_root: Callable[..., Root], needs: Callable[[str], None], tmp_path: Path, mux: str
    ) -> None:
        if mux == "tmux":
            needs("tmux")
        root = make_root(mux=mux)
        tree = prepare(root)
        write(tree / "mam" / "__init__.py", "raise SystemExit('the worktree ran')\n")
        write(tree / ".agents" / "monitor.sh", "exit 1\n")
        if mux == "tmux":  # a server that was started by somebody who had none of the variables
            server = root.parts.mux_server("tmux")
            bare = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
            leak = {**bare, "GIT_DIR": "/nowhere", "WORKSPACE_ROOT": "/nowhere"}
            subprocess.run(["tmux", "-L", server, "-f", os.devnull, "new-session", "-d", "cat"], env=leak, check=True)
        leaked = {"GIT_DIR": str(root.path / ".git"), "GIT_INDEX_FILE": "x"}

        said = root.mam("agent", "create", "--agent", "scripted", "--worktree", "one", cwd=tree, env=leaked)
        assert said.code == 0, said.err

        session = root.session("creator-scripted-one")
        own = environ_of(session.agent_pid)
        binding = root.parts.layout.binding()
        assert {name: own[name] for name in BINDING} == {name: binding[name] for name in BINDING}
        assert own["MAM_NO_SUBSCRIBER_DAEMON"] == "1"
        assert not {"GIT_DIR", "GIT_INDEX_FILE"} & own.keys()
        assert os.readlink(f"/proc/{session.agent_pid}/cwd") == str(tree)
        monitor = monitor_process.look(root.parts.layout)
        assert monitor is not None and os.readlink(f"/proc/{monitor.process.pid}/cwd") == str(root.path)
        watching = environ_of(monitor.process.pid)
        assert {name: watching.get(name) for name in BINDING} == {name: binding[name] for name in BINDING}
        assert own["WORKSPACE_ROOT"] == str(root.path) == environ_of(session.pid)["WORKSPACE_ROOT"]

    @pytest.mark.req("M43", "M44")
    def test_an_agents_verbs_from_a_worktree_start_nothing_and_reach_the_central_registry(self, root: Root) -> None:
        tree = prepare(root)
        verbs = "mam status > status.txt; mam job list > jobs.txt"
        name = creator(root, "one", {"started": {}}, {"shell": verbs}, {"report": {"text": "done"}})
        job = root.delegate(name)
        assert root.mam("job", "wait", job, "--timeout", "60").code == 0
        root.mam("down")

        environ = {**os.environ, **environ_of(root.session(name).agent_pid)}
        subprocess.run([MAM, "status"], cwd=tree, env=environ, capture_output=True, check=True)

        assert job in (tree / "jobs.txt").read_text()
        assert monitor_process.look(root.parts.layout) is None
        assert not (tree / ".mam").exists()

    @pytest.mark.req("M51")
    def test_the_workspace_of_resume_and_stop_is_the_tree_while_the_registry_stays_with_main(self, root: Root) -> None:
        tree = prepare(root)
        name = creator(root)
        for verb in ("stop", "resume"):
            error = refused(root, "agent", verb, name, "--workspace", str(root.path))
            assert (error["exit"], error["code"]) == (2, "other_place")
            assert str(tree) in error["message"] and f"mam agent {verb} {name} --cwd {tree}" in error["remedy"]
            assert root.mam("agent", verb, name, "--workspace", str(tree), cwd=tree).code == 0

        listed = (root.path / ".mam" / "agent-sessions.yaml").read_text("utf-8")
        assert f'"cwd": "{tree}"' in listed
        assert not (tree / ".mam").exists()


class TestCommitting:
    @pytest.mark.req("M6")
    def test_a_commit_lands_on_the_trees_own_branch_and_expected_head_only(self, root: Root) -> None:
        tree = prepare(root)
        head = git(tree, "rev-parse", "HEAD")
        write(tree / "a file.txt")
        before = state_of(root)

        sha = root.ok("worktree", "commit", "one", "-m", "Add a file", "--expect", head[:12])["commit"]

        assert git(tree, "log", "-1", "--format=%H %P %s") == f"{sha} {head} Add a file"
        assert git(root.path, "rev-parse", "one") == sha
        assert git(tree, "status", "--porcelain") == ""
        assert state_of(root) == before
        error = refused(root, "worktree", "commit", "one", "-m", "x", "--expect", head)
        assert error["code"] == "not_as_expected" and sha in error["message"]
        assert refused(root, "worktree", "commit", "one", "-m", "x", "--expect", "nothing")["code"] == "no_commit"
        assert refused(root, "worktree", "commit", "one", "-m", "x")["code"] == "nothing_to_commit"

    @pytest.mark.req("M6")
    @pytest.mark.parametrize(
        "switch", [["switch", "-qc", "other"], ["checkout", "-q", "--detach"], ["bisect", "start"]]
    )
    def test_a_tree_that_is_not_as_expected_is_not_committed_in(self, root: Root, switch: list[str]) -> None:
        tree = prepare(root)
        git(tree, *switch)
        write(tree / "file.txt")
        refs = git(root.path, "for-each-ref")

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_as_expected"
        assert git(root.path, "for-each-ref") == refs
        assert (tree / "file.txt").exists()

    @pytest.mark.req("M6", "M9")
    def test_a_branch_that_is_switched_under_a_commit_never_gets_it(self, root: Root, tmp_path: Path) -> None:
        tree = prepare(root)
        git(root.path, "branch", "other")
        write(tree / "file.txt")
        other = git(root.path, "rev-parse", "other")
        program = tmp_path / "signer"
        # Signing is the last thing that git runs before the new commit exists: a good moment to be switched.
        program.write_text(
            "#!/bin/sh\ngit symbolic-ref HEAD refs/heads/other\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\necho s\n"
        )
        program.chmod(0o755)
        git(root.path, "config", "commit.gpgSign", "true")
        git(root.path, "config", "gpg.program", str(program))

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_as_expected" and "other" in error["message"]
        assert git(root.path, "rev-parse", "other") == other == git(root.path, "rev-parse", "one")
        assert (tree / "file.txt").exists()

    @pytest.mark.req("M6")
    def test_a_commit_that_lands_meanwhile_is_not_thrown_off_the_branch(self, root: Root, tmp_path: Path) -> None:
        tree = prepare(root)
        write(tree / "file.txt")
        new = git(tree, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "of the creator")
        program = tmp_path / "signer"
        program.write_text(
            f"#!/bin/sh\ngit update-ref refs/heads/one {new}\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\necho s\n"
        )
        program.chmod(0o755)
        git(root.path, "config", "commit.gpgSign", "true")
        git(root.path, "config", "gpg.program", str(program))

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_as_expected"
        assert git(root.path, "rev-parse", "one") == new and (tree / "file.txt").exists()

    @pytest.mark.req("M9")
    def test_after_somebody_switched_the_main_checkout_nothing_lands_on_main_and_it_is_reported(
        self, root: Root
    ) -> None:
        tree = prepare(root)
        root.mam("up")
        before = git(root.path, "rev-parse", "main")

        git(root.path, "switch", "-qc", "feature/20-x")  # as another process did
        commit(tree, "creator.txt")
        write(tree / "orchestrator.txt")
        root.ok("worktree", "commit", "one", "-m", "orchestrator")
        git(tree, "switch", "-q", "main")  # free now
        write(tree / "astray.txt")

        assert refused(root, "worktree", "commit", "one", "-m", "x")["code"] == "not_as_expected"
        error = refused(root, "worktree", "prepare", "two", "--branch", "main", "--no-venv")
        assert error["code"] == "branch_taken" and "main checkout" in error["message"]
        assert git(root.path, "rev-parse", "main") == before
        until(lambda: found(root, "main_moved"), what="the switch is reported")
        assert "from main to feature/20-x" in found(root, "main_moved")
        until(lambda: found(root, "worktree_strayed"), what="the stray tree is reported")
        git(tree, "stash", "-q", "-u")
        git(tree, "switch", "-q", "one")
        git(root.path, "switch", "-q", "main")
        until(lambda: not found(root, "main_moved"), what="it is over")

    @pytest.mark.req("M47")
    @pytest.mark.parametrize(
        "hide",
        [
            "git update-index --assume-unchanged deep/file && echo work > deep/file",
            "git update-index --skip-worktree deep/file && echo work > deep/file",
            "git sparse-checkout set elsewhere && mkdir deep && echo work > deep/file && echo work > deep/new",
            "git config core.fileMode false && chmod +x deep/file",
        ],
        ids=["assume-unchanged", "skip-worktree", "sparse", "mode"],
    )
    def test_what_a_removal_is_refused_for_is_committed_however_it_is_hidden(self, root: Root, hide: str) -> None:
        commit(root.path, "deep/file", "before\n")
        tree = prepare(root)
        subprocess.run(["sh", "-c", hide], cwd=tree, check=True)
        assert refused(root, "worktree", "remove", "one")["code"] == "worktree_dirty"

        root.ok("worktree", "commit", "one", "-m", "all of it")

        assert "deep/file" in git(tree, "show", "--format=", "--name-only")
        root.ok("worktree", "remove", "one")

    def test_a_repository_inside_is_refused_and_not_committed_as_a_mere_link(self, root: Root) -> None:
        tree = prepare(root)
        repository(tree / "inside")

        error = refused(root, "worktree", "commit", "one", "-m", "x")

        assert error["code"] == "not_capturable" and "inside" in error["message"]


def found(root: Root, code: str) -> str:
    with root.registry.view() as view:
        return next((finding.text for finding in view.findings() if finding.code == code), "")


class TestMainCheckout:
    @pytest.mark.req("M3")
    def test_it_is_byte_for_byte_the_same_after_everything(self, root: Root) -> None:
        prepare(root, "warm-up")  # what is shared is written once: excludes
        root.ok("worktree", "remove", "warm-up")
        (root.path / "untracked.txt").write_text("mine")
        before = state_of(root)

        prepare(root)
        script = ({"started": {}}, {"shell": "echo x > work.txt"}, {"report": {"text": "done"}})
        name = creator(root, "one", *script)
        assert root.mam("job", "wait", root.delegate(name), "--timeout", "60").code == 0
        root.ok("worktree", "commit", "one", "-m", "work")
        root.ok("worktree", "list")
        root.ok("worktree", "remove", "one", "--stop")

        assert state_of(root) == before
        mam = [path for path in root.path.parent.rglob(".mam") if path.parent != root.path]
        assert mam == [], "there is one control plane"
        assert (root.path / ".mam" / "registry.db").exists() and (root.path / ".mam" / "audit.jsonl").exists()

    @pytest.mark.req("M8")
    def test_the_guard_is_set_and_removed_by_init(self, root: Root) -> None:
        tree = prepare(root)
        assert root.ok("init", "--guard")["guarded"] == "main"
        write(root.path / "README", "changed\n")
        identity = ["git", "-c", "user.name=x", "-c", "user.email=x"]
        before = git(root.path, "rev-parse", "main")

        for words in (["commit", "-qam", "x"], ["commit", "-qam", "x", "--no-verify"]):
            done = subprocess.run([*identity, *words], cwd=root.path, capture_output=True, text=True)
            assert done.returncode != 0 and "mam" in done.stderr
        assert git(root.path, "rev-parse", "main") == before
        commit(tree, "work.txt")
        root.ok("init", "--unguard")
        subprocess.run([*identity, "commit", "-qam", "x"], cwd=root.path, check=True)
        assert "help" in text_of("loops.md") and "no exclusion" in text_of("loops.md")


class TestRemoving:
    @pytest.mark.req("M45", "M46", "M49")
    def test_it_stops_cancels_checks_records_and_removes_in_this_order(self, root: Root) -> None:
        tree = prepare(root)
        name = creator(root, "one", *HANG)
        job = root.delegate(name)
        until(lambda: root.job(job).state == "running")
        sha = commit(tree, "work.txt")
        runner = root.session(name).pid
        with root.registry.transaction() as tx:
            tx.put(replace(tx.session(name), conversation="11111111-1111-4111-8111-111111111111"))

        error = refused(root, "worktree", "remove", "one")
        assert (error["exit"], error["code"]) == (5, "worktree_busy")
        assert name in error["message"] and "--stop" in error["remedy"]
        write(tree / "undone.txt")
        assert refused(root, "worktree", "remove", "one", "--stop")["code"] == "worktree_dirty"
        assert root.session(name).status == "running" and root.job(job).state == "running"
        (tree / "undone.txt").unlink()

        gone = root.ok("worktree", "remove", "one", "--stop")

        assert gone == {"name": "one", "branch": "one", "head": sha, "saved": None, "stopped": [name]}
        assert process_identity.start_time(runner) is None
        assert (root.session(name).status, root.job(job).state) == ("stopped", "cancelled")
        assert not tree.parent.exists() and git(root.path, "rev-parse", "one") == sha
        assert (row(root).state, row(root).head_sha, row(root).path) == ("removed", sha, str(tree))
        assert row(root).detail == f"{name} 11111111-1111-4111-8111-111111111111"
        panes = list((root.path / ".mam" / "run" / "headless").glob("p*"))
        assert panes == [] and leftovers(root) == NOTHING | {"branches": ["main", "one"]}

    @pytest.mark.req("M49")
    def test_after_it_every_verb_says_clearly_what_is(self, root: Root) -> None:
        prepare(root)
        name = creator(root)
        root.ok("worktree", "remove", "one", "--stop")

        shown = root.ok("agent", "list")
        assert [(each["name"], each["status"]) for each in shown] == [(name, "stopped")]
        assert "was removed" in root.session(name).ended_reason
        for words in (
            ["status"],
            ["worktree", "list"],
            ["why", "one"],
            ["why", name],
            ["doctor"],
            ["agent", "show", name],
        ):
            said = root.mam(*words)
            assert said.code == 0 and "Traceback" not in said.err, said.err
        assert refused(root, "worktree", "remove", "one")["code"] == "unknown_worktree"
        until(lambda: monitor_process.look(root.parts.layout))
        with root.registry.view() as view:
            assert view.findings() == []

    def test_a_name_that_would_write_to_the_terminal_is_shown_on_one_line_without_its_signs(self, root: Root) -> None:
        write(prepare(root) / "a\x1b[31m\nb")

        said = root.mam("worktree", "remove", "one")

        assert said.code == 1 and "  a·[31m·b: untracked\n" in said.err

    @pytest.mark.req("M47")
    def test_it_lists_the_paths_that_no_commit_has_and_removes_nothing(self, root: Root) -> None:
        tree = prepare(root)
        git(root.path, "config", "status.showUntrackedFiles", "no")
        write(tree / "README", "changed\n")
        write(tree / "a 한국어 file.txt")
        for number in range(30):
            write(tree / "many" / f"{number}.txt")

        error = refused(root, "worktree", "remove", "one")

        assert (error["exit"], error["code"], error["data"]["count"]) == (1, "worktree_dirty", 32)
        assert "README: changed" in error["message"] and "a 한국어 file.txt: untracked" in error["message"]
        assert "and 12 more" in error["message"] and "mam worktree commit one" in error["remedy"]
        assert (tree / "a 한국어 file.txt").exists() and row(root).state == "ready"
        root.ok("worktree", "commit", "one", "-m", "all of it")
        root.ok("worktree", "remove", "one")

    @pytest.mark.parametrize("kind", ["detached", "own ref"])
    def test_commits_that_only_the_tree_has_are_not_removed_with_it(self, root: Root, kind: str) -> None:
        tree = prepare(root)
        before = git(tree, "rev-parse", "HEAD")
        git(tree, "checkout", "-q", "--detach")
        sha = commit(tree, "idea.txt")
        if kind == "own ref":
            git(tree, "update-ref", "refs/worktree/idea", sha)
            git(tree, "checkout", "-q", "--detach", before)

        error = refused(root, "worktree", "remove", "one")
        assert error["code"] == "worktree_dirty" and f"`git branch NAME {sha[:12]}`" in error["message"]

        git(tree, "branch", "idea", sha[:12])
        assert root.ok("worktree", "remove", "one")["head"] == before
        assert git(root.path, "show", "idea:idea.txt") == "work"

    def test_a_tree_on_another_branch_than_its_own_is_told_right(self, root: Root) -> None:
        tree = prepare(root)
        own = git(root.path, "rev-parse", "one")
        git(tree, "switch", "-qc", "other")
        sha = commit(tree, "work.txt")

        gone = root.ok("worktree", "remove", "one")

        assert (gone["branch"], gone["head"]) == ("one", own)
        assert git(root.path, "rev-parse", "other") == sha == row(root).head_sha

    @pytest.mark.req("M48")
    def test_trees_on_a_disk_that_is_away_survive_whatever_happens_to_others(self, root: Root, tmp_path: Path) -> None:
        away, one = prepare(root, "away"), prepare(root)
        commit(away, "work.txt")
        write(away / "undone.txt")
        away.rename(tmp_path / "unmounted")
        name = creator(root)

        write(one / "dirty.txt")
        refused(root, "worktree", "remove", "one", "--stop")
        (one / "dirty.txt").unlink()
        half_way = root.mam("worktree", "remove", "one", "--stop", env={"MAM_FAULT": "cli@worktree.remove:1:EIO"})
        assert half_way.code != 0 and row(root).state == "ready", half_way.err
        root.ok("worktree", "remove", "one", "--stop")
        prepare(root, "two")
        prepare(root)
        root.ok("worktree", "list")
        refused(root, "worktree", "prepare", "three", "--branch", "away", "--no-venv")
        root.mam("doctor", "--fix")
        assert name

        (tmp_path / "unmounted").rename(away)
        assert git(away, "status", "--porcelain") == "?? undone.txt"
        assert git(away, "branch", "--show-current") == "away"
        assert refused(root, "worktree", "remove", "away")["code"] == "worktree_dirty"

    def test_what_git_ignores_and_nobody_can_make_again_is_kept(self, root: Root, tmp_path: Path) -> None:
        family(tmp_path / "family")
        git(root.path, *FILE, "submodule", "--quiet", "add", str(tmp_path / "family" / "part"), "part")
        commit(root.path, ".gitignore", ".env\n*.local\n/data/\nnode_modules/\n*.pyc\n")
        git(root.path, "commit", "-q", "--amend", "--no-edit")
        tree = prepare(root)
        for name in (".env", "a b.local", "data/deep/notes", "node_modules/x/y", ".venv/bin/python", "a.pyc"):
            write(tree / name)
        write(root.path / ".git" / "modules" / "part" / "info" / "exclude", ".env\n")
        own = Path(git(tree / "part", "rev-parse", "--absolute-git-dir"))
        write(own / "info" / "exclude", ".env\n")
        write(tree / "part" / ".env", "inside\n")

        gone = root.ok("worktree", "remove", "one")

        kept = Path(gone["saved"])
        files = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
        assert files == [".env", "a b.local", "data/deep/notes", "part/.env"]
        assert kept.is_relative_to(root.path / ".mam" / "lost-and-found")

    def test_nobody_begins_in_a_tree_that_is_being_removed_whichever_way_it_comes(self, root: Root) -> None:
        tree = prepare(root)
        name = creator(root)
        root.ok("agent", "stop", name)
        died = root.mam("worktree", "remove", "one", env={"MAM_FAULT": "cli@worktree.removing:1:crash"})
        assert died.code == -9

        for words in (
            ["agent", "create", "second", "--agent", "scripted", "--worktree", "one"],
            ["agent", "create", "second", "--agent", "scripted", "--cwd", str(tree)],
            ["agent", "resume", name],
        ):
            error = refused(root, *words)
            assert error["code"] == "worktree_not_ready" and "removing" in error["message"]
        assert root.session("second") is None and root.session(name).status == "stopped"
        prepare(root)
        assert root.mam("agent", "resume", name).code == 0

    def test_a_tree_that_is_gone_or_that_somebody_replaced(self, root: Root) -> None:
        tree = prepare(root)
        sha = commit(tree, "work.txt")
        subprocess.run(["rm", "-r", str(tree)], check=True)
        write(tree / "mine.txt")
        error = refused(root, "worktree", "remove", "one")
        assert error["code"] == "worktree_busy" and (tree / "mine.txt").exists()
        subprocess.run(["rm", "-r", str(tree)], check=True)

        gone = root.ok("worktree", "remove", "one")

        assert gone["head"] == sha
        assert leftovers(root) == NOTHING | {"branches": ["main", "one"]}


class TestComingBack:
    @pytest.mark.req("M46", "M49", "M50", "M52")
    def test_a_creator_comes_back_with_its_memory_where_its_tree_was_made_again(
        self, root: Root, tmp_path: Path
    ) -> None:
        place = tmp_path / "the place's"
        tree = prepare(root, "one", "--path", str(place), "--branch", "feature/one")
        name = creator(root)
        assert root.mam("job", "wait", root.delegate(name), "--timeout", "60").code == 0
        sha = commit(tree, "work.txt")
        root.ok("worktree", "remove", "one", "--stop")

        error = refused(root, "agent", "resume", name)
        assert (error["exit"], error["code"]) == (2, "place_gone")
        command = re.search(r"`(mam worktree prepare .*?)` makes", error["remedy"])
        assert command is not None
        words = shlex.split(command[1])[1:]
        assert root.mam(*words, "--no-venv").code == 0
        assert root.mam("agent", "resume", name, "--cwd", str(root.path)).code == 2
        assert root.mam("agent", "resume", name, "--cwd", str(place)).code == 0

        assert git(place, "rev-parse", "HEAD") == sha
        assert root.mam("job", "wait", root.delegate(name), "--timeout", "60").code == 0
        memory = json.loads((root.path / ".mam" / "run" / name / "memory.json").read_text())
        assert len(memory) == 2
        assert environ_of(root.session(name).agent_pid)["WORKSPACE_ROOT"] == str(root.path)

    @pytest.mark.req("M52")
    def test_made_again_by_its_name_alone_it_is_where_it_was(self, root: Root, tmp_path: Path) -> None:
        prepare(root, "one", "--path", str(tmp_path / "place"), "--branch", "feature/one")
        sha = commit(tmp_path / "place", "work.txt")
        root.ok("worktree", "remove", "one")
        refused(root, "worktree", "prepare", "one", "--no-venv", "--setup", "false")
        assert (row(root).state, row(root).head_sha) == ("removed", sha), "a failure forgets nothing"

        assert prepare(root) == tmp_path / "place"

        assert git(tmp_path / "place", "rev-parse", "feature/one") == sha
        assert "at the same path" in text_of("loops.md")

    @pytest.mark.req("M53")
    def test_stop_keeps_the_conversation_and_purge_removes_it_with_a_note(self, root: Root) -> None:
        tree = prepare(root)
        name = creator(root)
        assert root.mam("job", "wait", root.delegate(name), "--timeout", "60").code == 0
        run = root.path / ".mam" / "run" / name
        root.ok("agent", "stop", name)
        assert (run / "memory.json").exists()
        root.ok("agent", "resume", name)

        said = root.ok("agent", "stop", name, "--purge")

        assert said["removed_files"] == [str(run / "memory.json")] and not (run / "memory.json").exists()
        assert root.session(name) is None
        assert not (root.path / ".mam" / "secrets" / f"session-{name}.key").exists()
        note = json.loads((run / "purged.json").read_text())
        assert (note["cwd"], note["files"]) == (str(tree), said["removed_files"])
        assert refused(root, "agent", "resume", name)["code"] == "unknown_session"
        assert creator(root) == name  # a fresh one of the same name remembers nothing
        assert not (run / "memory.json").exists()

    @pytest.mark.req("M53")
    def test_remove_purges_those_who_lived_there_and_nobody_else(self, root: Root) -> None:
        prepare(root)
        prepare(root, "two")
        first, second = creator(root), creator(root, "two")
        for name in (first, second):
            assert root.mam("job", "wait", root.delegate(name), "--timeout", "60").code == 0

        root.ok("worktree", "remove", "one", "--purge")

        assert root.session(first) is None and root.session(second).status == "running"
        run = root.path / ".mam" / "run"
        assert not (run / first / "memory.json").exists() and (run / second / "memory.json").exists()


def text_of(name: str) -> str:
    return " ".join((DOCS / name).read_text("utf-8").split())


DOCUMENTED = {
    "M10": [
        "share refs",
        "configuration",
        "`.venv` where somebody linked one",
        "caches",
        "services",
        "credentials",
        "not complete isolation",
        "makes them read-only",
        "supported in parts only",
        "estimates",
    ],
    "M11": ["| A |", "| B |", "| C |", "| D |", "| E |", "C with D", "one loop at a time", "recipe first"],
    "M12": ["not a security boundary", "can read the same keys"],
}


@pytest.mark.req("M10", "M11", "M12")
@pytest.mark.parametrize("line", DOCUMENTED)
def test_the_documents_say_what_worktrees_are_and_are_not(line: str) -> None:
    missing = [words for words in DOCUMENTED[line] if words not in text_of("loops.md")]

    assert missing == []
