"""The real `mam`, run in a process of its own, and what it said."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.forked import Verb, fork_mam
from tests.support.sizes import FULL

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
    *words: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout_s: float = 60,
    anew: bool = FULL,
) -> Said:
    """
    Run the real `mam` in a process of its own, and wait for its end.

    Where *anew* it begins with the interpreter, as for a user. Otherwise it is forked from a process that has imported
    MAM already, which takes a tenth of the time; but for an environment that an interpreter reads as it starts.

    Raises subprocess.TimeoutExpired, after it killed the verb.
    """
    environ = {**os.environ, **(env or {})}
    given = stdin.encode("utf-8", "surrogateescape")
    verb = None if anew else fork_mam([MAM, *words], str(cwd), environ)
    if verb is not None:
        out, err = verb.communicate(given, timeout=timeout_s)
        return Said(verb.wait(), out, err)
    done = subprocess.run([MAM, *words], cwd=cwd, env=environ, input=given, capture_output=True, timeout=timeout_s)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def start_mam(*words: str, cwd: Path, env: Mapping[str, str], stdin: str = "") -> "Verb | subprocess.Popen[str]":
    """Begin the real `mam` as `run_mam` does, and go on beside it."""
    environ = {**os.environ, **env}
    child = (None if FULL else fork_mam([MAM, *words], str(cwd), environ)) or subprocess.Popen(
        [MAM, *words], cwd=cwd, env=environ, stdin=-1, stdout=-1, stderr=-1, text=True
    )
    assert child.stdin is not None
    with child.stdin as file:
        file.write(stdin)
    return child
