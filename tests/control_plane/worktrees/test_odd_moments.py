"""Moments at which worktrees are asked for, and work that lies in them: nothing is lost."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from mam.broker.errors import MamError
from mam.control_plane.worktrees import commit as worktree_commit
from mam.control_plane.worktrees import listing, naming
from mam.control_plane.worktrees import prepare as worktrees
from mam.control_plane.worktrees import remove as worktree_removal
from mam.wrappers.git import command as mam_git
from mam.wrappers.git.command import GitFailed
from tests.support import MAM, Root, git, repository, until
from tests.support.hidden_work import commit, write
from tests.support.worktree_shapes import prepare, shape, state

pytestmark = pytest.mark.hostile


def main_of(root: Root) -> tuple[str, bytes, str, bytes]:
    own = root.path / ".git"
    status = git(root.path, "status", "--porcelain=v2", "--ignored", "-z")
    return status, (own / "index").read_bytes(), (own / "HEAD").read_text(), (own / "config").read_bytes()


class TestMoments:
    def test_locks_that_others_left_in_the_repository(self, root: Root) -> None:
        (root.path / ".git" / "config.lock").touch()
        (root.path / ".git" / "index.lock").touch()
        (root.path / ".git" / "packed-refs.lock").touch()

        tree = prepare(root)
        worktree_removal.remove(root.parts, "one")
        assert not tree.exists()

    def test_a_lock_in_a_tree_is_an_error_with_the_files_name_and_loses_nothing(self, root: Root) -> None:
        tree = prepare(root)
        write(tree / "work.txt")
        lock = Path(git(tree, "rev-parse", "--absolute-git-dir")) / "index.lock"
        lock.touch()

        with pytest.raises(GitFailed, match=r"index\.lock"):
            worktree_commit.commit(root.parts, "one", "work")
        lock.unlink()
        worktree_commit.commit(root.parts, "one", "work")
        lock.touch()
        worktree_removal.remove(root.parts, "one")
        assert git(root.path, "show", "one:work.txt") == "work"

    @pytest.mark.parametrize("does", ["exit 1", "sleep 3600", "git init -q . && git config core.bare true"])
    def test_hooks_that_fail_hang_or_wreck_are_not_run(self, root: Root, does: str) -> None:
        for hook in ("post-checkout", "pre-commit", "commit-msg", "post-commit", "reference-transaction"):
            path = root.path / ".git" / "hooks" / hook
            path.write_text(f"#!/bin/sh\ntouch '{root.path.parent}/ran'\n{does}\n", "utf-8")
            path.chmod(0o755)

        tree = prepare(root)
        write(tree / "work.txt")
        worktree_commit.commit(root.parts, "one", "work")
        worktree_removal.remove(root.parts, "one")

        assert not (root.path.parent / "ran").exists()

    def test_a_checkout_that_takes_too_long_is_undone(self, root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
        commit(root.path, ".gitattributes", "*.bin filter=slow\n")
        commit(root.path, "a.bin")
        git(root.path, "config", "filter.slow.smudge", "sleep 600")
        monkeypatch.setattr(mam_git, "ACT_S", 1.0)
        before = shape(root)

        with pytest.raises(MamError):
            prepare(root)
        monkeypatch.undo()
        assert shape(root) == before and state(root) is None

    def test_a_tree_that_a_person_locked_is_refused_with_the_reason_there_or_away(
        self, root: Root, tmp_path: Path
    ) -> None:
        tree = prepare(root)
        git(root.path, "worktree", "lock", "--reason", "on my disk", str(tree))
        for _ in range(2):
            said = root.mam("worktree", "remove", "one", "--json")
            assert (said.code, said.error["code"]) == (5, "tree_locked")
            assert "on my disk" in said.error["message"] and "git worktree unlock" in said.error["remedy"]
            assert state(root) == "ready"
        tree.rename(tmp_path / "away")
        for verb in ("prepare", "remove"):
            assert root.mam("worktree", verb, "one", "--json").error["code"] == "tree_locked"
        (tmp_path / "away").rename(tree)
        assert git(tree, "status", "--porcelain") == ""

    def test_a_tree_whose_entry_was_pruned_while_its_disk_was_away_keeps_its_files(
        self, root: Root, tmp_path: Path
    ) -> None:
        tree = prepare(root)
        write(tree / "undone.txt")
        tree.rename(tmp_path / "away")
        git(root.path, "worktree", "prune")  # somebody did
        (tmp_path / "away").rename(tree)

        for verb in ("prepare", "remove"):
            said = root.mam("worktree", verb, "one", "--json")
            assert said.code != 0 and str(tree) in said.error["message"], said.out
        assert (tree / "undone.txt").read_text() == "work\n"
        assert git(root.path, "branch", "--list", "one") == "one"

    def test_a_place_where_nothing_can_be_made_is_named_and_nothing_is_left(self, root: Root, tmp_path: Path) -> None:
        write(tmp_path / "file")
        before = shape(root)
        places = ["/proc/self/one", str(tmp_path / "file" / "one"), "/dev/null/one"]
        if os.geteuid() != 0:
            (tmp_path / "closed").mkdir(mode=0o555)
            places.append(str(tmp_path / "closed" / "one"))
        for place in places:
            with pytest.raises(naming.PathTaken) as caught:
                prepare(root, path=Path(place))
            assert "--path" in caught.value.remedy
        assert shape(root) == before and state(root) is None

    def test_a_place_reached_by_a_link_is_one_place(self, root: Root, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        tree = prepare(root, path=tmp_path / "link" / "one")
        assert prepare(root, path=tmp_path / "real" / "one") == tree
        with pytest.raises(naming.PathTaken):
            prepare(root, "two", path=tmp_path / "real" / "one")
        (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
        with pytest.raises(naming.PathTaken):
            prepare(root, "three", path=tmp_path / "dangling")
        write(tree / "undone.txt")
        with pytest.raises(worktree_removal.WorktreeDirty):
            worktree_removal.remove(root.parts, "one")
        (tree / "undone.txt").unlink()
        worktree_removal.remove(root.parts, "one")
        assert (tmp_path / "link").is_symlink() and not list((tmp_path / "real").iterdir())

    def test_a_tree_inside_another_tree_keeps_the_outer_one(self, root: Root) -> None:
        outer = prepare(root)
        inner = prepare(root, "two", path=outer / "inner")

        with pytest.raises(worktree_removal.WorktreeDirty, match="inner"):
            worktree_removal.remove(root.parts, "one")
        worktree_removal.remove(root.parts, "two")
        worktree_removal.remove(root.parts, "one")
        assert not inner.exists() and not outer.exists()

    def test_a_shared_configuration_that_was_set_to_bare_is_an_error_and_no_loss(self, root: Root) -> None:
        tree = prepare(root)
        write(tree / "undone.txt")
        git(root.path, "config", "core.bare", "true")

        said = root.mam("worktree", "remove", "one", "--json")

        assert said.code == 1 and said.error["code"] in ("git_failed", "worktree_dirty")
        assert (tree / "undone.txt").exists()
        git(root.path, "config", "--unset", "core.bare")
        assert git(tree, "status", "--porcelain") == "?? undone.txt"

    def test_variables_that_a_hook_leaves_never_divert_a_verb(self, root: Root, tmp_path: Path) -> None:
        other = repository(tmp_path / "other")
        before = (
            git(other, "for-each-ref"),
            (other / ".git" / "index").read_bytes(),
            (other / ".git" / "config").read_bytes(),
        )
        own = {"GIT_DIR": ".git", "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / ".git" / "index")}
        leaked = {**own, "GIT_DIR": str(other / ".git"), "GIT_PREFIX": "x/", "GIT_COMMON_DIR": str(other / ".git")}

        tree = Path(root.ok("worktree", "prepare", "one", "--no-venv", env=leaked)["path"])
        write(tree / "work.txt")
        sha = root.ok("worktree", "commit", "one", "-m", "work", env=leaked)["commit"]
        assert root.ok("worktree", "remove", "one", env=leaked)["head"] == sha

        after = (
            git(other, "for-each-ref"),
            (other / ".git" / "index").read_bytes(),
            (other / ".git" / "config").read_bytes(),
        )
        assert after == before

    def test_exact_names_only_are_removed(self, root: Root) -> None:
        trees = [prepare(root, name) for name in ("one", "one-2", "on", "one_", "xone")]

        worktree_removal.remove(root.parts, "one")
        with pytest.raises(worktrees.UnknownWorktree):
            worktree_removal.remove(root.parts, "o")
        assert [tree.is_dir() for tree in trees] == [False, True, True, True, True]

    def test_trees_that_mam_did_not_make_are_listed_and_never_removed(self, root: Root, tmp_path: Path) -> None:
        git(root.path, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))

        assert [(each.name, each.state) for each in listing.listing(root.parts)] == [("-", "not ours")]
        with pytest.raises(worktrees.UnknownWorktree):
            worktree_removal.remove(root.parts, "mine")
        with pytest.raises(naming.BranchTaken):
            prepare(root, "mine")


class TestWork:
    def test_a_job_that_is_dispatched_twice_onto_a_changed_tree_keeps_all_its_files(self, root: Root) -> None:
        tree = prepare(root)
        name = root.ok("agent", "create", "--agent", "scripted", "--worktree", "one")["name"]
        write(tree / "README", "changed\n")
        write(tree / "new.txt")
        job = root.delegate(name)
        assert root.mam("job", "wait", job, "--timeout", "60").code == 0
        root.ok("job", "retry", job)
        assert root.mam("job", "wait", job, "--timeout", "60").code == 0
        root.ok("worktree", "prepare", "one", "--no-venv")

        assert (tree / "README").read_text() == "changed\n" and (tree / "new.txt").read_text() == "work\n"

    def test_after_a_whole_loop_the_main_checkout_is_byte_for_byte_the_same(self, root: Root, tmp_path: Path) -> None:
        prepare(root)
        script = [{"started": {}}, {"shell": "echo x > work.txt"}, {"report": {"text": "done"}}]
        (tmp_path / "one.json").write_text(json.dumps(script))
        words = [
            "agent",
            "create",
            "--agent",
            "scripted",
            "--worktree",
            "one",
            "--",
            "--script",
            str(tmp_path / "one.json"),
        ]
        assert root.mam(*words).code == 0
        root.agent("rev", {"started": {}}, {"report": {"text": "fine", "verdict": "pass"}}, role="reviewer")
        (tmp_path / "task.md").write_text("do it")
        before = main_of(root)

        said = root.mam(
            *("loop", "run", "--task", str(tmp_path / "task.md"), "--creator", "creator-scripted-one"),
            *("--reviewers", "rev", "--worktree", "one", "--promote", "branch"),
            timeout_s=120,
        )

        assert said.code == 0, said.err
        assert main_of(root) == before
        assert not list((root.path.parent / "repo.worktrees").glob("*review*/*"))
        assert git(root.path, "show", "one:work.txt") == "x"
        said = root.mam("worktree", "remove", "one", "--stop")
        assert said.code == 0 and "the branch one stays at" in said.out

    def test_an_agent_that_writes_until_it_is_ended_loses_nothing(self, root: Root, tmp_path: Path) -> None:
        """What it wrote after the first look is found by the second one, and the tree is as ready as before."""
        tree = prepare(root)
        late = f"trap 'echo late > {tree}/late.txt; exit' TERM HUP; echo '$ '; while :; do sleep 0.1; done"
        words = ["agent", "create", "w", "--agent", "command", "--worktree", "one", "--no-wait", "--", "sh", "-c", late]
        assert root.mam(*words).code == 0
        until(lambda: root.session("w").status == "running")

        said = root.mam("worktree", "remove", "one", "--stop", "--json")

        assert said.code == 1 and said.error["code"] == "worktree_dirty" and "late.txt" in said.error["message"]
        assert (tree / "late.txt").exists() and state(root) == "ready"
        assert root.session("w").status == "stopped"

    def test_remove_and_create_at_once_leave_a_tree_with_a_writer_or_neither(self, root: Root) -> None:
        root.mam("up")
        environ = {**os.environ, **root.env}
        for number in range(4):
            name = f"t{number}"
            tree = prepare(root, name)
            words = (["worktree", "remove", name], ["agent", "create", "--agent", "scripted", "--worktree", name])
            both = [subprocess.Popen([MAM, *each], cwd=root.path, env=environ, stdout=-3, stderr=-3) for each in words]
            codes = [child.wait(120) for child in both]
            session = root.session(f"creator-scripted-{name}")
            assert codes != [0, 0], "a writer lives in a tree that was removed"
            assert tree.is_dir() == (session is not None) == (codes[1] == 0)

    def test_a_prepare_that_is_interrupted_by_a_person_leaves_nothing(self, root: Root, tmp_path: Path) -> None:
        environ = {**os.environ, **root.env}
        words = [MAM, "worktree", "prepare", "one", "--no-venv", "--setup", f"touch {tmp_path}/began; sleep 600"]
        child = subprocess.Popen(words, cwd=root.path, env=environ, stdout=-3, stderr=-3, start_new_session=True)
        until(lambda: (tmp_path / "began").exists())
        before = git(root.path, "branch", "--list", "one")
        os.killpg(child.pid, signal.SIGINT)

        assert child.wait(30) == 130 and before
        assert git(root.path, "branch", "--list", "one") == "" and state(root) is None
        assert not (root.path.parent / "repo.worktrees").exists()
