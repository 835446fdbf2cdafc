"""Review loops with real agent CLIs in real tmux: their models are a stand-in, all that they do is really done."""

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mam.agents.stand_in.server import ModelStandIn
from mam.control_plane.loops import review_trees
from mam.control_plane.sessions import runtime
from tests.live import accounts, life
from tests.live.life import model as model
from tests.support import Root, git, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

TREE = "discount"
TASK = """Add `discounted(prices, percent)` to price.py: the total, less percent of it. Commit it.

AS {creator} RUN: git show main:price.py > price.py && echo 'def discounted(prices, percent):' >> price.py
AS {creator} ROUND 1 RUN: echo '    return total(prices) * percent / 100' >> price.py
AS {creator} ROUND 1 RUN: git commit -qam 'A discount'
AS {creator} ROUND 2 RUN: echo '    return total(prices) * (100 - percent) / 100' >> price.py
AS {creator} ROUND 2 RUN: git commit -qam 'Take the discount off'
AS {creator} REPORT: discounted() is there.
AS rev-claude REPORT: I ran the tests.
AS rev-codex REPORT: It reads well.
AS rev-codex ROUND 1 VERDICT: pass
"""
TESTS = """\
import price


def test_a_discount_is_taken_off():
    assert price.discounted([50, 50], 10) == 90
"""
# What a user allows them for this work; every other protection of theirs stays as it is.
CLAUDE = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash({mam} job:*)", "Bash(env:*)", "Bash(git:*)")
CODEX = ("-s", "workspace-write", "-a", "never")
GROK = ("-m", "standin-model")


@pytest.fixture
def shop(
    make_root: Callable[..., Root],
    needs: Callable[[str], str],
    model: ModelStandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Root:
    """A project with a test that fails, a worktree in which to make it pass, and accounts with all three CLIs."""
    needs("tmux")
    root = make_root("shop", mux="tmux")
    (root.path / "price.py").write_text("def total(prices):\n    return sum(prices)\n\n\n", "utf-8")
    (root.path / "test_price.py").write_text(TESTS, "utf-8")
    git(root.path, "config", "user.name", "T")
    git(root.path, "config", "user.email", "t@localhost")
    git(root.path, "add", ".")
    git(root.path, "commit", "-qm", "prices")
    home = tmp_path / "home"
    accounts.grok(monkeypatch, model)
    accounts.claude(monkeypatch, model, home, [root.path])
    accounts.codex(monkeypatch, model, home, [root.path])
    root.ok("worktree", "prepare", TREE)
    return root


def hire(shop: Root, program: str, *words: str, args: Sequence[str] = ()) -> str:
    """Hire an agent and wait until its screen takes a prompt; its name."""
    own = [word.format(mam=shop.parts.command) for word in args]
    said = shop.mam("agent", "create", *words, "--program", program, "--json", "--", *own)
    assert said.code == 0, f"{said.out}{said.err}"
    name: str = said.json["name"]
    return name


def writer(shop: Root, agent: str, *args: str, package: str = "") -> str:
    """A creator in the worktree."""
    return hire(shop, life.program(agent, package), "--agent", agent, "--worktree", TREE, args=args)


def reviewer(shop: Root, agent: str, *args: str, package: str = "") -> str:
    """A reviewer in the main checkout."""
    words = [f"rev-{agent}", "--agent", agent, "--role", "reviewer"]
    return hire(shop, life.program(agent, package), *words, args=args)


def loop(shop: Root, creator: str, *words: str, more: str = "") -> Any:
    """Run a loop to its end and return it as its verb tells it."""
    task = TASK.format(creator=creator) + more
    given = ["--task", "-", "--creator", creator, "--all-reviewers", "--worktree", TREE, "--limit", "100", *words]
    said = shop.mam("loop", "run", *given, "--json", stdin=task, timeout_s=300)
    assert said.code == 0, "\n".join([said.out, said.err, *(life.screen(shop, each.name) for each in crew(shop))])
    return said.json


def crew(shop: Root) -> list[Any]:
    with shop.registry.view() as view:
        return list(view.sessions())


def sandbox_of_codex(folder: Path) -> None:
    """Skip where this machine gives codex no sandbox."""
    probe = subprocess.run([life.program("codex"), "sandbox", "true"], cwd=folder, capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"codex has no sandbox on this machine: {probe.stderr.strip()}")


def files_of(checkout: Path) -> dict[str, str]:
    """Every file of a checkout but MAM's and git's own, with mode and content, and where git is."""
    found = {"HEAD": git(checkout, "rev-parse", "--symbolic-full-name", "HEAD"), "at": git(checkout, "rev-parse", "@")}
    for path in sorted(checkout.rglob("*")):
        name = path.relative_to(checkout)
        if path.is_file() and name.parts[0] not in (".git", ".mam"):
            found[str(name)] = f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


def verdicts_of(done: Any) -> list[dict[str, str]]:
    return [{each["reviewer"]: each["verdict"] for each in one["reviews"]} for one in done["rounds"]]


def lives_of(shop: Root, *names: str) -> list[tuple[Any, ...]]:
    found = [shop.session(name) for name in names]
    return [(each.name, each.pid, each.agent_pid, each.generation, each.conversation) for each in found]


def every_job_verifies(shop: Root, done: Any, count: int) -> None:
    with shop.registry.view() as view:
        jobs = [job.id for job in view.jobs() if job.loop == done["id"]]
    assert len(jobs) == count
    assert [shop.mam("verify", job).code for job in jobs] == [0] * count


def nothing_is_left_of_reviews(shop: Root) -> None:
    assert review_trees.left(shop.parts) == {}
    assert len(git(shop.path, "worktree", "list").splitlines()) == 2


def test_a_defect_is_refused_by_who_ran_the_tests_then_corrected_and_passed_by_all(shop: Root, tmp_path: Path) -> None:
    sandbox_of_codex(shop.path)
    creator = writer(shop, "grok", *GROK, package="grok_cli_bin")
    claude, codex = reviewer(shop, "claude", *CLAUDE), reviewer(shop, "codex", *CODEX)
    before, who = files_of(shop.path), lives_of(shop, creator, claude, codex)

    done = loop(shop, creator, "--promote", "branch")

    assert (done["outcome"], done["round"]) == ("passed", 2)
    assert verdicts_of(done) == [{claude: "not_pass", codex: "pass"}, {claude: "pass", codex: "pass"}]
    tip = git(shop.path, "rev-parse", TREE)
    assert tip == done["head_sha"] == done["rounds"][1]["head"] != done["rounds"][0]["head"]
    assert git(shop.path, "merge-base", "--is-ancestor", done["rounds"][0]["head"], tip) == ""
    assert files_of(shop.path) == before
    nothing_is_left_of_reviews(shop)
    every_job_verifies(shop, done, 6)
    the_verdicts_came_from_the_tests(shop, done)
    the_findings_of_both_went_back(shop, done)
    assert lives_of(shop, creator, claude, codex) == who
    for name in (claude, codex):
        remembers(shop, name, [f"{done['id']}-r{number}-{name}" for number in (1, 2)])
    assert len(list((tmp_path / "home" / ".claude" / "projects").glob("*/*.jsonl"))) == 1
    assert len(list((tmp_path / "home" / ".codex" / "sessions").rglob("rollout-*.jsonl"))) == 1


def the_verdicts_came_from_the_tests(shop: Root, done: Any) -> None:
    """Word for word the brief's own line was run, and what it printed stands in the reports."""
    kept = "".join(path.read_text("utf-8") for path in (Path.home() / ".claude" / "projects").glob("*/*.jsonl"))
    for number, printed in ((1, "1 failed"), (2, "1 passed")):
        folder = Path(done["folder"]) / f"round-{number}"
        line = re.search(r"^    (cd .* -m pytest)$", (folder / "brief-rev-claude.md").read_text("utf-8"), re.M)
        assert line is not None and f'"command":{json.dumps(line[1])[:-1]}' in kept
        assert printed in (folder / "verdict-rev-claude.md").read_text("utf-8")
    assert "1 passed" in (folder / "verdict-rev-codex.md").read_text("utf-8")


def the_findings_of_both_went_back(shop: Root, done: Any) -> None:
    rework = (Path(done["folder"]) / "round-2" / "brief.md").read_text("utf-8")
    assert "### rev-claude (not_pass)" in rework and "assert 10.0 == 90" in rework
    assert "### rev-codex (pass)" in rework and "> It reads well." in rework


def remembers(shop: Root, name: str, jobs: list[str]) -> None:
    assert shop.mam("agent", "send", name, "Which jobs did you do before?").code == 0
    told = f"REMEMBERED: {', '.join(jobs)}"
    until(lambda: told in " ".join(life.screen(shop, name).split()), what=f"{name} says {told}")


def test_out_of_its_sandbox_codex_commits_in_its_worktree_and_reaches_no_hook(shop: Root) -> None:
    sandbox_of_codex(shop.path)
    creator = writer(shop, "codex", *CODEX)
    critic = reviewer(shop, "grok", *GROK, package="grok_cli_bin")
    before = files_of(shop.path)

    hook, tried = shop.path / ".git" / "hooks" / "x", shop.path / ".git" / "worktrees" / TREE / "tried"
    done = loop(shop, creator, "--promote", "merge", more=f"AS {creator} RUN: touch {hook} || touch {tried}\n")

    assert tried.exists() and not hook.exists()
    assert verdicts_of(done) == [{critic: "not_pass"}, {critic: "pass"}]
    assert git(shop.path, "log", "--format=%s", "-3").split("\n") == ["Take the discount off", "A discount", "prices"]
    assert git(shop.path, "rev-parse", "main") == done["head_sha"] == done["rounds"][1]["head"]
    changed = {name for name, content in files_of(shop.path).items() if before.get(name) != content}
    assert changed == {"at", "price.py"}
    nothing_is_left_of_reviews(shop)
    every_job_verifies(shop, done, 4)


def test_claude_writes_in_a_worktree_once_a_person_has_trusted_it(shop: Root) -> None:
    forget_trust_of_claude()
    creator = writer(shop, "claude", *CLAUDE)
    until(lambda: shop.session(creator).screen == "dialog", what="the question for trust is recognised")
    why = shop.ok("why", creator)
    assert f"mam agent attach {creator}" in why["next"]
    a_person_says_yes(shop, creator)
    critic = reviewer(shop, "grok", *GROK, package="grok_cli_bin")

    done = loop(shop, creator)

    assert verdicts_of(done) == [{critic: "not_pass"}, {critic: "pass"}]
    assert git(shop.path, "rev-parse", TREE) == done["head_sha"]
    nothing_is_left_of_reviews(shop)
    every_job_verifies(shop, done, 4)


def forget_trust_of_claude() -> None:
    path = Path.home() / ".claude.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "projects": {}}), "utf-8")


def a_person_says_yes(shop: Root, name: str) -> None:
    """Choose the answer that begins with Yes: which one is preselected differs from version to version."""
    session = shop.session(name)
    mux = runtime.multiplexer(shop.parts, session)
    if not re.search(r"^ *❯ (1\. )?Yes", life.screen(shop, name), re.M):
        mux.press(session.pane, "Down")
        until(lambda: re.search(r"^ *❯ (\d\. )?Yes", life.screen(shop, name), re.M), what="Yes is chosen")
    mux.press(session.pane, "Enter")
    until(lambda: shop.session(name).screen == "ready", what=f"{name} takes a prompt")
