"""`mam worktree remove`: no work is lost, and what is gone comes back."""

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from tests.support import Root, git, until
from tests.support.binding import environ_of
from tests.support.hidden_work import FILE, commit, family, write
from tests.support.worktree_verbs import NOTHING, creator, leftovers, prepare, refused, row, text_of

HANG: tuple[dict[str, Any], ...] = ({"started": {}}, {"hang": {}})


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
            row_of_agent = tx.session(name)
            assert row_of_agent is not None
            tx.put(replace(row_of_agent, conversation="11111111-1111-4111-8111-111111111111"))

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
