"""
The last step of a soaked job, run by the scripted agent: writes a report of a given size and says so with `mam`.

What `mam job report` answered with 0 goes into a file of its own: the promise that the registry is held to. Runs as
`python -I -S reporter.py ANSWERS BYTES WORDS…`, standard library only.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path


def _commands(prompt: str) -> tuple[Path, list[str]]:
    """Where the report goes and the command that ends the job, from the prompt that is being played."""
    lines = [line.strip() for line in prompt.splitlines()]
    path = shlex.split(lines[lines.index("Write your report to:") + 1])[0]
    command = next(line for line in lines if " job report " in line)
    return Path(path), shlex.split(command)[:9]


def main(answers: Path, size: int, words: list[str]) -> int:
    memory = Path(os.environ["MAM_SPOOL"]).parent / "memory.json"
    report, command = _commands(json.loads(memory.read_text("utf-8"))[-1])
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_bytes(b"# Soaked\n" + b"x" * size)
    done = subprocess.run([*command, *words, "--json"], capture_output=True)
    if done.returncode == 0:
        said = {"job": command[6], "attempt": int(command[8]), "event": json.loads(done.stdout)["event"]}
        descriptor = os.open(answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, json.dumps(said).encode() + b"\n")
        os.close(descriptor)
    sys.stderr.buffer.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
