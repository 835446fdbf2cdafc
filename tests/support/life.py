"""A whole life of a control root through the verbs of its user, with a decoy in all that a user writes or exports."""

import secrets
import time
from pathlib import Path

from mam.control_plane.jobs import delegate as delegation
from tests.support import Root, Said, until, witness
from tests.support.witness import Seen

DECOY = secrets.token_bytes(32)


class Life:
    """A control root whose every output is kept, with decoys in all that a user writes or exports."""

    def __init__(self, root: Root, tmp_path: Path) -> None:
        self.root = root
        root.anew = True  # command lines and environments of verbs are looked at
        root.env["DECOY"] = DECOY.hex()
        self.script = tmp_path / f"{DECOY.hex()}.json"
        self.script.write_text("[]")
        self.outputs: list[Seen] = []
        self.snapshots: list[Seen] = []

    def mam(self, *words: str, code: int = 0, stdin: str = "") -> Said:
        said = self.root.mam(*words, stdin=stdin)
        assert said.code == code, f"mam {' '.join(words)} → {said.code}\n{said.out}\n{said.err}"
        self.outputs.append(Seen("output", f"output of mam {' '.join(words[:2])}", (said.out + said.err).encode()))
        return said

    def agent(self, name: str, mux: str) -> None:
        self.mam("agent", "create", name, "--agent", "scripted", "--mux", mux, "--", "--script", str(self.script))

    def brief(self, *steps: str) -> str:
        return f"keep {DECOY.hex()} in mind\nSCRIPT: [{', '.join(steps)}]\n"

    def delegate(self, to: str, *steps: str) -> str:
        words = ["job", "delegate", "--to", to, "--brief", "-", "--json"]
        job: str = self.mam(*words, stdin=self.brief(*steps)).json["id"]
        return job

    def look(self) -> None:
        """Keep what lies on the disk, in the tables and in tmux at this moment."""
        parts = self.root.parts
        self.snapshots += witness.files(self.root.path)
        self.snapshots += witness.tables(parts.layout.database)
        self.snapshots += witness.tmux(parts.mux_server("tmux"))

    def many_jobs(self, agents: list[str], count: int) -> None:
        """Run *count* short jobs, one at a time for each of *agents*."""
        mam, brief = self.root.parts, self.brief(f'{{"report": {{"text": "{DECOY.hex()}"}}}}')
        made, deadline = 0, time.monotonic() + 150
        while made < count:
            assert time.monotonic() < deadline, f"only {made} jobs"
            with mam.registry.view() as view:
                free = [name for name in agents if view.open_job(name) is None]
            for name in free[: count - made]:
                delegation.delegate(mam, name, brief)
                made += 1
            time.sleep(0.01)  # what is waited for is not one event but whichever job ends next
        until(lambda: not self._open())

    def _open(self) -> int:
        with self.root.registry.view() as view:
            return len(view.open_jobs())


STARTED = '{"started": {}}'
NOTE = f'{{"progress": "{DECOY.hex()}"}}'
SHELL = f'{{"shell": "sleep 0.3; : {DECOY.hex()}"}}'
REPORT = f'{{"report": {{"text": "{DECOY.hex()}", "verdict": "pass"}}}}'
FAIL = '{"report": {"text": "no", "result": "failed"}}'


def live(life: Life, name: str) -> None:
    """Every verb of a user, around agent *name*: brief, report, verdict, retry, cancel, stop, resume, looks."""
    first = life.delegate(name, STARTED, NOTE, SHELL, REPORT)
    life.mam("job", "wait", first, "--timeout", "60")
    second = life.delegate(name, STARTED, FAIL)
    life.mam("job", "wait", second, "--timeout", "60", code=3)
    life.mam("job", "retry", second)
    life.mam("job", "wait", second, "--timeout", "60", code=3)
    life.look()
    life.mam("agent", "send", name, f"remember {DECOY.hex()}")
    third = life.delegate(name, STARTED, '{"hang": {}}')
    until(lambda: life.root.job(third).state == "running")
    life.mam("why", third)
    life.mam("agent", "stop", name, code=5)
    life.mam("job", "cancel", third)
    life.mam("agent", "stop", name, "--force")
    life.mam("why", name)
    life.mam("agent", "resume", name)
    for words in (["job", "show", first], ["verify", first], ["why", first], ["agent", "show", name], ["tail", first]):
        life.mam(*words, "--json", *(["--no-follow", "--since", "600"] if words[0] == "tail" else []))
    life.mam("job", "show", "job-unknown1", code=2)
    life.mam("job", "delegate", "--to", "nobody", "--brief", "-", "--json", stdin="x", code=2)


def looks(life: Life) -> None:
    """The verbs that show or keep the whole."""
    for words in ("status", "status --json", "doctor", "doctor --json", "agent list", "job list --json"):
        life.mam(*words.split())
    for words in ("broker status", "registry backup", "registry export", "registry import", "completion bash"):
        life.mam(*words.split())
