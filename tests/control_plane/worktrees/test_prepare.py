"""`mam worktree prepare` from the command line."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import Root, git, repository
from tests.support.hidden_work import FILE, commit, family, write
from tests.support.worktree_verbs import NOTHING, leftovers, prepare, refused, row

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


def states(root: Root) -> list[str]:
    """What worktrees are; the same whoever is asked."""
    found, shown = (
        [each["state"] for each in said] for said in (root.ok("worktree", "list"), root.ok("status")["worktrees"])
    )
    assert found == shown
    return found


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

    def test_what_the_main_checkout_has_not_committed_is_said_to_be_left_behind(self, root: Root) -> None:
        (root.path / "draft.txt").write_text("not committed", "utf-8")
        words = ["worktree", "prepare", "--no-venv"]

        said = root.mam(*words, "one"), root.mam(*words, "two", "--base", "main"), root.mam(*words, "one")

        assert [each.code for each in said] == [0, 0, 0]
        assert ["begins without them: draft.txt" in each.err for each in said] == [True, False, False]

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

    @pytest.mark.req("M40")
    def test_an_environment_that_was_linked_from_elsewhere_is_replaced_by_one_of_the_trees_own(
        self, root: Root, tmp_path: Path
    ) -> None:
        commit(root.path, "pyproject.toml", '[project]\nname = "x"\nversion = "1"\noptional-dependencies.dev = []\n')
        uv = tmp_path / "bin" / "uv"
        write(uv, '#!/bin/sh\necho "$@" >> "$0.log"\n')
        uv.chmod(0o755)
        env = {"PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}"}
        struck = {"MAM_FAULT": "cli@worktree.submodules:1:crash"}
        assert root.mam("worktree", "prepare", "one", env=env | struck).code == -9
        tree = root.path.parent / "repo.worktrees" / "one"
        write(tmp_path / "shared" / "bin" / "python")
        (tree / ".venv").symlink_to(tmp_path / "shared")

        assert root.mam("worktree", "prepare", "one", env=env).code == 0

        assert not (tree / ".venv").is_symlink() and (tmp_path / "shared" / "bin" / "python").exists()
        asked = (tmp_path / "bin" / "uv.log").read_text("utf-8").splitlines()
        assert asked[0] == f"venv --quiet {tree}/.venv"
        assert asked[-1] == f"pip install --quiet --python {tree}/.venv/bin/python -e .[dev]"

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
