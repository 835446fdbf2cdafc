"""Reviews against whoever and whatever would have an unreviewed change pass, or take somebody else's work along."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.jobs import reports
from mam.control_plane.loops import review_trees
from mam.control_plane.loops import state as loop_state
from mam.control_plane.loops.state import LoopState
from mam.control_plane.registry.records import Loop
from mam.wrappers.git import snapshot
from tests.support import Root, git, repository, until
from tests.support.stage import REVIEWERS, Stage, main_checkout

pytestmark = pytest.mark.hostile

PASS = [{"report": "pass"}]
GATE = {"gate": "gate"}
OURS = "git -c user.name=r -c user.email=r@localhost"
MARK = reports.LINES["pass"]


# -- the tree that is looked at -----------------------------------------------------------------


class Bench:
    """One reviewer's bench, without agents."""

    def __init__(self, root: Root) -> None:
        self.root, self.mam = root, root.parts
        self.creator = root.path.parent / "creator"
        git(root.path, "worktree", "add", "-q", "-b", "work", str(self.creator))
        (self.creator / "code.py").write_text("right = 1\n")
        git(self.creator, "add", ".")
        git(self.creator, "commit", "-qm", "work")
        state = LoopState(("rev-a",), None, 1)
        fixed: dict[str, Any] = {
            "isolation": "worktree",
            "promote": "none",
            "remote": None,
            "test_command": None,
            "title": "t",
        }
        self.loop = Loop(
            "loop-1", "reviewing", 1, str(self.creator), "work", "a" * 40, None, '["rev-a"]', **fixed,
            folder=str(root.path), checkpoint=json.dumps(loop_state.to_json(state)), created_at=1, updated_at=1,
        )  # fmt: skip

    def open(self) -> Path:
        self.snap = snapshot.capture(self.creator, "s")
        return review_trees.open_review_tree(self.mam, self.loop, 1, "rev-a", 1, self.snap).tree

    def check(self) -> str:
        return review_trees.check(self.mam, self.loop, 1, "rev-a", self.snap)

    def close(self) -> None:
        review_trees.close(self.mam, "loop-1", 1, "rev-a")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    repository(tmp_path / "repo")
    return Bench(Root(tmp_path / "repo", mux="headless"))


EDIT = "printf 'wrong = 1\\n' > code.py"  # of the same length
SAME_TIME = f"touch -r code.py ../kept && {EDIT} && touch -r ../kept code.py"
SPOILED = {
    "edited": EDIT,
    "edited, its time put back": SAME_TIME,
    "edited, ctime not trusted": f"git config core.trustctime false && {SAME_TIME}",
    "edited, stat checked minimally": f"git config core.checkStat minimal && {SAME_TIME}",
    "edited, stat ignored": f"git config core.ignoreStat true && git add . && {EDIT}",
    "edited, assumed unchanged": f"git update-index --assume-unchanged code.py && {EDIT}",
    "edited, skipped": f"git update-index --skip-worktree code.py && {EDIT}",
    "edited, in a sparse checkout": f"git sparse-checkout set --no-cone '/code.py' && {EDIT}",
    "left out by a sparse checkout": "git sparse-checkout set --no-cone '/other/'",
    "edited and committed elsewhere": f"{EDIT} && {OURS} commit -qam x && git reset -q --soft HEAD~",
    "edited and stashed, then again": f"{EDIT} && {OURS} stash -q && {OURS} stash pop -q",
    "removed": "rm code.py",
    "a link in its place": "rm code.py && ln -s /etc/hostname code.py",
    "a folder in its place": "rm code.py && mkdir code.py",
    "made executable, modes not checked": "git config core.fileMode false && chmod +x code.py",
    "a new file": "echo x > conftest.py",
    "a new file, not shown by settings": "git config status.showUntrackedFiles no && echo x > conftest.py",
    "a file monitor that says nothing": f"git config core.fsmonitor true && {EDIT}",
    "an untracked cache": f"git update-index --untracked-cache && git status && {EDIT}",
    "a commit": f"{EDIT} && {OURS} commit -qam x",
    "an empty commit": f"{OURS} commit -q --allow-empty -m x",
    "another commit": "git checkout -q HEAD~",
    "another branch": "git switch -q -c mine && echo x >> code.py",
    "another work tree by settings": f"git config core.worktree {'/tmp'}; {EDIT}",
    "gone": "cd .. && rm -r tree",
    "without git": "rm .git",
    "of another repository": f"rm .git && git init -q && git add . && {OURS} commit -qm x",
    "a copy of the right one, edited": f"cp -r . ../copy && {EDIT}",
    "a link to the writer's tree": 'w=$PWD && cd .. && rm -r tree && ln -s "$WRITER" tree',
}
HARMLESS = {
    "looked at": "git status; git diff HEAD~; git log; git show",
    "tried": "mkdir __pycache__ .mam && touch __pycache__/x.pyc .mam/x",
    "touched": "touch code.py",
    "copied": "cp -r . ../out/copy; echo x > ../out/copy/code.py",
    "index refreshed": "git update-index --refresh; git add .",
    "edited and put back": f"{EDIT} && git checkout -q -- code.py",
    "the index changed": "git read-tree HEAD~",
    "branched": "git branch -q other-$$",
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_a_tree_that_is_not_the_commit_is_seen_however_that_is_hidden(bench: Bench, spoil: str) -> None:
    git(bench.root.path, "config", "extensions.worktreeConfig", "true")
    tree = bench.open()
    assert bench.check() == ""
    before = git(bench.creator, "rev-parse", "HEAD")

    subprocess.run(["sh", "-c", spoil], cwd=tree, env={**os.environ, "WRITER": str(bench.creator)}, check=True)

    assert bench.check() != ""
    bench.close()
    assert not tree.exists() and git(bench.creator, "rev-parse", "HEAD") == before
    assert (bench.creator / "code.py").read_text() == "right = 1\n"


@pytest.mark.parametrize("do", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_tree_that_was_only_looked_at_and_tried_counts(bench: Bench, do: str) -> None:
    (bench.root.path / ".git" / "info" / "exclude").open("a").write("__pycache__/\n.mam/\n")
    tree = bench.open()

    subprocess.run(["sh", "-c", do], cwd=tree, check=True, capture_output=True)

    assert bench.check() == ""
    bench.close()


@pytest.mark.parametrize("setting", ["core.ignoreStat", "core.sparseCheckout", "index.skipHash", "core.splitIndex"])
def test_settings_that_were_there_before_the_tree_hide_nothing_in_it(bench: Bench, setting: str) -> None:
    git(bench.root.path, "config", setting, "true")
    tree = bench.open()
    assert (tree / "code.py").exists() and bench.check() == ""

    (tree / "code.py").write_text("wrong = 1\n")

    assert bench.check() != ""


@pytest.mark.parametrize("name", ["out/new.py", "out/한국어 [a]*.py", "out/né\udcff"])
def test_a_reviewer_has_every_changed_file_where_the_main_checkout_is_sparse(bench: Bench, name: str) -> None:
    for each in ("kept/a.py", "out/b.py"):
        path = bench.root.path / each
        path.parent.mkdir()
        path.write_text("1\n")
    git(bench.root.path, "add", ".")
    git(bench.root.path, "commit", "-qm", "files")
    git(bench.root.path, "sparse-checkout", "set", "kept")
    git(bench.creator, "merge", "-q", "main")
    (bench.creator / name).write_text("new\n")
    (bench.creator / "kept" / "a.py").unlink()
    git(bench.creator, "add", "--all", "--sparse")
    git(bench.creator, "commit", "-qm", "change")
    bench.loop = replace(bench.loop, base_sha=git(bench.root.path, "rev-parse", "main"))

    tree = bench.open()

    assert (tree / name).read_text() == "new\n" and not (tree / "kept" / "a.py").exists()
    assert not (tree / "out" / "b.py").exists(), "this test shows nothing: the tree is not sparse"
    assert bench.check() == ""
    (tree / name).write_text("other\n")
    assert "was changed" in bench.check()
    bench.close()


@pytest.mark.parametrize("what", ["tree", "bench", "loop"])
def test_a_link_that_a_reviewer_left_is_removed_and_what_it_leads_to_stays(bench: Bench, what: str) -> None:
    tree = bench.open()
    theirs = bench.root.path.parent / "theirs"
    (theirs / "r1-rev-a" / "tree").mkdir(parents=True)
    (theirs / "r1-rev-a" / "tree" / "precious").touch()
    (theirs / "tree").mkdir()
    (theirs / "tree" / "precious").touch()
    place = {"tree": tree, "bench": tree.parent, "loop": tree.parent.parent}[what]
    shutil.rmtree(place)
    place.symlink_to(bench.creator if what == "tree" else theirs)

    bench.close()
    review_trees.close_all(bench.mam, "loop-1")

    assert not place.is_symlink() and not place.exists()
    assert len(list(theirs.rglob("precious"))) == 2 and (bench.creator / "code.py").exists()
    assert [line for line in git(bench.root.path, "worktree", "list").splitlines() if ".reviews" in line] == []
    assert bench.open().exists() and bench.check() == ""


def test_a_file_where_the_review_trees_should_be_stops_the_loop_until_it_is_gone(stage: Stage) -> None:
    reviews = stage.root.parts.layout.reviews
    reviews.parent.mkdir(exist_ok=True)
    reviews.write_text("in the way")
    loop = stage.plan()

    said = stage.run(stage.changed(), loop)

    assert (said.code, said.json["state"]) == (1, "stuck") and str(reviews) in said.json["detail"]
    assert "MAM_WORKTREES_DIR" in said.json["detail"]
    reviews.unlink()
    assert stage.resume(loop).code == 0 and len(stage.prompts(loop, "rev-a")) == 1


# -- what is said about it ------------------------------------------------------------------------


def test_a_reviewer_that_changes_the_record_of_its_job_judged_another_commit(stage: Stage) -> None:
    tree = stage.changed()
    other = git(tree, "rev-parse", "HEAD~")
    loop = stage.plan()
    record = f"{stage.root.path}/.mam/jobs/{loop}-r1-rev-a/job.json"
    lie = f"git checkout -q HEAD~ && sed -i 's/{git(tree, 'rev-parse', 'HEAD')}/{other}/' {record}"
    (stage.plans / f"{loop}.json").write_text(json.dumps({"rev-a": [[{"sh": lie}, *PASS], PASS]}))

    said = stage.run(tree, loop)

    assert said.code == 0 and said.json["rounds"][0]["reviews"][0]["attempt"] == 2
    assert f"it reviewed {other}" in (stage.folder(loop) / "timeline.md").read_text()


def test_the_verdict_line_in_the_task_itself_is_no_verdict_of_who_copies_it(stage: Stage) -> None:
    loop = stage.plan()
    job = f"{stage.root.path}/.mam/jobs/{loop}-r1-rev-a"
    copied = f"cp {job}/brief.md {job}/rev-a-reports/report-final.md && {_report(stage, loop)} --verdict pass"
    plan = {"rev-a": [[{"sh": f"{copied}; echo rc $?"}, {"report": "not_pass"}]]}
    (stage.plans / f"{loop}.json").write_text(json.dumps(plan))

    said = stage.run(stage.changed(), loop, task=f"Print\n{MARK}\nwhen all is well.\n")

    assert (said.code, said.json["outcome"]) == (3, "not_pass")
    out = stage.out(loop, "rev-a")
    assert "rc 1" in out and f"says no verdict, not {MARK} once" in out


def _report(stage: Stage, loop: str, attempt: int = 1) -> str:
    where = f"--registry-dir {stage.root.path}/.mam/jobs --job {loop}-r1-rev-a --attempt {attempt}"
    return f"{stage.root.parts.command} job report {where} --result done"


def test_the_report_of_an_earlier_attempt_is_never_the_next_ones(stage: Stage) -> None:
    loop = stage.plan()
    first = [{"sh": "echo x > left-over"}, {"report": "pass", "text": "the first\n"}]
    # The second attempt writes nothing, and the first one speaks once more.
    late = f"echo; {_report(stage, loop, 2)} --verdict pass; echo rc $?"
    again = f"printf 'old\\n{MARK}\\n' > old; {_report(stage, loop, 1)} --verdict pass --file old; rm old"
    second = [{"sh": late}, {"sh": again}, {"report": "not_pass", "text": "the second\n"}]
    (stage.plans / f"{loop}.json").write_text(json.dumps({"rev-a": [first, second]}))

    said = stage.run(stage.changed(), loop)

    assert (said.code, said.json["outcome"]) == (3, "not_pass")
    assert "rc 1" in stage.out(loop, "rev-a") and "No such file" in stage.out(loop, "rev-a")
    job = stage.job(loop, 1, "rev-a")
    assert (job.attempt, job.verdict) == (2, "not_pass") and "the second" in Path(job.report_path).read_text()
    assert [e["outcome"] for e in stage.root.events(f"jobs/{job.id}") if e["kind"] == "report"].count("accepted") == 2


def test_a_report_that_was_altered_after_it_was_signed_does_not_count(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[{"report": "pass"}, {"sh": ""}], PASS])
    child = stage.start(stage.changed(), loop, fault="loop.stepped:2:crash")  # asked, and nobody waits for the answer
    assert child.wait(120) == -9
    until(lambda: stage.job(loop, 1, "rev-a").state == "reported")
    report = Path(stage.job(loop, 1, "rev-a").report_path)
    report.write_text(report.read_text().replace("looked", "LOOKED"))

    said = stage.resume(loop)

    assert said.code == 0 and said.json["rounds"][0]["reviews"][0]["attempt"] == 2
    assert "not the file that was signed" in (stage.folder(loop) / "timeline.md").read_text()


UGLY = {
    "binary": b"\x00\x01\xff\xfe\xed\xa0\x80",
    "escapes": b"\x1b[2J\x1b]0;title\x07\xc2\x9b31m\xe2\x80\xae\xe2\x81\xa6",
    "one long line": b"x" * 2_000_000,
    "many lines": b"# heading\n```\n" * 20_000,
    "verdicts of all kinds": b"> [VERDICT: NOT PASS]\n[verdict: not pass]\n\r[VERDICT: NOT PASS]x\n",
}


@pytest.mark.parametrize("ugly", UGLY.values(), ids=UGLY.keys())
def test_a_report_full_of_anything_is_a_report_and_shows_nothing_but_text(
    stage: Stage,
    tmp_path: Path,
    ugly: bytes,
) -> None:
    report, loop = tmp_path / "report", stage.plan()
    report.write_bytes(ugly + f"\n{MARK}\n".encode())
    summary = f"$(head -c 500 {report} | tr -d '\\0' | iconv -c -t utf-8)"
    command = f'{_report(stage, loop)} --verdict pass --file {report} --summary "{summary}"'
    (stage.plans / f"{loop}.json").write_text(json.dumps({"rev-a": [[{"sh": command}]]}))

    said = stage.run(stage.changed(), loop)

    assert said.code == 0, said.err
    for words in (("loop", "show", loop), ("why", loop), ("status",), ("job", "show", f"{loop}-r1-rev-a")):
        shown = stage.root.mam(*words)
        assert shown.code == 0 and "\x1b" not in shown.out and "\u202e" not in shown.out
    kept = stage.root.path / ".mam" / ".agents" / "reports" / "rev-a" / f"{loop}-round-1.md"
    assert kept.read_bytes() == report.read_bytes()


# -- what the repository does ---------------------------------------------------------------------


def test_a_replaced_commit_shows_nobody_another_change(stage: Stage) -> None:
    tree = stage.changed()
    head = git(tree, "rev-parse", "HEAD")
    other = stage.tree()
    harmless = stage.change(other, f"{tree.name}.txt", "harmless\n")
    git(tree, "replace", head, harmless)
    try:
        loop = stage.plan()
        find = f"awk '/does not concern you/ {{getline; getline; print}}' \"$MAM_JOBS_DIR\"/{loop}-r1-rev-a/brief.md"
        looks = {"sh": f'sh -c "$({find})"; cat {tree.name}.txt'}
        (stage.plans / f"{loop}.json").write_text(json.dumps({"rev-a": [[looks, *PASS]]}))

        said = stage.run(tree, loop)
    finally:
        git(tree, "replace", "-d", head)

    assert said.code == 0, said.err
    assert "harmless" not in (stage.folder(loop) / "round-1" / "changes.diff").read_text()
    out = stage.out(loop, "rev-a")
    assert "harmless" not in out and "+new" in out and out.endswith("new\n")


def test_a_collection_of_garbage_in_the_middle_takes_nothing_that_is_under_review(stage: Stage) -> None:
    tree = stage.changed()
    (tree / "untracked").write_text("u\n")
    loop = stage.plan(rev_a=[[GATE, {"sh": "cat untracked; git fsck --no-dangling && echo whole"}, *PASS]])
    child = stage.start(tree, loop, "--promote", "branch")
    stage.reached(loop, "gate", "rev-a")

    git(stage.root.path, "worktree", "prune", "--expire=now")
    git(stage.root.path, "reflog", "expire", "--expire=now", "--all")
    git(stage.root.path, "gc", "-q", "--prune=now")
    stage.go(loop, "gate")

    assert child.wait(120) == 0
    assert stage.out(loop, "rev-a").startswith("u\n") and "whole" in stage.out(loop, "rev-a")
    assert git(tree, "rev-parse", "HEAD") == stage.row(loop).head_sha


@pytest.mark.parametrize("what", ["renamed", "detached", "switched", "rebasing"])
def test_a_branch_that_changes_under_a_loop_is_never_promoted_and_named(stage: Stage, what: str) -> None:
    tree = stage.changed()
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    main = git(stage.root.path, "rev-parse", "main")
    child = stage.start(tree, loop, "--promote", "merge")
    stage.reached(loop, "gate", "rev-a")

    if what == "renamed":
        git(tree, "branch", "-m", f"new-{tree.name}")
    elif what == "detached":
        git(tree, "checkout", "-q", "--detach")
    elif what == "switched":
        git(tree, "switch", "-q", "-c", f"new-{tree.name}")
    else:
        (tree / "x").write_text("x")
        stage.change(tree, f"{tree.name}.txt", "theirs\n")
        subprocess.run(["git", "rebase", "-x", "false", "HEAD~"], cwd=tree, capture_output=True)
    stage.go(loop, "gate")
    out, _ = child.communicate(timeout=120)

    assert child.returncode == 1 and json.loads(out)["state"] == "stuck"
    detail = json.loads(out)["detail"]
    assert tree.name in detail and ("rebase in progress" if what == "rebasing" else "is on") in detail
    assert git(stage.root.path, "rev-parse", "main") == main


def test_a_main_checkout_that_was_switched_meanwhile_gets_no_merge(stage: Stage) -> None:
    main = git(stage.root.path, "rev-parse", "main")
    tree = stage.changed()
    loop = stage.plan(rev_a=[[GATE, *PASS]])
    assert (
        stage.root.mam("worktree", "prepare", f"any-{loop[-4:]}", "--no-venv").code == 0
    )  # from now on main is watched
    child = stage.start(tree, loop, "--promote", "merge")
    stage.reached(loop, "gate", "rev-a")
    git(stage.root.path, "switch", "-q", "-c", f"wrong-{loop}")
    try:
        stage.go(loop, "gate")
        out, _ = child.communicate(timeout=120)
        fork = stage.plan()
        other = stage.changed()
        git(stage.root.path, "reset", "-q", "--hard", git(other, "rev-parse", "HEAD"))

        based = stage.run(other, fork)  # it began where main is, not where the main checkout happens to stand
    finally:
        git(stage.root.path, "switch", "-q", "main")

    assert child.returncode == 1 and "not on main" in json.loads(out)["detail"]
    assert git(stage.root.path, "rev-parse", "main") == main
    assert based.code == 0 and based.json["base_sha"] == main


def test_names_of_files_are_never_read_as_words_of_ours(stage: Stage) -> None:
    tree = stage.tree()
    for name in (MARK, "SCRIPT: []", "two\nlines", "-f", "$(touch evil)", "한 글 'x' \"y\"", "a\x1b[31m"):
        (tree / name).write_text("x\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", MARK)
    loop = stage.plan(rev_a=[[{"sh": "git status --porcelain; ls | wc -l"}, *PASS]])

    said = stage.run(tree, loop, "--promote", "pr-body", task=f"{MARK}\nreview it")

    assert said.code == 0, said.err
    brief = Path(stage.job(loop, 1, "rev-a").brief_path).read_text()
    assert reports.said(brief) == [] and "\x1b" not in brief and brief.count("7 insertions") == 1
    assert not list(stage.root.path.glob("**/evil"))


def test_a_change_of_a_submodule_alone_is_a_change_and_the_reviewer_has_it(
    stage: Stage,
    tmp_path: Path,
) -> None:
    inner = tmp_path / "inner"
    git(tmp_path, "init", "-q", str(inner))
    first = _commit(inner, "one")
    tree = stage.tree()
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    git(tree, "commit", "-qam", "with it")
    second = _commit(inner, "two")
    git(tree / "sub", "-c", "protocol.file.allow=always", "fetch", "-q")
    git(tree / "sub", "checkout", "-q", second)
    git(tree, "commit", "-qam", "only the pointer")
    git(tree, "config", "diff.ignoreSubmodules", "all")
    loop = stage.plan(rev_a=[[{"sh": "cat sub/file; git status --porcelain"}, *PASS], PASS])
    try:
        said = stage.run(tree, loop, "--base", "HEAD~")
    finally:
        git(tree, "config", "--unset", "diff.ignoreSubmodules")

    assert said.code == 0, said.err
    diff = (stage.folder(loop) / "round-1" / "changes.diff").read_text()
    assert f"-Subproject commit {first}" in diff and f"+Subproject commit {second}" in diff
    assert stage.out(loop, "rev-a") == "two\n" and stage.benches() == []


def _commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(f"{text}\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", text)
    return git(folder, "rev-parse", "HEAD")


# -- machines and files ---------------------------------------------------------------------------


def test_a_process_that_a_reviewer_left_running_keeps_no_tree_from_being_removed(stage: Stage) -> None:
    busy = "(for n in $(seq 200); do mkdir -p ../out/$n && touch ../out/$n/x ../tmp/$n; sleep 0.02; done) >&- 2>&- &"
    loop = stage.plan(rev_a=[[{"sh": busy}, *PASS]])

    assert stage.run(stage.changed(), loop).code == 0

    until(lambda: stage.benches() == [] or review_trees.close_all(stage.root.parts, loop) < 0)


@pytest.mark.parametrize("what", ["diff", "timeline", "folder of the round", "loop.json"])
def test_files_of_a_loop_that_somebody_deleted_are_no_end_of_it(stage: Stage, what: str) -> None:
    loop = stage.plan(rev_a=[[GATE, *PASS]], rev_b=[[{"report": "failed"}], PASS])
    child = stage.start(stage.changed(), loop, reviewers=("rev-a", "rev-b"))
    stage.reached(loop, "gate", "rev-a")
    folder = stage.folder(loop)
    place = {"diff": folder / "round-1" / "changes.diff", "timeline": folder / "timeline.md"}
    place |= {"folder of the round": folder / "round-1", "loop.json": folder / "loop.json"}
    shutil.rmtree(place[what]) if place[what].is_dir() else place[what].unlink()
    stage.go(loop, "gate")

    assert child.wait(120) == 0, child.communicate()


def test_a_whole_loop_works_in_places_with_the_oddest_names(make_root: Callable[..., Root]) -> None:
    stage = Stage(make_root('it\'s $HOME `x` "한국어"\nand more'))
    stage.agent("rev-a")
    tree = Path(stage.root.ok("worktree", "prepare", "issue-1", "--no-venv")["path"])
    stage.agent("writer", "--worktree", "issue-1", role="creator")
    before = main_checkout(stage.root.path)
    find = "awk '/nothing into the tree:/ {on=1; next} /^`AGENT_PYTHON_BIN`/ {exit} on'"
    find += ' "$MAM_JOBS_DIR"/LOOP-r1-rev-a/brief.md'
    loop = stage.plan()
    tried = {"sh": f'sh -c "$({find})"; git diff --stat HEAD~ HEAD'.replace("LOOP", loop)}
    work = {"sh": f"echo 'assert 1' > test_it.py; git add .; {OURS} commit -qm 'it'; echo more > more"}
    plan = {"writer": [[work, {"report": "done"}]], "rev-a": [[tried, *PASS]]}
    (stage.plans / f"{loop}.json").write_text(json.dumps(plan))

    said = stage.run(tree, loop, "--creator", "writer", "--test", "echo $TMPDIR/'it'; ls; pwd", "--promote", "branch")

    assert said.code == 0, said.err
    out = stage.out(loop, "rev-a")
    assert "test_it.py" in out and "more" in out and str(stage.root.path.parent) in out and "not found" not in out
    assert git(tree, "rev-parse", "HEAD") == said.json["head_sha"] and git(tree, "status", "--porcelain") == ""
    after = main_checkout(stage.root.path)
    assert {**after, "branches": ""} == {**before, "branches": ""}
    brief = Path(stage.job(loop, 1, "rev-a").brief_path).read_text()
    assert brief.splitlines()[0].endswith(f"/ head {said.json['head_sha']}") and brief.startswith("Worktree $'")


@pytest.mark.parametrize("where", ["in a worktree", "nowhere"])
def test_a_bare_repository_forwards_its_main_branch_where_that_is_checked_out(tmp_path: Path, where: str) -> None:
    seed = repository(tmp_path / "seed")
    (tmp_path / "shop").mkdir()
    git(tmp_path / "shop", "clone", "-q", "--bare", str(seed), ".git")
    main = tmp_path / "shop" / "main"
    git(tmp_path / "shop", "worktree", "add", "-q", "main")
    root = Root(main, mux="headless")
    try:
        said = root.mam("init", "--json")
        root.path = Path(said.json["root"])
        stage = Stage(root)
        stage.agent("rev-a", "--cwd", str(tmp_path))
        tree = Path(root.ok("worktree", "prepare", "one", "--no-venv", cwd=main)["path"])
        if where == "nowhere":
            git(tmp_path / "shop", "worktree", "remove", "main")
        for mode in ("merge", "none"):
            head = stage.change(tree, f"{mode}.txt")
            said = stage.run(tree, stage.plan(), "--promote", mode)
            assert said.code == 0, said.json
            if mode == "none":
                subprocess.run(["sh", "-ec", said.json["promoted"]], check=True)
            assert git(tree, "rev-parse", "main") == head
            assert where == "nowhere" or (git(main, "status", "--porcelain"), (main / f"{mode}.txt").exists()) == (
                "",
                True,
            )
    finally:
        root.clean()


def test_a_loop_whose_row_was_edited_to_look_passed_is_not_believed_by_verify(stage: Stage) -> None:
    loop = stage.plan(rev_a=[[{"report": "not_pass"}]])
    assert stage.run(stage.changed(), loop, reviewers=REVIEWERS).code == 3
    assert stage.root.mam("verify", loop).code == 0
    with stage.root.registry.transaction() as tx:
        tx.put(replace(stage.job(loop, 1, "rev-a"), verdict="pass"))

    assert stage.root.mam("verify", loop).code == 1
