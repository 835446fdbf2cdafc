"""
What a scripted agent of the loop tests does with a job: what the test wrote down for this loop, agent and turn.

Run by the agent's one shell step, in the agent's directory or in the tree of its review, with the variables of its
pane. Usage: actor.py FOLDER
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

VERDICTS = {"pass": "[VERDICT: PASS]", "not_pass": "[VERDICT: NOT PASS]"}
WAIT_S = 120


class Turn:
    """One job of one agent: its place, and the plan for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.agent = folder, os.environ["MAM_SESSION"]
        # The prompt that was typed last, as the agent remembers it.
        heard = json.loads((Path(os.environ["MAM_SPOOL"]).parent / "memory.json").read_text("utf-8"))
        job, attempt = re.findall(r"^\[MAM job ([a-z0-9_-]+), attempt ([0-9]+)\]", heard[-1])[0]
        registry = os.environ["MAM_JOBS_DIR"]
        self.where = ["--registry-dir", registry, "--job", job, "--attempt", attempt]
        self.record = json.loads(Path(registry, job, "job.json").read_text("utf-8"))
        self.review = self.record.get("review")
        found = re.match(r"loop-[0-9a-f]{8}", job)
        self.loop = found.group() if found else ""

    def play(self) -> None:
        plans = self.folder / f"{self.loop}.json"
        turns = json.loads(plans.read_text()).get(self.agent, []) if plans.exists() else []
        mark = self.folder / f"{self.loop}.{self.agent}.turns"
        with mark.open("a") as file:
            file.write(f"{' '.join(self.where)}\n")
        number = len(mark.read_text().splitlines())
        steps = turns[min(number, len(turns)) - 1] if turns else [{"report": "pass"}]
        for step in steps:
            self.step(step)

    def step(self, step: dict[str, str]) -> None:
        match step:
            case {"gate": name}:
                (self.folder / f"{self.loop}.{name}.at.{self.agent}").touch()
                opened = [self.folder / f"{self.loop}.{each}.go" for each in (name, "all")]
                deadline = time.monotonic() + WAIT_S
                while not any(path.exists() for path in opened) and time.monotonic() < deadline:
                    time.sleep(0.02)
            case {"sh": command}:
                done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
                print(done.stdout + done.stderr)
                with (self.folder / f"{self.loop}.{self.agent}.out").open("a") as file:
                    file.write(done.stdout + done.stderr)
            case {"report": verdict, **more}:
                self.report(verdict, more)

    def report(self, verdict: str, more: dict[str, str]) -> None:
        words = ["--result", "failed" if verdict == "failed" else "done"]
        text = more.get("text", f"{self.agent} has looked.\n")
        if verdict in VERDICTS and self.review is not None:
            text += f"\n{VERDICTS[verdict]}\n"
            words += ["--verdict", verdict]
            if not self.review["tree"]:
                words += ["--head-sha", self.review["head_sha"]]
        words += more.get("words", "").split()
        report = Path(self.record["report"])
        report.parent.mkdir(exist_ok=True)
        report.write_text(text, "utf-8")
        command = [str(Path(sys.executable).parent / "mam"), "job", "report", *self.where, *words]
        subprocess.run(command, cwd=self.folder, check=True)  # its own directory may be gone by now


if __name__ == "__main__":
    Turn(Path(sys.argv[1])).play()
