"""
The scripted agent's program: a composer like that of a real agent CLI, and a script instead of a model.

A script is a JSON list of steps, each an object with one key that says what to do:
``{"started": {}}``, ``{"progress": "note"}``, ``{"shell": "command"}``, ``{"wait": seconds}``,
``{"report": {"text": …, "result": "done", "verdict": "pass"}}``, ``{"say": "text"}``, ``{"ask": "question"}``,
``{"exit": code}``, ``{"hang": {}}``. A brief may bring its own on a line ``SCRIPT: […]``. A list of such lists is
one script a job: the second job plays the second, the last one repeats. A review's commands run in its tree.
"""

import json
import os
import re
import shlex
import sys
import termios
import time
import tty
from pathlib import Path
from typing import Any

from mam.agents.scripted import ASKS, BUSY, PROMPT
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability
from mam.wrappers import process

DEFAULT_SCRIPT: list[dict[str, Any]] = [
    {"started": {}},
    {"progress": "reading the brief"},
    {"report": {"text": "Done as the brief says.", "result": "done"}},
]
VERDICT_LINES = {"pass": "[VERDICT: PASS]", "not_pass": "[VERDICT: NOT PASS]"}
_SCRIPT_LINE = re.compile(r"^SCRIPT: (\[.*\])\s*$", re.MULTILINE)
_PASTE_ON, _PASTE_OFF = b"\x1b[?2004h", b"\x1b[?2004l"
_BEGIN, _END = b"\x1b[200~", b"\x1b[201~"


class Composer:
    """Reads prompts from a terminal in character mode, one at a time, and shows the draft until Enter."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._bytes = b""

    def read(self) -> str | None:
        """Return the next prompt, or None at the end of the input."""
        draft = b""
        self._show(draft)
        while True:
            taken = self._take()
            if taken is None:
                return None
            if taken in (b"\r", b"\n"):
                _out("\r\n")
                return draft.decode("utf-8", "replace")
            if taken == b"\x04":
                return None
            draft += taken
            self._show(draft)

    def _take(self) -> bytes | None:
        """One pasted piece, or one typed byte."""
        while True:
            if self._bytes.startswith(_BEGIN):
                end = self._bytes.find(_END)
                if end >= 0:
                    piece = self._bytes[len(_BEGIN) : end]
                    self._bytes = self._bytes[end + len(_END) :]
                    return piece
            elif self._bytes and not _BEGIN.startswith(self._bytes[: len(_BEGIN)]):
                taken, self._bytes = self._bytes[:1], self._bytes[1:]
                return taken
            more = os.read(self._fd, 65536)
            if not more:
                return None
            self._bytes += more

    def _show(self, draft: bytes) -> None:
        lines = draft.decode("utf-8", "replace").splitlines()
        shown = "" if not lines else lines[0][:60] if len(lines) == 1 else f"[pasted {len(lines)} lines]"
        _out(f"\r\x1b[K{PROMPT}{shown}")


class Player:
    """
    One scripted agent: it answers each prompt of a job with the steps of its script.

    Its *memory*, a file, holds every prompt that it has heard, so that a later life goes on with the next script.
    """

    def __init__(self, name: str, memory: Path, script: list[dict[str, Any]] | None) -> None:
        self._name, self._memory = name, memory
        self._script = script or DEFAULT_SCRIPT
        self._heard: list[str] = json.loads(memory.read_text("utf-8")) if memory.exists() else []
        self._composer = Composer(sys.stdin.fileno())

    def run(self) -> int:
        """Play until the input ends or a step says exit. Returns the exit code."""
        if self._heard:
            _say(f"{self._name}: going on, {len(self._heard)} prompts remembered")
        while (prompt := self._composer.read()) is not None:
            if not prompt.strip():
                continue
            self._remember(prompt)
            _out(f"\r{BUSY}")
            code = self._play(prompt)
            _out("\r\x1b[K")
            if code is not None:
                return code
        return 0

    def _remember(self, prompt: str) -> None:
        """Write the memory in one step, since a half-written one would end every later life at its start."""
        self._heard.append(prompt)
        atomic_files.write(self._memory, json.dumps(self._heard).encode(), Durability.PROCESS, point="memory.rename")

    def _play(self, prompt: str) -> int | None:
        job = JobPrompt.parse(prompt)
        if job is None:
            _say(f"{self._name}: heard {len(self._heard)} prompts, jobs {', '.join(_jobs(self._heard)) or 'none'}")
            return None
        for step in job.script() or _turn(self._script, len(_jobs(self._heard))):
            code = self._step(job, step)
            if code is not None:
                return code
        return None

    def _step(self, job: "JobPrompt", step: dict[str, Any]) -> int | None:
        match step:
            case {"started": _}:
                _shell(job.started)
            case {"progress": note}:
                _shell(f"{job.progress} --note {shlex.quote(str(note))}")
            case {"shell": command}:
                _shell(str(command), job.tree)
            case {"wait": seconds}:
                time.sleep(float(seconds))
            case {"say": text}:
                _say(str(text))
            case {"ask": question}:
                _out(f"\r\n{question}\r\n{ASKS} ")
                os.read(sys.stdin.fileno(), 1)
            case {"report": details}:
                job.report_path.parent.mkdir(parents=True, exist_ok=True)
                line = f"\n{VERDICT_LINES[details['verdict']]}\n" if job.tree and "verdict" in details else ""
                job.report_path.write_text(f"# {self._name}\n\n{details.get('text', '')}\n{line}", "utf-8")
                verdict = f" --verdict {details['verdict']}" if "verdict" in details else ""
                _shell(f"{job.report} --result {details.get('result', 'done')}{verdict}")
            case {"exit": code}:
                return int(code)
            case {"hang": _}:
                time.sleep(86400)
            case _:
                _say(f"{self._name}: cannot do {step}")
        return None


class JobPrompt:
    """The commands and paths that a job's prompt spells out, read from it as an agent reads them."""

    def __init__(self, commands: dict[str, str], brief: Path, report_path: Path) -> None:
        self.started, self.progress, self.report = commands["started"], commands["progress"], commands["report"]
        self.brief, self.report_path = brief, report_path

    @property
    def tree(self) -> Path | None:
        """The tree in which a review works; None for other jobs."""
        try:
            review = json.loads((self.brief.parent / "job.json").read_text("utf-8")).get("review")
        except (OSError, ValueError):
            return None
        return Path(review["tree"]) if review else None

    @classmethod
    def parse(cls, prompt: str) -> "JobPrompt | None":
        """Return what a job's prompt says; None for free text."""
        if not prompt.startswith("[MAM job "):
            return None
        # Paths may hold line breaks, so a command is read as the shell reads it, and not line by line.
        try:
            words = shlex.split(prompt, comments=False, posix=True)
        except ValueError:
            return None  # free text that begins like a job
        verbs: dict[str, str] = {}
        for i, word in enumerate(words[:-1]):
            if word == "job" and words[i + 1] in ("started", "progress", "report") and words[i + 1] not in verbs:
                verbs[words[i + 1]] = shlex.join(words[i - 1 : i + 8])
        paths = {Path(word).name: Path(word) for word in words if word.startswith("/")}
        if len(verbs) < 3 or not {"brief.md", "report-final.md"} <= paths.keys():
            return None
        return cls(verbs, paths["brief.md"], paths["report-final.md"])

    def script(self) -> list[dict[str, Any]] | None:
        """Return the script that the brief brings along, or None."""
        found = _SCRIPT_LINE.search(self.brief.read_text("utf-8", "replace"))
        return json.loads(found.group(1)) if found else None


def _turn(script: list[Any], job: int) -> list[dict[str, Any]]:
    """Return the steps of the *job*-th job, counted from 1."""
    if script and isinstance(script[0], list):
        turn: list[dict[str, Any]] = script[min(job, len(script)) - 1]
        return turn
    return script


def _jobs(prompts: list[str]) -> list[str]:
    return [found.group(1) for prompt in prompts if (found := re.match(r"\[MAM job ([a-z0-9_-]+)", prompt))]


def _shell(command: str, folder: Path | None = None) -> None:
    if folder is not None and not folder.is_dir():
        _say(f"there is no {folder}")
        return
    clean = ["env", "PYTHONDONTWRITEBYTECODE=1"] if folder else []  # a review's tree must stay as it is
    done = process.run([*clean, "sh", "-c", command], cwd=folder, timeout_s=600, expect=())
    _say(f"$ {command.splitlines()[0][:120]}")
    for line in (done.stdout + done.stderr).splitlines():
        _say(f"  {line}")
    if done.code:
        _say(f"  exit code {done.code}")


def _say(text: str) -> None:
    _out(f"\r\x1b[K{text}\r\n{BUSY}")


def _out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main(name: str, memory: Path, script_file: Path | None) -> int:
    """`mam play`: be a scripted agent in this terminal. Returns its exit code."""
    script = json.loads(script_file.read_text("utf-8")) if script_file else None
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    os.write(sys.stdout.fileno(), _PASTE_ON)
    try:
        return Player(name, memory, script).run()
    finally:
        os.write(sys.stdout.fileno(), _PASTE_OFF)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
