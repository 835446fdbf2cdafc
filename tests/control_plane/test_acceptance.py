"""Acceptance A1 to A8: a creator in a sibling worktree, its loop, and a main checkout that is left alone."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.broker.host import process_identity
from tests.support import Root, git, until
from tests.support.binding import BINDING, environ_of
from tests.support.stage import Stage, main_checkout
from tests.test_isolation import REPOSITORY, counts

PASS = [{"report": "pass"}]
WORK = "git -c user.name=w -c user.email=w@localhost commit -q --allow-empty -m"


@pytest.fixture(params=["headless", "tmux"])
def place(request: pytest.FixtureRequest, make_root: Callable[..., Root], needs: Callable[[str], str]) -> Root:
    """A control root whose multiplexer server runs already, started by somebody without any of our variables."""
    if request.param == "tmux":
        needs("tmux")
    root = make_root(mux=request.param)
    root.agent("first")
    return root


def creator(root: Root, *script: dict[str, object]) -> Path:
    """A prepared worktree with a creator in it, named by what it is; the worktree."""
    path = root.path.parent / "creator.json"
    path.write_text(json.dumps(script or [{"started": {}}, {"report": {"text": "done"}}]), "utf-8")
    tree = Path(root.ok("worktree", "prepare", "issue-1", "--no-venv")["path"])
    words = ["agent", "create", "--agent", "scripted", "--worktree", "issue-1", "--json", "--", "--script", str(path)]
    said = root.mam(*words)
    assert said.code == 0, said.err
    return tree


NAME = "creator-scripted-issue-1"


@pytest.mark.req("M67")
def test_a1_a_sibling_worktree_and_its_creator_are_made_while_a_multiplexer_server_already_runs(place: Root) -> None:
    tree = creator(place)

    first, made = place.session("first"), place.session(NAME)
    assert tree.parent == place.path.parent / f"{place.path.name}.worktrees" and made.cwd == str(tree)
    assert (made.mux, made.mux_server) == (first.mux, first.mux_server) and made.pane != first.pane
    assert git(tree, "branch", "--show-current") == "issue-1"
    assert os.readlink(f"/proc/{made.agent_pid}/cwd") == str(tree)
    assert place.mam("job", "wait", place.delegate(NAME)).code == 0


@pytest.mark.req("M68")
def test_a2_the_creators_pane_holds_the_four_bindings_and_they_point_at_main(place: Root) -> None:
    creator(place)

    own = environ_of(place.session(NAME).agent_pid)

    mam = place.path / ".mam"
    assert {name: own[name] for name in BINDING} == {
        "WORKSPACE_ROOT": str(place.path),
        "AGENT_SESSIONS_YAML": str(mam / "agent-sessions.yaml"),
        "MAM_JOBS_DIR": str(mam / "jobs"),
        "DELEGATE_JOB_LOGS_DIR": str(mam / "logs"),
    }


@pytest.mark.req("M69")
def test_a3_brief_started_and_report_of_a_worktree_creator_all_go_to_the_central_registry(root: Root) -> None:
    out = root.path.parent / "out"
    tree = creator(root, {"started": {}}, {"shell": f"pwd > {out}; ls -a >> {out}"}, {"report": {"text": "made it"}})

    job = root.delegate(NAME)

    assert root.mam("job", "wait", job, cwd=tree).code == 0
    row = root.job(job)
    assert row.brief_path == str(root.path / ".mam" / "jobs" / job / "brief.md")
    assert "made it" in Path(row.report_path).read_text() and Path(row.report_path).is_relative_to(root.path / ".mam")
    assert [event["kind"] for event in root.events(f"jobs/{job}")] == ["started", "report"]
    assert out.read_text().splitlines()[0] == str(tree) and ".mam" not in out.read_text().split()
    assert root.session(NAME).name in (root.path / ".mam" / "agent-sessions.yaml").read_text()


@pytest.mark.req("M70")
def test_a4_the_main_checkout_is_byte_for_byte_the_same_after_loops_of_every_kind_and_status_names_what_is_left(
    root: Root,
) -> None:
    stage = Stage(root)
    stage.agent("rev-a")
    stage.agent("rev-b")
    tree = Path(root.ok("worktree", "prepare", "issue-1", "--no-venv")["path"])
    stage.agent("writer", "--worktree", "issue-1", role="creator")
    (root.path / "untracked").write_text("of somebody\n")
    (root.path / "README").write_text("changed by somebody\n")
    hook = root.path / ".git" / "hooks" / "post-commit"
    hook.write_text("#!/bin/sh\nexit 0\n")
    before = {**main_checkout(root.path), "branches": ""}
    work = [{"sh": f"{WORK} x; echo x >> made.txt"}, {"report": "done"}]

    def same() -> bool:
        return {**main_checkout(root.path), "branches": ""} == before

    passed = stage.plan(writer=[work])
    two = ("rev-a", "rev-b")
    assert stage.run(tree, passed, "--creator", "writer", "--promote", "branch", reviewers=two).code == 0
    assert same()
    refused = stage.plan(writer=[work], rev_a=[[{"report": "not_pass"}]])
    assert stage.run(tree, refused, "--creator", "writer", "--rounds", "1", "--base", "HEAD", reviewers=two).code == 3
    assert same()
    failed = stage.plan(writer=[[{"report": "failed"}]])
    assert stage.run(tree, failed, "--creator", "writer").code == 3
    assert same()
    gated = [[{"gate": "gate"}, *PASS]]
    cancelled, killed = stage.plan(rev_a=gated), stage.plan(rev_a=gated)
    for loop in (cancelled, killed):
        child = stage.start(tree, loop, reviewers=two)
        stage.reached(loop, "gate", "rev-a")
        if loop == killed:
            child.kill()
            child.wait()
            status = root.mam("status").out
            assert killed in status and "interrupted" in status and same()
        assert root.mam("loop", "cancel", loop, timeout_s=120).code == 0
        stage.go(loop, "gate")
        assert same()
        until(lambda: all(root.session(name).screen == "ready" for name in two))

    assert stage.benches() == []
    left = {path.name for path in root.parts.layout.worktrees.iterdir()}
    assert left == {"issue-1"} and "issue-1" in root.mam("status").out
    status = root.ok("status")
    assert status["open_jobs"] == []
    pinned = {ref.split("/")[3] for ref in git(root.path, "for-each-ref", "--format=%(refname)", "refs/mam").split()}
    assert pinned and pinned <= {loop["id"] for loop in status["loops"]}
    for loop in pinned:
        root.ok("loop", "archive", loop)
    assert git(root.path, "for-each-ref", "refs/mam") == "" and same()


@pytest.mark.req("M71")
def test_a5_what_is_reviewed_is_one_fixed_commit_while_the_creator_keeps_committing(root: Root) -> None:
    stage = Stage(root)
    stage.agent("rev-a")
    tree = Path(root.ok("worktree", "prepare", "issue-1", "--no-venv")["path"])
    stage.agent("writer", "--worktree", "issue-1", role="creator")
    more = {"sh": f"for n in 1 2 3 4 5; do {WORK} more-$n; echo $n > counted; done"}
    look = {"sh": "git rev-parse HEAD; cat counted"}
    # Its report is given, and it goes on committing all the same, while the reviewer looks.
    first = {"sh": f"echo 0 > counted; git add counted; {WORK} first"}
    loop = stage.plan(
        writer=[[first, {"report": "done"}, {"gate": "review"}, more, {"gate": "end"}]],
        rev_a=[[look, {"gate": "look"}, look, *PASS], [look, *PASS]],
    )
    child = stage.start(tree, loop, "--creator", "writer", "--base", "HEAD")
    stage.reached(loop, "look", "rev-a")
    stage.go(loop, "review")
    stage.reached(loop, "end", "writer")
    stage.go(loop, "look")
    out, err = child.communicate(timeout=120)
    stage.go(loop, "end")

    assert child.returncode == 0, err
    rounds = json.loads(out)["rounds"]
    lines = stage.out(loop, "rev-a").splitlines()
    assert [each["stale"] for each in rounds] == [True, False]
    assert lines == [rounds[0]["head"], "0", rounds[0]["head"], "0", rounds[1]["head"], "5"]
    assert rounds[1]["tip"] == git(tree, "rev-parse", "HEAD") != rounds[1]["head"]


@pytest.mark.req("M72")
def test_a6_a_creator_that_died_keeps_its_row_and_is_resumed_at_its_own_place_and_nowhere_else(place: Root) -> None:
    tree = creator(place)
    assert place.mam("job", "wait", place.delegate(NAME)).code == 0
    before = place.session(NAME)
    for pid in (before.pid, before.agent_pid):
        os.kill(pid, 9)
    until(lambda: place.session(NAME).status == "ended", what="the row is recovered")
    assert place.session(NAME).cwd == str(tree)

    elsewhere = place.mam("agent", "resume", NAME, "--cwd", str(place.path), "--json")
    here = place.mam("agent", "resume", NAME, "--cwd", str(tree), "--json", cwd=tree)

    assert (elsewhere.code, elsewhere.error["code"]) == (2, "other_place")
    assert str(tree) in elsewhere.error["remedy"]
    assert here.code == 0, here.err
    after = until(lambda: (s := place.session(NAME)).screen == "ready" and s)
    assert (after.cwd, after.binding, after.generation) == (before.cwd, before.binding, before.generation + 1)
    assert os.readlink(f"/proc/{after.agent_pid}/cwd") == str(tree)
    assert environ_of(after.agent_pid)["WORKSPACE_ROOT"] == str(place.path)
    assert "going on, 1 prompts remembered" in place.mam("agent", "show", NAME).out
    assert process_identity.alive(process_identity.ProcessId(after.agent_pid, after.agent_start, after.boot_id))
    assert place.mam("job", "wait", place.delegate(NAME)).code == 0


@pytest.mark.req("M73")
def test_a7_a_suite_that_runs_in_a_creators_pane_adds_nothing_to_the_registry(root: Root) -> None:
    root.ok("worktree", "prepare", "issue-1", "--no-venv")
    out = root.path.parent / "pane.out"
    suite = f"{sys.executable} -m pytest -q -p no:cacheprovider tests/control_plane/sessions/test_roles.py"
    command = f"cd {REPOSITORY} && {suite} > {out} 2>&1; echo rc $? >> {out}"
    words = ["agent", "create", "suite", "--agent", "command", "--worktree", "issue-1", "--no-wait", "--"]
    assert root.mam(*words, "sh", "-c", command).code == 0
    before, entries = counts(root), set((root.path / ".mam" / "jobs").iterdir())
    assert environ_of(until(lambda: root.session("suite").agent_pid))["WORKSPACE_ROOT"] == str(root.path)

    until(lambda: out.exists() and "rc " in out.read_text("utf-8"), within_s=120, what="the suite ended")

    assert "rc 0" in out.read_text("utf-8"), out.read_text("utf-8")[-3000:]
    assert counts(root)[:2] == before[:2] == (1, 0)
    assert set((root.path / ".mam" / "jobs").iterdir()) == entries


@pytest.mark.req("M74")
def test_a8_a_second_loop_of_one_worktree_is_refused_until_the_first_one_has_ended(root: Root) -> None:
    stage = Stage(root)
    stage.agent("rev-a")
    stage.agent("rev-b")
    tree = stage.changed()
    first, second = stage.plan(rev_a=[[{"gate": "gate"}, *PASS]]), stage.plan()
    child = stage.start(tree, first)
    stage.reached(first, "gate", "rev-a")

    refused = stage.run(tree, second, reviewers=("rev-b",))
    stage.go(first, "gate")

    assert refused.code == 1 and first in refused.error["message"] and stage.prompts(second, "rev-b") == []
    assert child.wait(120) == 0
    assert stage.run(tree, second, reviewers=("rev-b",)).code == 0
