"""A control root with something of everything in it, made by the released `mam` and left without a running process."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.installations import Installation
from tests.support.repositories import git
from tests.support.waiting import until

REPORT = {"report": {"text": "Done.", "result": "done"}}
FAILED = {"report": {"text": "No database.", "result": "failed"}}
PASS = {"report": {"text": "Good.", "verdict": "pass"}}
ASK = {"shell": "mam job ask --registry-dir $MAM_JOBS_DIR --job job-open --attempt 1 --no-wait --choices a,b which"}
COMMIT = {"shell": "echo new > new.txt && git add . && git commit -qm work"}
PASSED, STUCK, HALF, WAITS = (f"loop-0000000{number}" for number in range(1, 5))

SCRIPTS: dict[str, list[Any]] = {
    "writer": [[COMMIT, REPORT], [{"started": {}}, REPORT], [{"started": {}}, FAILED], [{"hang": {}}]],
    "rev-a": [[{"started": {}}, PASS], [FAILED]],
    "rev-b": [[PASS], [{"hang": {}}]],
    "asker": [[{"started": {}}, ASK, {"hang": {}}]],
    "mute": [[{"hang": {}}]],
    "left": [[REPORT]],
}


class Recording:
    """Drives one installation in a new repository at *place*, beside nothing else."""

    def __init__(self, mam: Installation, place: Path) -> None:
        self.mam, self.path = mam, place / "repo"
        self.env = environment(mam, place)
        self.children: list[subprocess.Popen[bytes]] = []
        place.mkdir(parents=True, exist_ok=True)
        (place / "home").mkdir()
        git(place, "init", "-q", "repo")
        for name, value in (("user.name", "Test"), ("user.email", "test@localhost")):
            git(self.path, "config", name, value)
        (self.path / "README").write_text("a project\n", "utf-8")
        git(self.path, "add", ".")
        git(self.path, "commit", "-qm", "first")

    def run(self, *words: str, stdin: str = "", ok: Sequence[int] = (0,)) -> Any:
        """A verb with --json; its result. Fails where its exit code is not one of *ok*."""
        own = words.index("--") if "--" in words else len(words)
        argv = [self.mam.mam, *words[:own], "--json", *words[own:]]
        done = subprocess.run(
            argv, cwd=self.path, env=self.env, input=stdin.encode(), capture_output=True, timeout=60, check=False
        )
        assert done.returncode in ok, f"mam {' '.join(words)} → {done.returncode}\n{done.stderr.decode()}"
        return json.loads(done.stdout) if done.stdout else None

    def begin(self, *words: str) -> None:
        """A verb in a process of its own, with its task in a file."""
        task = self.path.parent / "task.md"
        task.write_text("look at it\n", "utf-8")
        with task.open("rb") as source:
            argv = [self.mam.mam, *words]
            quiet = subprocess.DEVNULL
            child = subprocess.Popen(argv, cwd=self.path, env=self.env, stdin=source, stdout=quiet, stderr=quiet)
        self.children.append(child)

    def agent(self, name: str, *words: str, role: str = "creator", script: list[Any] | None = None) -> None:
        file = self.path.parent / f"{name}.json"
        file.write_text(json.dumps(SCRIPTS[name] if script is None else script), "utf-8")
        self.run("agent", "create", name, "--agent", "scripted", "--role", role, *words, "--", "--script", str(file))

    def job(self, to: str, job: str, *words: str) -> None:
        self.run("job", "delegate", "--to", to, "--brief", "-", "--id", job, *words, stdin=f"the task of {job}\n")

    def state(self, job: str) -> str:
        found: str = self.run("job", "show", job)["state"]
        return found

    def end(self) -> None:
        """Kill every process that works in this place, all at once, so that none can record another's end."""
        for child in self.children:
            child.kill()
        here = [process for process in psutil.process_iter() if self._is_here(process)]
        for process in here:
            process.suspend()
        for process in here:
            process.kill()
        psutil.wait_procs(here, timeout=30)
        for child in self.children:
            child.wait()

    def _is_here(self, process: psutil.Process) -> bool:
        try:
            words, binding = process.cmdline(), process.environ().get("WORKSPACE_ROOT")
        except psutil.Error:
            return False
        return binding == str(self.path) or any(word.startswith(f"{self.path}/") for word in words)


def environment(mam: Installation, place: Path, **more: str) -> dict[str, str]:
    """What a verb of *mam* sees in the control root at *place*: nothing of the caller's own."""
    path = os.pathsep.join([str(mam.scripts), os.environ.get("PATH", os.defpath)])
    given = {"PATH": path, "HOME": str(place / "home"), "LANG": "C.UTF-8", "COLUMNS": "200", "MAM_MUX": "headless"}
    quick = {
        "MAM_HEARTBEAT_S": "1",
        "MAM_STUCK_AFTER_S": "2",
        "MAM_STALLED_AFTER_S": "2",
        "MAM_SESSION_BUSY_RETRY_S": "0.2",
    }
    git_alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return {**given, **quick, **git_alone, **more}


def record(mam: Installation, place: Path) -> Recording:
    """
    Agents of each status, jobs in each state, loops that ended, are stuck and were killed, leases and a ticket.

    On paper agents, monitor and broker are alive; in truth all of them are dead.
    """
    made = Recording(mam, place)
    try:
        _agents_and_loops(made)
        _jobs(made)
        _leases(made)
        _wait(lambda: made.run("status")["findings"], "a finding")
    finally:
        made.end()
    return made


def _agents_and_loops(made: Recording) -> None:
    made.run("init")
    for tree in ("tree-a", "tree-b", "tree-c", "tree-d"):
        made.run("worktree", "prepare", tree, "--no-venv")
    made.agent("writer", "--worktree", "tree-a")
    for name in ("rev-a", "rev-b"):
        made.agent(name, role="reviewer")
    run = ["loop", "run", "--task", "-", "--reviewers"]
    passed = ["--creator", "writer", "--worktree", "tree-a", "--promote", "branch", "--id", PASSED]
    made.run(*run, "rev-a,rev-b", *passed, stdin="make it\n")
    trees = {each["name"]: Path(each["path"]) for each in made.run("worktree", "list")}
    for name in ("tree-b", "tree-c", "tree-d"):
        (trees[name] / "change.txt").write_text(name, "utf-8")
        git(trees[name], "add", ".")
        git(trees[name], "commit", "-qm", f"change {name}")
    made.run(*run, "rev-a", "--review-only", "--worktree", "tree-b", "--id", STUCK, stdin="look\n", ok=(1,))
    (trees["tree-a"] / "dirt.txt").write_text("not committed\n", "utf-8")


def _jobs(made: Recording) -> None:
    for job in ("job-done", "job-failed"):
        made.job("writer", job)
        made.run("job", "wait", job, ok=(0, 3))
    made.job("writer", "job-cancelled")
    _wait(lambda: made.state("job-cancelled") == "dispatched", "it is dispatched")
    made.run("job", "cancel", "job-cancelled", "--reason", "not needed")
    made.agent("asker")
    made.job("asker", "job-open")
    _wait(lambda: made.state("job-open") == "running", "it asks")
    made.agent("mute")
    made.job("mute", "job-lost")
    _wait(lambda: made.state("job-lost") == "dispatched", "it is dispatched")
    made.run("agent", "stop", "mute", "--force")
    made.agent("left")
    made.job("left", "job-archived")
    made.run("job", "wait", "job-archived")
    made.run("job", "archive", "job-archived")
    made.run("agent", "stop", "left")


def _leases(made: Recording) -> None:
    run = ["loop", "run", "--task", "-", "--review-only", "--reviewers", "rev-b", "--worktree"]
    made.begin(*run, "tree-c", "--id", HALF)
    _wait(lambda: any(each["id"] == f"{HALF}-r1-rev-b" for each in made.run("job", "list")), "the reviewer has its job")
    made.begin(*run, "tree-d", "--id", WAITS)
    _wait(lambda: WAITS in json.dumps(made.run("queue")), "the second loop waits")


def _wait(true: Callable[[], Any], what: str) -> None:
    until(true, what=what, within_s=60)
