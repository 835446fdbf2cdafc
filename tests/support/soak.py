"""
A soak: agents work off jobs without a break while every part is killed at random, and nothing may get lost.

Usage: python -m tests.support.soak --minutes 30 --agents 10 --jobs 2000 --seed 1 [--folder DIR]

Exit code 0 where every claim held. The folder (kept where one did not) holds the control root, and `timeline.jsonl`:
the seed, each strike and each problem. The same seed gives the same jobs and the same strikes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.support import Root
from tests.support.soaking import checks, strikes
from tests.support.soaking.orchestra import Orchestra
from tests.support.soaking.samples import Sampler, Trend
from tests.support.soaking.strikes import Striker

TURN_S = 0.1
IN_TMUX = 3  # every third agent lives in a real tmux


class Wish(NamedTuple):
    seed: int
    length_s: float
    agents: int
    jobs: int
    strikes_a_minute: float = 6.0
    drain_s: float = 240.0


class Soaked(NamedTuple):
    """What came of it. *problems* is empty where every claim held."""

    took_s: float
    jobs: Counter[str]
    strikes: Counter[str]
    did: Counter[str]
    events: int
    store_mb: float  # what the broker keeps on disk
    trends: list[Trend]
    problems: list[str]

    def text(self) -> str:
        def listed(counted: Counter[str]) -> str:
            return ", ".join(f"{number} {what}" for what, number in sorted(counted.items()))

        lines = [
            f"{self.jobs.total()} jobs in {self.took_s:.0f} s, {self.events} events",
            f"broker's store: {self.store_mb:.1f} MB",
            f"ended as scripted: {listed(self.jobs)}",
            f"kill -9: {self.strikes.total()}: {listed(self.strikes)}",
            f"done by the orchestrator: {listed(self.did)}",
            *[trend.text() for trend in self.trends],
            f"{len(self.problems)} problems",
            *self.problems,
        ]
        return "\n".join(lines)


def soak(root: Root, wish: Wish) -> Soaked:
    """Run one soak in *root*, which is made already; the caller cleans it."""
    folder = root.path.parent
    agents = [f"agent{number:02d}" for number in range(wish.agents)]
    for number, name in enumerate(agents):
        mux = "tmux" if number % IN_TMUX == IN_TMUX - 1 else "headless"
        root.ok("agent", "create", name, "--agent", "scripted", "--mux", mux)
    mam = root.parts
    orchestra = Orchestra(mam, {**os.environ, **root.env}, agents, wish.seed, folder)
    planned = strikes.plan(wish.seed, wish.length_s, wish.strikes_a_minute, wish.agents)
    striker, sampler = Striker(mam, planned, agents, folder / "timeline.jsonl"), Sampler(mam)
    striker.note({"wish": wish._asdict()})
    orchestra.striker = striker
    began = time.monotonic()
    striker.start()
    sampler.start()
    _work(orchestra, wish, began)
    striker.halt()
    striker.note({"phase": "drain"})
    _drain(orchestra, wish.drain_s)
    striker.note({"phase": "at rest"})
    sampler.halt()
    problems = orchestra.problems + _at_rest(root, orchestra, folder)
    for problem in problems:
        striker.note({"problem": problem})
    jobs = Counter(planned.kind.name for planned in orchestra.ended.values())
    with mam.registry.view() as view:
        events = view.last_event()
    took_s, store_mb = time.monotonic() - began, _size_mb(mam.layout.broker)
    return Soaked(took_s, jobs, striker.done, orchestra.did, events, store_mb, sampler.trends(), problems)


def _size_mb(folder: Path) -> float:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            pass  # the broker goes on meanwhile
    return size / 2**20


def _work(orchestra: Orchestra, wish: Wish, began: float) -> None:
    while (passed_s := time.monotonic() - began) < wish.length_s:
        orchestra.turn(min(wish.jobs, 1 + int(wish.jobs * passed_s / wish.length_s)))
        time.sleep(TURN_S)


def _drain(orchestra: Orchestra, within_s: float) -> None:
    """Nobody strikes any more, no new job: all that is under way comes to its end."""
    deadline = time.monotonic() + within_s
    while orchestra.under and time.monotonic() < deadline:
        orchestra.turn(0)
        time.sleep(TURN_S)
    for job_id, under in orchestra.under.items():
        said = orchestra.explain(job_id).text()
        orchestra.problems.append(f"{job_id} ({under.planned.kind.name}) did not end within {within_s:g} s:\n{said}")


def _at_rest(root: Root, orchestra: Orchestra, folder: Path) -> list[str]:
    """What is still wrong once everything had time to settle: agents to come back, spools to be swept."""
    mam, deadline = root.parts, time.monotonic() + 60
    for leftover in mam.layout.jobs.iterdir():
        if leftover.name not in orchestra.ended:
            os.utime(leftover, (1, 1))  # doctor leaves alone what may be in the making
    while True:
        orchestra.turn(0)
        found = checks.all_of(mam, orchestra.ended, folder / "answers")
        if not found or time.monotonic() > deadline:
            return found
        orchestra.note({"not yet": found[:5]})
        time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strikes", type=float, default=6.0, help="kill -9 a minute")
    parser.add_argument("--folder", type=Path, default=None, help="a new folder (default: a temporary one)")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="mam-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    _scrub(folder)
    root = Root(folder / "repo", mux="headless")
    try:
        root.make()
        soaked = soak(root, Wish(args.seed, args.minutes * 60, args.agents, args.jobs, args.strikes))
    finally:
        clean(root)
    print(soaked.text())
    note_figures(soaked)
    print(f"seed {args.seed}, timeline in {folder / 'timeline.jsonl'}")
    return 1 if soaked.problems else 0


def clean(root: Root) -> None:
    root.clean()
    subprocess.run(["tmux", "-L", root.parts.mux_server("tmux"), "kill-server"], capture_output=True)


def _scrub(folder: Path) -> None:
    """Nothing of the caller's own control plane reaches the soak."""
    for name in [name for name in os.environ if name.startswith(("MAM_", "GIT_")) and name != "MAM_TEST_FIGURES"]:
        del os.environ[name]
    for name in ("WORKSPACE_ROOT", "AGENT_SESSIONS_YAML", "DELEGATE_JOB_LOGS_DIR", "TMUX", "TMUX_PANE", "CLAUDECODE"):
        os.environ.pop(name, None)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    os.environ |= {"HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def note_figures(soaked: Soaked) -> None:
    """Append what was measured to the file that MAM_TEST_FIGURES names, a JSON object a line."""
    target = os.environ.get("MAM_TEST_FIGURES")
    if not target:
        return
    values: dict[str, object] = {
        "jobs": soaked.jobs.total(),
        "kills": soaked.strikes.total(),
        "events": soaked.events,
        "broker's store MB": round(soaked.store_mb, 1),
        "problems": len(soaked.problems),
    }
    for trend in soaked.trends:
        values[f"{trend.what}: RSS MB"] = [round(value, 1) for value in trend.rss_mb]
        values[f"{trend.what}: open files"] = list(trend.open_files)
    with open(target, "a", encoding="utf-8") as file:
        for name, value in values.items():
            file.write(json.dumps({"row": "soak", "name": name, "value": value}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
