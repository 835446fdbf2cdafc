"""Review loops from the command line: who is asked about what, when it counts, and what happens with it then."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.broker.bus.protocol import Message
from mam.broker.envelope.signing import USE_CARD, unseal
from mam.control_plane.control_root.keyring import Keyring
from tests.support import Root, git, until
from tests.support.stage import REVIEWERS, Stage, main_checkout

PASS, REFUSE = [{"report": "pass"}], [{"report": "not_pass"}]


@pytest.mark.req("M23", "M54", "M58", "M65")
def test_a_change_that_all_reviewers_passed_is_passed_and_bound_to_one_loop_base_and_head(stage: Stage) -> None:
    tree, base = stage.tree(), git(stage.root.path, "rev-parse", "HEAD")
    head = stage.change(tree)
    before = main_checkout(stage.root.path)
    loop = stage.plan()

    said = stage.run(tree, loop, reviewers=REVIEWERS)

    assert said.code == 0, said.err
    assert (said.json["outcome"], said.json["head_sha"], said.json["base_sha"]) == ("passed", head, base)
    triple = (loop, base, head)
    state = stage.state(loop)
    assert (state.round.base, state.round.head, len(state.rounds)) == (base, head, 1)
    identity = json.loads((stage.folder(loop) / "round-1" / "identity.json").read_text())
    assert (identity["loop_id"], identity["base_sha"], identity["head_sha"]) == triple
    for name in REVIEWERS:
        job = stage.job(loop, 1, name)
        assert (job.loop, job.base_sha, job.head_sha, job.seen_sha, job.verdict) == (*triple, head, "pass")
        own = json.loads((Path(job.folder) / "identity.json").read_text())
        assert (own["loop_id"], own["base_sha"], own["head_sha"]) == triple
        verdict = (stage.folder(loop) / "round-1" / f"verdict-{name}.md").read_text()
        assert verdict.splitlines()[0] == f"# {name}: pass" and all(each in verdict for each in triple)
        first = Path(job.brief_path).read_text().splitlines()[0]
        assert first == f"Worktree {tree} / branch {tree.name} / base {base} / head {head}"
    assert stage.root.mam("verify", loop).code == 0
    assert stage.benches() == [] and main_checkout(stage.root.path) == before


@pytest.mark.req("M65")
def test_one_refusal_blocks_whatever_the_others_say(stage: Stage) -> None:
    loop = stage.plan(rev_b=[[{"report": "not_pass", "text": "made.txt:1 is wrong\n\x1b[2J"}]])

    said = stage.run(stage.changed(), loop, "--promote", "merge", reviewers=REVIEWERS)

    assert (said.code, said.json["outcome"], said.json["promoted"]) == (3, "not_pass", "")
    assert said.json["detail"] == "refused by rev-b"
    shown = stage.root.mam("loop", "show", loop).out
    assert "  made.txt:1 is wrong" in shown and "\x1b" not in said.err + shown


@pytest.mark.req("M25")
def test_there_is_a_diff_though_only_the_worktree_has_the_change_and_main_stands_at_main(stage: Stage) -> None:
    tree = stage.changed()
    loop = stage.plan(rev_a=[[{"sh": "cat tree-*.txt"}, *PASS]])

    assert stage.run(tree, loop).code == 0

    diff = (stage.folder(loop) / "round-1" / "changes.diff").read_text()
    assert f"{tree.name}.txt | 1 +" in diff and f"+++ b/{tree.name}.txt" in diff and "+new" in diff
    brief = Path(stage.job(loop, 1, "rev-a").brief_path).read_text()
    assert f"{tree.name}.txt | 1 +" in brief and "no changes" not in brief and "...HEAD" not in brief
    assert "new\n" in stage.out(loop, "rev-a")


@pytest.mark.req("M25")
def test_what_only_the_base_has_is_no_change_of_the_worktree(stage: Stage) -> None:
    tree = stage.changed()
    newer = stage.change(stage.root.path, f"of-main-{tree.name}.txt")
    loop = stage.plan()

    assert stage.run(tree, loop, "--base", newer).code == 0

    changes = (stage.folder(loop) / "round-1" / "changes.diff").read_text("utf-8")
    assert f"b/{tree.name}.txt" in changes and "of-main" not in changes


@pytest.mark.req("M25")
def test_a_worktree_without_a_change_is_no_review_and_exit_1(stage: Stage) -> None:
    loop = stage.plan()

    said = stage.run(stage.tree(), loop)

    assert (said.code, said.json["outcome"]) == (1, "failed") and "nothing to review" in said.json["detail"]
    assert "--base REV" in said.json["detail"]
    assert stage.prompts(loop, "rev-a") == []


@pytest.mark.req("M22")
def test_the_base_is_where_the_branch_left_main_and_base_overrides_it_both_as_full_shas(stage: Stage) -> None:
    tree = stage.tree()
    fork = git(stage.root.path, "rev-parse", "HEAD")
    first = stage.change(tree, "one.txt")
    stage.change(tree, "two.txt")

    loops = stage.plan(), stage.plan()
    stage.run(tree, loops[0])
    stage.run(tree, loops[1], "--base", "HEAD~1")

    assert [stage.row(loop).base_sha for loop in loops] == [fork, first]
    diffs = [(stage.folder(loop) / "round-1" / "changes.diff").read_text() for loop in loops]
    assert ["one.txt" in diff for diff in diffs] == [True, False]
    assert all("two.txt" in diff for diff in diffs)


@pytest.mark.req("M22")
def test_a_base_that_names_no_commit_is_refused_before_anything_begins(stage: Stage) -> None:
    loop = stage.plan()

    said = stage.run(stage.changed(), loop, "--base", "no-such-branch")

    assert said.code == 2 and "correct --base" in said.error["remedy"], said.err
    assert stage.root.mam("loop", "show", loop).code == 2


@pytest.mark.req("M2", "M21", "M87")
@pytest.mark.parametrize("by", ["name", "path", "variable", "subdirectory", "link"])
def test_the_worktree_changes_what_is_reviewed_and_nothing_else(stage: Stage, by: str) -> None:
    tree = stage.changed()
    (tree / "sub").mkdir()
    link = stage.root.path.parent / f"link-{tree.name}"
    link.symlink_to(tree)
    said = {"path": str(tree), "subdirectory": str(tree / "sub"), "link": str(link)}
    loop = stage.plan()

    if by == "name":
        assert stage.root.mam("worktree", "prepare", f"n{tree.name}").code == 0
        tree = stage.root.path.parent / "repo.worktrees" / f"n{tree.name}"
        stage.change(tree)
        done = stage.run(tree.name, loop)
    elif by == "variable":
        words = [w for w in stage.words("", loop) if w]
        env = {"MAM_LOOP_WORKTREE": str(tree)}
        done = stage.root.mam(*words, "--json", stdin="t", env=env, cwd=tree, timeout_s=120)
    else:
        done = stage.run(said[by], loop, cwd=tree)

    assert done.code == 0, done.err
    assert Path(stage.row(loop).worktree) == tree.resolve()
    assert stage.folder(loop) == stage.root.path / ".mam" / "loops" / loop
    assert Path(stage.job(loop, 1, "rev-a").folder).is_relative_to(stage.root.path / ".mam" / "jobs")
    assert not (tree / ".mam").exists()


@pytest.mark.req("M26")
@pytest.mark.parametrize("what", ["nothing", "file", "other", "bare", "plain", "submodule"])
def test_what_is_no_worktree_of_this_repository_is_refused_with_a_reason(
    stage: Stage, tmp_path: Path, what: str
) -> None:
    place = tmp_path / "place"
    if what == "file":
        place.write_text("x")
    elif what == "plain":
        place.mkdir()
    elif what != "nothing":
        place.mkdir()
        git(place, "init", "-q", *(["--bare"] if what == "bare" else []))
    if what == "submodule":
        tree = stage.changed()
        git(place, "commit", "-q", "--allow-empty", "-m", "x")
        git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(place), "sub")
        place = tree / "sub"
    why = {
        "nothing": "not a directory",
        "file": "not a directory",
        "bare": "bare repository",
        "plain": "in no work tree",
    }
    loop = stage.plan()

    said = stage.run(place, loop)

    assert (said.code, said.error["code"]) == (2, "not_a_worktree")
    assert why.get(what, "another repository") in said.error["message"] and "worktree list" in said.error["remedy"]
    assert not (stage.root.path / ".mam" / "loops" / loop).exists()


@pytest.mark.req("M26")
def test_a_creator_that_works_elsewhere_and_the_main_checkout_for_a_writer_are_refused(stage: Stage) -> None:
    tree, loop = stage.changed(), stage.plan()

    elsewhere = stage.run(tree, loop, "--creator", "rev-b")
    at_main = stage.run(stage.root.path, loop, "--creator", "rev-b")

    assert (elsewhere.code, at_main.code) == (2, 2)
    assert f"rev-b works in {stage.root.path}" in elsewhere.error["message"]
    assert f"mam agent create NAME --agent scripted --cwd {tree}" in elsewhere.error["remedy"]
    assert "main checkout" in at_main.error["message"] and "worktree prepare" in at_main.error["remedy"]


@pytest.mark.parametrize(
    ("words", "reviewers", "hint"),
    [
        ([], ("rev-a", "rev-a"), "once"),
        ([], ("nobody",), "agent list"),
        (["--rounds", "0"], ("rev-a",), "--rounds"),
        ([], (), "--reviewers"),
        (["--limit", "0"], ("rev-a",), "--limit"),
        (["--limit", "nan"], ("rev-a",), "--limit"),
        (["--id", "../../evil"], ("rev-a",), "a-z"),
        (["--id", "loop-r1"], ("rev-a",), "-r1"),
        (["--creator", "rev-a"], ("rev-a",), "another reviewer"),
        (["--remote-review", "/no/such/place"], ("rev-a",), "git remote"),
        (["--remote-review", "--upload-pack=touch evil"], ("rev-a",), "git remote"),
    ],
)
def test_a_loop_that_cannot_be_is_refused_with_exit_2_before_anything_begins(
    stage: Stage, words: list[str], reviewers: tuple[str, ...], hint: str
) -> None:
    before = sorted((stage.root.path / ".mam" / "loops").glob("**/*"))
    tree, loop = stage.changed(), stage.plan()

    said = stage.run(tree, loop, *words, reviewers=reviewers)

    assert said.code == 2 and hint in said.error["remedy"], said.err
    assert sorted((stage.root.path / ".mam" / "loops").glob("**/*")) == before
    assert not (stage.root.path / "evil").exists() and not list(tree.glob("evil*"))


@pytest.mark.req("M26")
def test_the_remedy_for_a_creator_that_works_elsewhere_is_one_that_works(stage: Stage) -> None:
    ours = Path(stage.root.ok("worktree", "prepare", "elsewhere", "--no-venv")["path"])
    theirs = stage.changed()
    named = stage.run(ours, stage.plan(), "--creator", "rev-b")
    assert "mam agent create --agent scripted --worktree elsewhere`" in named.error["remedy"]
    stage.agent("there", "--worktree", "elsewhere", role="creator")

    at_home = stage.run(ours, stage.plan(), "--creator", "rev-b")
    away = stage.run(theirs, stage.plan(), "--creator", "there")

    assert "`mam loop run --creator there …`" in at_home.error["remedy"]
    assert f"`mam loop run --worktree {ours} …`" in away.error["remedy"]
    assert stage.root.mam("worktree", "remove", "elsewhere", "--stop").code == 0


# -- rounds ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(built: Stage) -> Path:
    """The worktree of a creator."""
    said = built.root.mam("worktree", "prepare", "written", "--json")
    assert said.code == 0, said.err
    built.agent("writer", "--worktree", "written", role="creator")
    return Path(said.json["path"])


def commit(text: str, name: str = "made.txt") -> dict[str, str]:
    git_ = "git -c user.name=w -c user.email=w@localhost"
    return {"sh": f"echo '{text}' > {name} && git add {name} && {git_} commit -qm '{text}' && git rev-parse HEAD"}


@pytest.mark.req("M20", "M65", "M66")
def test_the_findings_of_all_who_refused_come_in_one_brief_and_the_creator_works_until_all_pass(
    stage: Stage, written: Path
) -> None:
    findings = [{"report": "not_pass", "text": "made.txt:1 is FIRST\n"}, {"report": "not_pass", "text": "SECOND one\n"}]
    loop = stage.plan(
        writer=[[commit("bad"), {"report": "done", "text": "I did it\n"}], [commit("good"), {"report": "done"}]],
        rev_a=[[findings[0]], [{"sh": "cat made.txt"}, *PASS]],
        rev_b=[[findings[1]], PASS],
    )

    said = stage.run(written, loop, "--creator", "writer", "--base", "HEAD", reviewers=REVIEWERS)

    assert said.code == 0, said.err
    assert [each["head"] for each in said.json["rounds"]] == stage.out(loop, "writer").split()
    rework = Path(stage.job(loop, 2).brief_path).read_text()
    assert "> made.txt:1 is FIRST" in rework and "> SECOND one" in rework and "rev-c (pass)" in rework
    assert rework.splitlines()[0].endswith(f"head {said.json['rounds'][0]['head']}")
    told = said.err[: said.err.index("round 2")]
    assert "rev-a refused:\n" in told and "  made.txt:1 is FIRST" in told and "  SECOND one" in told
    assert stage.out(loop, "rev-a") == "good\n"
    assert [len(stage.prompts(loop, name)) for name in ("writer", *REVIEWERS)] == [2, 2, 2, 2]
    kept = stage.root.path / ".mam" / ".agents" / "reports"
    assert "I did it" in (kept / "writer" / f"{loop}-round-1.md").read_text()
    assert "FIRST" in (kept / "rev-a" / f"{loop}-round-1.md").read_text()
    assert "has looked" in (kept / "rev-a" / f"{loop}-round-2.md").read_text()


@pytest.mark.req("M66")
def test_reports_go_below_the_declared_root_whichever_agent_wrote_them(stage: Stage, tmp_path: Path) -> None:
    loop = stage.plan()

    assert stage.run(stage.changed(), loop, env={"MAM_REPORTS_ROOT": str(tmp_path / "kept")}).code == 0

    report = tmp_path / "kept" / ".agents" / "reports" / "rev-a" / f"{loop}-round-1.md"
    assert report.read_bytes() == Path(stage.job(loop, 1, "rev-a").report_path).read_bytes()


def test_the_rounds_of_work_are_limited_and_the_last_refusal_is_exit_3(stage: Stage, written: Path) -> None:
    work = [[commit(f"try {n}"), {"report": "done"}] for n in (1, 2)]
    loop = stage.plan(writer=work, rev_a=[REFUSE])

    said = stage.run(written, loop, "--creator", "writer", "--base", "HEAD", "--rounds", "2")

    assert (said.code, said.json["outcome"], len(said.json["rounds"])) == (3, "not_pass", 2)
    assert "the last of 2 rounds" in said.json["detail"]


def test_a_creator_that_reports_failure_ends_the_loop_with_exit_3(stage: Stage, written: Path) -> None:
    loop = stage.plan(writer=[[{"report": "failed", "text": "I cannot\n"}]])

    said = stage.run(written, loop, "--creator", "writer")

    assert (said.code, said.json["outcome"]) == (3, "failed") and "writer" in said.json["detail"]
    assert stage.prompts(loop, "rev-a") == []


def test_a_creator_that_only_moved_its_branch_back_has_made_nothing_to_review_and_that_is_exit_1(
    stage: Stage, written: Path
) -> None:
    loop = stage.plan(writer=[[{"report": "done"}]])

    said = stage.run(written, loop, "--creator", "writer", "--base", "HEAD")

    assert (said.code, said.json["outcome"]) == (1, "failed") and "nothing to review" in said.json["detail"]


# -- promotion ------------------------------------------------------------------------------------


def test_the_next_command_is_a_rebase_where_main_has_moved_on(stage: Stage) -> None:
    tree, loop = stage.changed(), stage.plan()
    newer = stage.change(stage.root.path, f"newer-{tree.name}.txt")

    said = stage.run(tree, loop)

    assert said.code == 0, said.err
    who = {**os.environ, "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@localhost"}
    subprocess.run(["sh", "-c", said.json["promoted"]], cwd="/", check=True, env=who)
    assert git(tree, "merge-base", "main", "HEAD") == newer == git(stage.root.path, "rev-parse", "main")


def test_without_promotion_the_next_command_is_shown_and_does_what_it_says(stage: Stage) -> None:
    tree = stage.changed()
    head, loop = git(tree, "rev-parse", "HEAD"), stage.plan()
    said = stage.run(tree, loop)
    assert said.code == 0 and git(stage.root.path, "rev-parse", "HEAD") != head
    stage.change(tree, "later.txt")  # nothing newer may come along with what was reviewed

    subprocess.run(["sh", "-c", said.json["promoted"]], cwd="/", check=True)

    assert git(stage.root.path, "rev-parse", "HEAD") == head
    shown = stage.root.mam("loop", "show", loop).out
    assert f"\nnext: {said.json['promoted']}" in shown and f"Z next: {said.json['promoted']}" in shown
    assert "promoted" not in shown  # it is a person who does that


@pytest.mark.req("M55")
@pytest.mark.parametrize("mode", ["none", "branch"])
def test_reviewed_uncommitted_work_becomes_the_branchs_commit_and_the_tree_is_clean(stage: Stage, mode: str) -> None:
    tree = stage.changed()
    tip = git(tree, "rev-parse", "HEAD")
    (tree / f"{tree.name}.txt").write_text("newer\n")
    (tree / "untracked.txt").write_text("u\n")
    loop = stage.plan(rev_a=[[{"sh": f"cat {tree.name}.txt untracked.txt"}, *PASS]])

    said = stage.run(tree, loop, "--promote", mode)

    assert said.code == 0, said.err
    if mode == "none":
        assert git(tree, "rev-parse", "HEAD") == tip
        subprocess.run(["sh", "-c", said.json["promoted"]], cwd="/", check=True)
    assert stage.out(loop, "rev-a") == "newer\nu\n"
    assert git(tree, "rev-parse", "HEAD") == said.json["head_sha"] and git(tree, "rev-parse", "HEAD~") == tip
    assert git(tree, "status", "--porcelain") == "" and git(tree, "branch", "--show-current") == tree.name


def test_a_commit_on_no_branch_is_called_that_and_not_promoted_to_one(stage: Stage) -> None:
    tree, loop = stage.changed(), stage.plan()
    git(tree, "switch", "-q", "--detach")

    refused = stage.run(tree, stage.plan(), "--promote", "branch")
    said = stage.run(tree, loop)

    head = git(tree, "rev-parse", "HEAD")
    assert refused.error["code"] == "usage" and f"detached at {head}" in refused.error["message"]
    assert "switch" in refused.error["remedy"] and said.code == 0
    timeline = (stage.folder(loop) / "timeline.md").read_text("utf-8")
    for text in (said.err, timeline):
        assert "HEAD is detached" in text and f"{head}, the commit of a detached HEAD" in text
        assert "branch's commit" not in text


def test_the_shown_command_refuses_where_somebody_committed_since(stage: Stage) -> None:
    tree = stage.changed()
    (tree / "more.txt").write_text("m\n")
    said = stage.run(tree, stage.plan())
    later = stage.change(tree, "later.txt")

    done = subprocess.run(["sh", "-c", said.json["promoted"]], cwd="/", capture_output=True, text=True)

    assert done.returncode != 0 and git(tree, "rev-parse", "HEAD") == later


def test_a_merge_moves_main_forward_to_exactly_the_reviewed_commit(stage: Stage) -> None:
    tree = stage.tree()
    git(tree, "reset", "-q", "--hard", git(stage.root.path, "rev-parse", "HEAD"))
    head = stage.change(tree, f"{tree.name}.txt")

    said = stage.run(tree, stage.plan(), "--promote", "merge", reviewers=REVIEWERS)

    assert said.code == 0, said.err
    assert git(stage.root.path, "rev-parse", "main") == head and "main is at" in said.json["promoted"]
    assert git(stage.root.path, "status", "--porcelain") == ""
    assert (stage.root.path / f"{tree.name}.txt").exists()


def test_a_merge_is_refused_when_main_moved_on_and_says_what_to_do(stage: Stage) -> None:
    tree = stage.changed()
    main = stage.change(stage.root.path, f"of-main-{tree.name}.txt")

    said = stage.run(tree, stage.plan(), "--promote", "merge")

    assert (said.code, said.json["outcome"], said.json["promoted"]) == (1, "passed", "")
    assert "rebase main" in said.json["detail"]
    assert git(stage.root.path, "rev-parse", "main") == main


def test_a_merge_that_would_overwrite_what_lies_in_the_main_checkout_is_refused_and_says_what_to_do(
    stage: Stage,
) -> None:
    tree = stage.tree()
    git(tree, "reset", "-q", "--hard", git(stage.root.path, "rev-parse", "HEAD"))
    stage.change(tree, "clash.txt")
    (stage.root.path / "clash.txt").write_text("somebody's\n")
    try:
        said = stage.run(tree, stage.plan(), "--promote", "merge")

        assert (said.code, said.json["outcome"]) == (1, "passed")
        assert "clash.txt" in said.json["detail"] and "merge --ff-only" in said.json["detail"]
        assert (stage.root.path / "clash.txt").read_text() == "somebody's\n"
    finally:
        (stage.root.path / "clash.txt").unlink()


def test_the_text_of_a_request_names_the_commit_and_pushes_that_and_nothing_newer(stage: Stage, tmp_path: Path) -> None:
    tree = stage.changed()
    head, loop = git(tree, "rev-parse", "HEAD"), stage.plan()
    origin = tmp_path / "origin.git"
    git(tmp_path, "init", "-q", "--bare", str(origin))
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$OUT"\n')
    gh.chmod(0o755)

    said = stage.run(tree, loop, "--promote", "pr-body", reviewers=REVIEWERS, task="it's $HOME; `id`\n\nmore")
    stage.change(tree, "later.txt")
    git(tree, "remote", "add", f"o-{loop}", str(origin))
    command = said.json["promoted"].replace(" origin ", f" o-{loop} ")
    env = {"PATH": f"{gh.parent}:/usr/bin:/bin", "OUT": str(tmp_path / "out")}
    subprocess.run(["sh", "-c", command], cwd="/", env=env, check=True)

    assert git(origin, "rev-parse", tree.name) == head
    told = (tmp_path / "out").read_text().splitlines()
    assert told[:6] == ["pr", "create", "--head", tree.name, "--title", "it's $HOME; `id`"]
    body = Path(told[-1]).read_text()
    assert head in body and "rev-c pass" in body


# -- who looks on ---------------------------------------------------------------------------------


def test_a_viewer_sees_the_loops_card_from_its_beginning_to_its_end(stage: Stage) -> None:
    mam = stage.root.parts
    seen: list[dict[str, object]] = []
    loop = stage.plan(rev_a=[[{"gate": "gate"}, *PASS]])
    topic = f"loops/{loop}/state"

    def note(message: Message) -> None:
        if message.topic == topic and message.payload:
            ring = {"k1": Keyring(mam.layout).control()}
            body = unseal(message.payload, keyring=ring, use=USE_CARD, scope=mam.fingerprint, topic=topic)
            data = body["data"]
            assert isinstance(data, dict)
            seen.append(data)

    bus = stage.root.viewer()
    try:
        bus.subscribe("loops/+/state", note)
        child = stage.start(stage.changed(), loop)
        until(lambda: any(card["state"] == "reviewing" for card in seen))
        stage.go(loop, "gate")
        until(lambda: any(card["outcome"] == "passed" for card in seen))
    finally:
        bus.close()
    child.communicate()

    assert seen[-1]["loop"] == loop and seen[-1]["head_sha"] == stage.row(loop).head_sha


@pytest.mark.req("M75")
def test_a_trial_run_with_three_reviewers_ends_with_a_plain_removal_of_its_worktree(
    make_root: Callable[..., Root],
) -> None:
    stage = Stage(make_root())
    for name in REVIEWERS:
        stage.agent(name)
    tree = Path(stage.root.ok("worktree", "prepare", "issue-1")["path"])
    stage.agent("writer", "--worktree", "issue-1", role="creator")
    before = main_checkout(stage.root.path)
    loop = stage.plan(writer=[[commit("made"), {"report": "done"}]])

    said = stage.run(tree, loop, "--creator", "writer", reviewers=REVIEWERS)
    removed = stage.root.mam("worktree", "remove", "issue-1", "--stop", "--json")

    assert (said.code, removed.code) == (0, 0), said.err + removed.err
    jobs = [stage.job(loop, 1, name) for name in REVIEWERS]
    assert {(job.loop, job.base_sha, job.head_sha) for job in jobs} == {
        (loop, said.json["base_sha"], git(stage.root.path, "rev-parse", "issue-1"))
    }
    assert [job.verdict for job in jobs] == ["pass"] * 3
    assert not tree.exists() and removed.json["saved"] is None
    after = main_checkout(stage.root.path)
    assert {**after, "branches": ""} == {**before, "branches": ""}
