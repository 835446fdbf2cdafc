"""The real `mam`, run in a process of its own, and what it said."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

MAM = str(Path(sys.executable).parent / "mam")


class Said(NamedTuple):
    """Exit code and output of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The typed error that `--json` put on standard error."""
        return json.loads(self.err.strip().splitlines()[-1])["error"]


def run_mam(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", timeout_s: float = 60
) -> Said:
    """Run the real `mam` in a process of its own."""
    environ = {**os.environ, **(env or {})}
    done = subprocess.run(
        [MAM, *words],
        cwd=cwd,
        env=environ,
        input=stdin.encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=timeout_s,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())
