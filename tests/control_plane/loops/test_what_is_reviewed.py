"""What is reviewed, and where: one exact commit in a tree of the reviewer's own; anything else does not count."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import git, until
from tests.support.stage import REVIEWERS, Stage, main_checkout

PASS = [{"report": "pass"}]
OURS = "git -c user.name=r -c user.email=r@localhost"


def content(tree: Path) -> dict[str, str]:
    """Every file of a tree with its hash, its index and HEAD included."""
    own = Path(git(tree, "rev-parse", "--absolute-git-dir"))
    files = [path for path in tree.rglob("*") if path.is_file()] + [own / "index", own / "HEAD"]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# -- what is under review ---------------------------------------------------------------------


@pytest.mark.req("M55")
def test_uncommitted_and_untracked_work_is_reviewed_as_a_snapshot_that_is_named_as_one(stage: Stage) -> None:
    tree = stage.changed()
    tip = git(tree, "rev-parse", "HEAD")
    (tree / "README").write_text("changed\n")
    (tree / "untracked").write_text("new\n")
    before = content(tree)
    loop = stage.plan(rev_a=[[{"sh": "cat README untracked"}, *PASS]])

    said = stage.run(tree, loop)

    assert said.code == 0, said.err
    assert stage.out(loop, "rev-a") == "changed\nnew\n" and content(tree) == before
    first = said.json["rounds"][0]
    assert (first["captured"], first["tip"]) == (True, tip) and first["head"] != tip
    identity = json.loads((stage.folder(loop) / "round-1" / "identity.json").read_text())
    assert (identity["snapshot"], identity["branch_tip"], identity["head_sha"]) == (True, tip, first["head"])
    assert "+++ b/untracked" in (stage.folder(loop) / "round-1" / "changes.diff").read_text()
    assert "snapshot" in stage.root.mam("loop", "show", loop).out


@pytest.mark.req("M55")
def test_a_repository_inside_the_worktree_stops_the_loop_until_it_is_moved_out(stage: Stage) -> None:
    tree, loop = stage.changed(), stage.plan()
    git(tree, "init", "-q", "inner")
    git(tree / "inner", "commit", "-q", "--allow-empty", "-m", "x")

    said = stage.run(tree, loop)

    assert (said.code, said.json["state"]) == (1, "stuck")
    why = stage.root.ok("why", loop)
    assert "inner is a repository of its own" in why["because"] and "move it out" in why["because"]
    assert why["next"] == f"mam loop resume {loop}"
    assert stage.prompts(loop, "rev-a") == [] and stage.benches() == []

    (tree / "inner").rename(tree.with_name(f"inner-{loop}"))
    assert stage.resume(loop).code == 0


@pytest.mark.req("M56")
@pytest.mark.parametrize("move", ["commit", "edit", "amend"])
def test_what_moves_during_a_review_supersedes_its_verdicts_and_is_reviewed_anew(stage: Stage, move: str) -> None:
    tree = stage.changed()
    loop = stage.plan(rev_a=[[{"gate": "gate"}, *PASS], [{"sh": "git rev-parse HEAD"}, *PASS]])
    child = stage.start(tree, loop, "--promote", "branch", reviewers=REVIEWERS)
    stage.reached(loop, "gate", "rev-a")

    if move == "commit":
        stage.change(tree, "second.txt")
    elif move == "amend":
        git(tree, "commit", "-q", "--amend", "-m", "other words")
    else:
        (tree / "second.txt").write_text("x\n")
    stage.go(loop, "gate")
    out, err = child.communicate(timeout=120)

    assert child.returncode == 0, err
    first, second = json.loads(out)["rounds"]
    assert (first["stale"], second["stale"]) == (True, False) and first["head"] != second["head"]
    assert [review["verdict"] for review in first["reviews"] + second["reviews"]] == ["pass"] * 6
    assert stage.out(loop, "rev-a") == f"{second['head']}\n"
    assert (stage.folder(loop) / "round-1" / "SUPERSEDED").exists()
    assert not (stage.folder(loop) / "round-2" / "SUPERSEDED").exists()
    assert git(tree, "rev-parse", "HEAD") == second["head"]
    assert "superseded" in stage.root.mam("loop", "show", loop).out


@pytest.mark.req("M57")
@pytest.mark.parametrize("move", ["commit", "edit", "switch"])
def test_what_moves_between_the_last_verdict_and_the_promotion_blocks_it(stage: Stage, move: str) -> None:
    tree, loop = stage.changed(), stage.plan()
    main = git(stage.root.path, "rev-parse", "main")
    # Saved are: begun, captured, reviewed; the process dies when it knows the last verdict.
    child = stage.start(tree, loop, "--promote", "merge", fault="loop.saved:3:crash")
    assert child.wait(120) == -9 and stage.row(loop).state == "promoting"

    if move == "commit":
        stage.change(tree, "second.txt")
    elif move == "switch":
        git(tree, "switch", "-q", "-c", f"other-{loop}")
    else:
        (tree / f"{tree.name}.txt").write_text("y\n")
    said = stage.resume(loop)

    assert said.json["rounds"][0]["stale"] is True
    if move == "switch":
        assert (said.code, said.json["state"]) == (1, "stuck")
        assert f"git -C {tree} switch {tree.name}" in said.json["detail"]
        assert git(stage.root.path, "rev-parse", "main") == main
    else:
        assert said.code in (0, 1) and len(stage.prompts(loop, "rev-a")) == 2
        assert git(stage.root.path, "rev-parse", "main") != said.json["rounds"][0]["head"]


# -- where it is reviewed -----------------------------------------------------------------------


@pytest.mark.req("M58", "M62", "M71")
def test_a_creator_that_keeps_committing_changes_nothing_that_a_reviewer_reads_or_tries(stage: Stage) -> None:
    tree = stage.changed()
    look = {"sh": "git rev-parse HEAD; git status --porcelain; git branch --show-current; ls; cat tree-*.txt; pwd"}
    loop = stage.plan(rev_a=[[look, {"gate": "gate"}, look, *PASS], PASS])
    head = git(tree, "rev-parse", "HEAD")
    child = stage.start(tree, loop)
    stage.reached(loop, "gate", "rev-a")
    (bench,) = [Path(each.removeprefix("worktree ")) for each in stage.benches() if each.startswith("worktree ")]

    for number in range(3):
        stage.change(tree, f"{tree.name}.txt", f"version {number}\n")
        (tree / f"file-{number}").write_text("untracked\n")
    assert git(bench, "rev-parse", "HEAD") == head
    stage.go(loop, "gate")
    child.communicate(timeout=120)

    lines = stage.out(loop, "rev-a").splitlines()
    half = lines[: len(lines) // 2]
    assert half == lines[len(lines) // 2 :] and half[0] == head and half[-1] == str(bench)
    assert "new" in half and not any(line.startswith(("file-", "version")) for line in half)
    assert stage.row(loop).outcome == "passed" and len(stage.state(loop).rounds) == 2
    assert stage.benches() == []


@pytest.mark.req("M61", "M64")
def test_a_suite_that_a_review_runs_leaves_the_creators_tree_the_central_registry_and_the_others_alone(
    stage: Stage,
) -> None:
    tree = stage.tree()
    test = "from pathlib import Path\n\n\ndef test_it(tmp_path):\n"
    test += '    Path(".mam/jobs").mkdir(parents=True)\n    Path(".mam/jobs/stray").write_text("x")\n'
    test += '    Path(".venv").mkdir()\n    import thing\n    assert thing.VALUE == 3\n'
    (tree / "thing.py").write_text("VALUE = 3\n")
    stage.change(tree, "test_it.py", test)
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "more")
    before, central = content(tree), sorted((stage.root.path / ".mam" / "jobs").iterdir())
    # The line that the brief gives, as an agent would copy it.
    find = "awk '/nothing into the tree:/ {on=1; next} on && NF {print; exit}' \"$MAM_JOBS_DIR\"/%s/brief.md"
    loop = stage.plan()
    turns = {}
    for name in ("rev-a", "rev-b"):
        command = f'sh -c "$({find % f"{loop}-r1-{name}"})"'
        turns[name] = [[{"sh": f"{command}; echo rc $?; ls -d .mam; find .. -name pytest"}, *PASS]]
    (stage.plans / f"{loop}.json").write_text(json.dumps(turns))

    said = stage.run(tree, loop, reviewers=("rev-a", "rev-b"))

    for name in ("rev-a", "rev-b"):
        out = stage.out(loop, name)
        assert "1 passed" in out and "rc 0" in out and ".mam" in out and "../tmp/pytest" in out, out
    assert said.code == 0, said.err
    assert content(tree) == before
    new = {path.name for path in (stage.root.path / ".mam" / "jobs").iterdir()} - {path.name for path in central}
    assert new == {f"{loop}-r1-rev-a", f"{loop}-r1-rev-b"}
    assert stage.benches() == []


@pytest.mark.req("M63")
def test_the_interpreter_of_a_review_is_the_writers_own_where_it_has_one(stage: Stage) -> None:
    tree = stage.changed()
    own = tree / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    (stage.root.path / ".git" / "info" / "exclude").open("a").write("/.venv\n")
    loops = stage.plan(), stage.plan()

    stage.run(tree, loops[0], "--test", "make check && make more")
    stage.run(stage.changed(), loops[1])

    briefs = [Path(stage.job(loop, 1, "rev-a").brief_path).read_text() for loop in loops]
    assert f"AGENT_PYTHON_BIN={own} " in briefs[0] and "sh -c 'make check && make more'" in briefs[0]
    assert f"AGENT_PYTHON_BIN={Path(sys.executable).parent}/python3" in briefs[1]


SPOILED = {
    "an edited file": "echo edited >> README",
    "a new file": "echo x > left-over",
    "a removed file": "rm README",
    "a changed mode": "chmod +x README",
    "a commit": f"echo x > more && git add more && {OURS} commit -qm mine",
    "an empty commit": f"{OURS} commit -q --allow-empty -m mine",
    "a moved head": "git checkout -q --detach HEAD~1",
    "a branch": "git switch -q -c mine-$$ && echo x > README",
    "an edit that its index hides": "git update-index --assume-unchanged README && echo x >> README",
    "an edit that its index skips": "git update-index --skip-worktree README && echo x >> README",
    "an edit that is staged": "echo x >> README && git add README",
    "no tree any more": "cd .. && rm -rf tree",
}


@pytest.mark.req("M58", "M65")
@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_a_verdict_about_a_tree_that_its_reviewer_changed_does_not_count_and_the_next_one_has_a_fresh_tree(
    stage: Stage, spoil: str
) -> None:
    clean = {"sh": "git status --porcelain; git rev-parse HEAD"}
    loop = stage.plan(rev_a=[[{"sh": spoil}, *PASS], [clean, *PASS]])

    said = stage.run(stage.changed(), loop)

    assert said.code == 0, said.err
    head = said.json["head_sha"]
    assert stage.out(loop, "rev-a").splitlines()[-1] == head
    review = said.json["rounds"][0]["reviews"][0]
    assert (review["attempt"], review["verdict"]) == (2, "pass")
    assert stage.prompts(loop, "rev-a") == [f"[MAM job {loop}-r1-rev-a, attempt {n}]" for n in (1, 2)]
    timeline = (stage.folder(loop) / "timeline.md").read_text()
    assert "no verdict that counts: its tree" in timeline or "no verdict that counts: it reviewed" in timeline


@pytest.mark.req("M65")
def test_a_reviewer_that_spoils_its_tree_twice_stops_the_loop_and_is_asked_again_by_resume(stage: Stage) -> None:
    spoiled = [{"sh": "echo x > left-over"}, *PASS]
    loop = stage.plan(rev_a=[spoiled, spoiled, PASS])

    stuck = stage.run(stage.changed(), loop, reviewers=REVIEWERS)

    assert (stuck.code, stuck.json["state"]) == (1, "stuck")
    assert stuck.json["detail"] == "no verdict from rev-a: its tree was changed: left-over: untracked"
    assert "left-over" in stage.root.ok("why", loop)["because"] and stage.benches() == []

    done = stage.resume(loop)

    assert done.code == 0, done.err
    assert [len(stage.prompts(loop, name)) for name in REVIEWERS] == [3, 1, 1]


@pytest.mark.req("M54")
def test_a_report_that_names_another_commit_does_not_count(stage: Stage) -> None:
    tree = stage.changed()
    other = git(stage.root.path, "rev-parse", "HEAD")
    loop = stage.plan(rev_a=[[{"report": "pass", "words": f"--head-sha {other}"}], PASS])

    said = stage.run(tree, loop)

    assert said.code == 0 and said.json["rounds"][0]["reviews"][0]["attempt"] == 2
    assert f"it reviewed {other}, not {said.json['head_sha']}" in (stage.folder(loop) / "timeline.md").read_text()


# -- the other ways -------------------------------------------------------------------------------


@pytest.mark.req("M58", "M59")
def test_in_place_reviews_look_at_the_writers_tree_uncommitted_work_included(stage: Stage) -> None:
    tree = stage.changed()
    (tree / "untracked").write_text("u\n")
    before = content(tree)
    loop = stage.plan(rev_a=[[{"sh": "pwd; cat untracked"}, *PASS]])

    said = stage.run(tree, loop, "--review-isolation", "in-place", "--promote", "branch", reviewers=("rev-a", "rev-b"))

    assert said.code == 0, said.err
    assert stage.out(loop, "rev-a") == f"{tree}\nu\n"
    brief = Path(stage.job(loop, 1, "rev-a").brief_path).read_text()
    assert f"cd {tree} && env" in brief and "PYTHONDONTWRITEBYTECODE=1" in brief and "no:cacheprovider" in brief
    after = content(tree)
    assert {name: after[name] for name in before if "/.git/" not in name} == {
        name: text for name, text in before.items() if "/.git/" not in name
    }
    assert git(tree, "rev-parse", "HEAD") == said.json["head_sha"] and stage.benches() == []


@pytest.mark.req("M59")
def test_a_verdict_in_place_does_not_count_when_the_tree_changed_meanwhile(stage: Stage) -> None:
    tree = stage.changed()
    loop = stage.plan(rev_a=[[{"sh": "echo x > left-over"}, *PASS], [{"sh": "rm left-over"}, *PASS]])

    said = stage.run(tree, loop, "--review-isolation", "in-place")

    assert said.code == 0 and said.json["rounds"][0]["reviews"][0]["attempt"] == 2
    assert "the worktree changed during the review" in (stage.folder(loop) / "timeline.md").read_text()


@pytest.mark.req("M59")
@pytest.mark.parametrize("work", ["committed", "uncommitted"])
def test_a_review_in_place_that_is_stuck_names_what_changed_and_goes_on_when_that_is_undone(
    stage: Stage, work: str
) -> None:
    tree = stage.changed()
    if work == "uncommitted":
        (tree / "draft.txt").write_text("draft\n")
    loop = stage.plan(rev_a=[[{"sh": "echo x > left-over"}, *PASS], [*PASS]])

    said = stage.run(tree, loop, "--review-isolation", "in-place")

    assert (said.code, said.json["state"]) == (1, "stuck")
    assert "during the review (left-over" in json.dumps(stage.root.ok("why", loop))
    (tree / "left-over").unlink()
    assert stage.resume(loop).code == 0


@pytest.mark.req("M60")
def test_a_remote_review_fetches_the_commit_names_it_and_leaves_nothing_on_the_remote(
    stage: Stage, tmp_path: Path
) -> None:
    remote = tmp_path / "it's a remote.git"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    tree = stage.changed()
    (tree / "untracked").write_text("u\n")
    place, loop = tmp_path / "elsewhere", stage.plan()
    brief = f'"$MAM_JOBS_DIR"/{loop}-r1-rev-a/brief.md'
    fetch = f'sh -c "$(grep "git fetch" {brief})" && eval "$(grep "git worktree add" {brief})"'
    turn = [{"sh": f"git init -q {place} && cd {place} && {fetch}; cat review-*/untracked"}, *PASS]
    wrong = [{"report": "pass", "words": f"--head-sha {'0' * 40}"}]
    (stage.plans / f"{loop}.json").write_text(json.dumps({"rev-a": [turn], "rev-b": [wrong, PASS]}))

    said = stage.run(tree, loop, "--remote-review", str(remote), reviewers=("rev-a", "rev-b"))

    assert said.code == 0, said.err
    assert "\nu\n" in stage.out(loop, "rev-a")
    job = stage.job(loop, 1, "rev-a")
    assert job.seen_sha == job.head_sha == said.json["head_sha"]
    assert [r["attempt"] for r in said.json["rounds"][0]["reviews"]] == [1, 2]  # another commit does not count
    assert git(remote, "for-each-ref") == "" and stage.benches() == []


@pytest.mark.req("M60")
def test_a_remote_reviewer_that_does_not_name_its_commit_is_told_to(stage: Stage, tmp_path: Path) -> None:
    remote = tmp_path / "r.git"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    loop = stage.plan()
    report = '"$MAM_JOBS_DIR"/LOOP-r1-rev-a/rev-a-reports/report-final.md'
    command = f"printf 'x\\n[VERDICT: PASS]\\n' > {report} && mam job report --registry-dir \"$MAM_JOBS_DIR\" "
    command += "--job LOOP-r1-rev-a --attempt 1 --result done --verdict pass"
    turn = [{"sh": f"PATH={Path(sys.executable).parent}:$PATH; {command}; echo rc $?".replace("LOOP", loop)}, *PASS]
    (stage.plans / f"{loop}.json").write_text(json.dumps({"rev-a": [turn]}))

    said = stage.run(stage.changed(), loop, "--remote-review", str(remote))

    assert said.code == 0, said.err
    out = stage.out(loop, "rev-a")
    assert f"--head-sha {said.json['head_sha']}" in out and "rc 2" in out


@pytest.mark.req("M61")
def test_reviewers_of_one_round_have_trees_and_outputs_of_their_own(stage: Stage) -> None:
    write = {"sh": 'pwd; echo mine > "../out/$MAM_SESSION"; ls ../out'}
    loop = stage.plan(**{name: [[write, {"gate": "gate"}, *PASS]] for name in ("rev_a", "rev_b")})
    child = stage.start(stage.changed(), loop, reviewers=("rev-a", "rev-b"))
    stage.reached(loop, "gate", "rev-a", "rev-b")
    stage.go(loop, "gate")
    child.communicate(timeout=120)

    outs = [stage.out(loop, name).splitlines() for name in ("rev-a", "rev-b")]
    assert outs[0][0] != outs[1][0]
    assert [out[1:] for out in outs] == [["rev-a"], ["rev-b"]]


@pytest.mark.req("M58")
def test_a_hook_a_filter_and_a_monitor_of_the_repository_do_not_run_for_a_review(stage: Stage, tmp_path: Path) -> None:
    tree, evil = stage.changed(), tmp_path / "evil"
    hook = stage.root.path / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {evil}\nexit 1\n")
    hook.chmod(0o755)
    for name, value in (("core.fsmonitor", f"touch {evil}"), ("diff.external", f"touch {evil}")):
        git(stage.root.path, "config", name, value)
    for name, value in (("color.ui", "always"), ("diff.noprefix", "true"), ("diff.ignoreSubmodules", "all")):
        git(stage.root.path, "config", name, value)
    try:
        loop = stage.plan()
        said = stage.run(tree, loop)
    finally:
        hook.unlink()
        for name in ("core.fsmonitor", "diff.external", "color.ui", "diff.noprefix", "diff.ignoreSubmodules"):
            git(stage.root.path, "config", "--unset", name)

    assert said.code == 0, said.err
    assert not evil.exists()
    diff = (stage.folder(loop) / "round-1" / "changes.diff").read_text()
    assert f"+++ b/{tree.name}.txt" in diff and "\x1b" not in diff


@pytest.mark.req("M58")
def test_review_trees_with_what_cannot_simply_be_removed_are_removed_all_the_same(stage: Stage) -> None:
    stubborn = "mkdir -p ../out/x/y && touch ../out/x/y/z && chmod a-w ../out/x/y ../out/x; ln -s / ../out/root"
    loop = stage.plan(rev_a=[[{"sh": stubborn}, *PASS]])

    assert stage.run(stage.changed(), loop).code == 0
    until(lambda: stage.benches() == [])
    assert os.path.exists("/bin")


@pytest.mark.req("M70")
def test_main_is_left_as_it_was_by_a_loop_that_is_refused(stage: Stage) -> None:
    tree = stage.changed()
    (stage.root.path / "untracked-of-main").write_text("x")
    before = main_checkout(stage.root.path)
    loop = stage.plan(rev_a=[[{"report": "not_pass"}]])

    assert stage.run(tree, loop, reviewers=REVIEWERS).code == 3

    assert main_checkout(stage.root.path) == before
    (stage.root.path / "untracked-of-main").unlink()
    assert subprocess.run(["git", "fsck", "--no-dangling"], cwd=stage.root.path, capture_output=True).returncode == 0
