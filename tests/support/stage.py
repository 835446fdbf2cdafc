"""A control root with reviewers that do what a test wrote down for its loop, and loops driven as a user drives them."""

import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mam.broker.host import process_identity
from mam.control_plane.loops import jobs as loop_jobs
from mam.control_plane.loops import store as loop_store
from mam.control_plane.loops.state import LoopState
from mam.control_plane.registry.records import LIVE, Job, Loop
from tests.support import Root, Said, git, until
from tests.support.commands import start_mam
from tests.support.forked import Verb

REVIEWERS = ("rev-a", "rev-b", "rev-c")
ACTOR = Path(__file__).with_name("actor.py")
Step = dict[str, str]
Child = Verb | subprocess.Popen[str]


class Stage:
    def __init__(self, root: Root) -> None:
        self.root = root
        self.plans = root.path.parent / "plans"
        self.plans.mkdir()
        root.env |= {"MAM_SESSION_BUSY_RETRY_S": "0.2"}
        self.children: list[Child] = []

    # -- people and places --------------------------------------------------------------------

    def agent(self, name: str, *words: str, role: str = "reviewer") -> None:
        """An agent that plays what `plan` says; where nothing is said it passes, or is done."""
        script = self.plans / "script.json"
        command = shlex.join([sys.executable, str(ACTOR), str(self.plans)])
        script.write_text(json.dumps([{"shell": command}]), "utf-8")
        create = ["agent", "create", name, "--agent", "scripted", "--role", role, *words]
        said = self.root.mam(*create, "--", "--script", str(script))
        assert said.code == 0, said.err

    def tree(self, name: str = "") -> Path:
        """A worktree on a branch of its own."""
        name = name or f"tree-{secrets.token_hex(3)}"
        path = self.root.path.parent / "trees" / name
        git(self.root.path, "worktree", "add", "-q", "-b", name, str(path))
        return path

    def change(self, tree: Path, name: str = "", text: str = "new\n") -> str:
        """Commit one file, called like its worktree; the new head."""
        name = name or f"{tree.name}.txt"
        (tree / name).write_text(text, "utf-8")
        git(tree, "add", "--", name)
        git(tree, "commit", "-qm", f"change {name}")
        return git(tree, "rev-parse", "HEAD")

    def changed(self) -> Path:
        """A worktree with one commit to review."""
        tree = self.tree()
        self.change(tree)
        return tree

    # -- loops --------------------------------------------------------------------------------

    def plan(self, **turns: Sequence[Sequence[Step]]) -> str:
        """
        A loop id, and what agents do in it: a list of steps a turn, the last one repeats; `_` stands for `-`.

        Steps: {"report": "pass" | "not_pass" | "done" | "failed", "text": …, "words": more of the command},
        {"sh": command}, {"gate": name} (waits until `go` opens it).
        """
        loop = f"loop-{secrets.token_hex(4)}"
        content = {name.replace("_", "-"): list(each) for name, each in turns.items()}
        (self.plans / f"{loop}.json").write_text(json.dumps(content), "utf-8")
        return loop

    def words(self, tree: Path | str, loop: str, *more: str, reviewers: Sequence[str] = ("rev-a",)) -> list[str]:
        given = "--worktree" in more or not str(tree)
        own = [] if given else ["--worktree", str(tree)]
        whose = [] if "--creator" in more else ["--review-only"]
        return ["loop", "run", "--task", "-", *whose, "--reviewers", ",".join(reviewers), *own, "--id", loop, *more]

    def run(
        self,
        tree: Path | str,
        loop: str,
        *more: str,
        reviewers: Sequence[str] = ("rev-a",),
        task: str = "look at it",
        **how: Any,
    ) -> Said:
        """`mam loop run --json` to its end."""
        words = self.words(tree, loop, *more, reviewers=reviewers)
        return self.root.mam(*words, "--json", stdin=task, timeout_s=150, **how)

    def start(self, tree: Path, loop: str, *more: str, reviewers: Sequence[str] = ("rev-a",), fault: str = "") -> Child:
        """`mam loop run` in a process that the test goes on beside."""
        return self.spawn(*self.words(tree, loop, *more, reviewers=reviewers), fault=fault)

    def spawn(self, *words: str, fault: str = "") -> Child:
        fault_env = {"MAM_FAULT": f"cli@{fault}"} if fault else {}
        env = {**self.root.env, **fault_env}
        child = start_mam(*words, "--json", cwd=self.root.path, env=env, stdin="look at it\n")
        self.children.append(child)
        return child

    def resume(self, loop: str) -> Said:
        return self.root.mam("loop", "resume", loop, "--json", timeout_s=150)

    def reached(self, loop: str, gate: str, *agents: str) -> None:
        for agent in agents:
            place = self.plans / f"{loop}.{gate}.at.{agent}"
            until(place.exists, what=f"{agent} stands at {gate}")

    def go(self, loop: str, gate: str) -> None:
        (self.plans / f"{loop}.{gate}.go").touch()

    def row(self, loop: str) -> Loop:
        with self.root.registry.view() as view:
            return loop_store.need(view, loop)

    def row_or_none(self, loop: str) -> Loop | None:
        with self.root.registry.view() as view:
            return view.loop(loop)

    def state(self, loop: str) -> LoopState:
        return loop_store.state_of(self.row(loop))

    def job(self, loop: str, number: int, reviewer: str | None = None) -> Job:
        job: Job = self.root.job(loop_jobs.job_id(loop, number, reviewer))
        return job

    def folder(self, loop: str) -> Path:
        return Path(self.row(loop).folder)

    def out(self, loop: str, agent: str) -> str:
        """What the `sh` steps of an agent printed in a loop."""
        path = self.plans / f"{loop}.{agent}.out"
        return path.read_text("utf-8") if path.exists() else ""

    def prompts(self, loop: str, agent: str) -> list[str]:
        """The first line of each prompt of a loop that was typed into an agent's pane."""
        memory = self.root.parts.layout.run_dir(agent) / "memory.json"
        heard = json.loads(memory.read_text("utf-8")) if memory.exists() else []
        return [line for prompt in heard if (line := prompt.splitlines()[0]).startswith(f"[MAM job {loop}-")]

    # -- what is left --------------------------------------------------------------------------

    def benches(self) -> list[str]:
        """Review trees that git or the disk still know."""
        listed = git(self.root.path, "worktree", "list", "--porcelain").splitlines()
        reviews = self.root.parts.layout.reviews
        known = [line for line in listed if line.startswith("worktree ") and "/.reviews/" in line]
        return known + [str(path) for path in reviews.glob("*/*")]

    def pins(self, loop: str) -> list[str]:
        return git(self.root.path, "for-each-ref", "--format=%(refname)", f"refs/mam/review/{loop}").splitlines()

    def quiet(self) -> None:
        """Nobody works any more: what a test left open is ended, and who is gone comes back."""
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        self.children.clear()
        for plan in self.plans.glob("loop-????????.json"):
            self.go(plan.stem, "all")
        with self.root.registry.view() as view:
            loops, jobs = view.loops(only_open=True), view.open_jobs()
        for loop in loops:
            self.root.mam("loop", "cancel", loop.id)
        for job in jobs:
            self.root.mam("job", "cancel", job.id)
        for name in REVIEWERS:
            self.back(name)

    def back(self, name: str) -> None:
        """Have an agent alive."""
        if self.root.session(name).status not in LIVE:
            assert self.root.mam("agent", "resume", name).code == 0

    def idle(self, *agents: str) -> None:
        """Wait until agents have no open job."""

        def free() -> bool:
            with self.root.registry.view() as view:
                return not any(view.open_job(agent) for agent in agents)

        until(free, what=f"{agents} are idle")

    def kill_agent(self, name: str) -> None:
        """The agent's own process dies, as by a crash of the CLI."""
        session = self.root.session(name)
        os.kill(session.agent_pid, 9)
        until(lambda: self.root.session(name).status == "ended", what=f"{name} is known to be gone")
        assert not process_identity.alive(
            process_identity.ProcessId(session.agent_pid, session.agent_start, session.boot_id)
        )


def main_checkout(folder: Path) -> dict[str, str]:
    """Everything of a main checkout that a loop must leave as it is, down to the bytes of its index."""
    quiet = ["--no-optional-locks", "-c", "core.quotePath=false"]
    dot_git = folder / ".git"
    hooks = {path.name: (path.read_bytes().hex(), path.stat().st_mode) for path in (dot_git / "hooks").iterdir()}
    return {
        "status": git(folder, *quiet, "status", "--porcelain=v2", "--branch", "--ignored", "--untracked-files=all"),
        "head": (dot_git / "HEAD").read_text(),
        "branches": git(folder, "for-each-ref", "refs/heads", "refs/tags", "refs/remotes"),
        "index": (dot_git / "index").read_bytes().hex(),
        "config": (dot_git / "config").read_text(),
        "hooks": json.dumps(hooks, sort_keys=True),
        "stash": git(folder, "stash", "list"),
    }
