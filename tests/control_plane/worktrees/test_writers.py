"""One writer a worktree, and the pane that it works in."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.control_plane.control_root import monitor_process
from tests.support import MAM, Root, git
from tests.support.binding import BINDING, environ_of
from tests.support.hidden_work import write
from tests.support.worktree_verbs import creator, prepare, refused


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
        self, make_root: Callable[..., Root], needs: Callable[[str], str], tmp_path: Path, mux: str
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
