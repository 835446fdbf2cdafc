"""
The door to other programs: run one and read it, start one and let it live, or become one.

Beside it stand, each with its reason where ruff would refuse it: the children in a terminal of their own
(runner/agent_process.py, mux/headless_host.py) and benchmarks that measure a start itself. Git is run by GitPython, in
git/command.py alone.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mam.broker.errors import MamError, field
from mam.broker.host import fault_points, rotated_log

SHOWN_CHARS = 2000

# Variables of a parent agent or multiplexer. A child that inherits them believes that it runs inside that parent.
NESTED = ("TMUX", "TMUX_PANE", "TMUX_TMPDIR", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_THREAD_ID", "MAM_VERSION")
SECRET = ("MAM_BROKER_PASSWORD",)  # a runner reads it from a file; an agent must not have it
NESTED_PREFIXES = ("HERDR_", "CMUX_")
# What git leaves to its hooks and to `git -c`: inherited, it would make a child's git work on the caller's repository.
# All that `git rev-parse --local-env-vars` names in any version, and what a push leaves to the hooks of its receiver.
OF_GIT = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_INDEX_FILE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
    *("GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE"),
    *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_QUARANTINE_PATH", "GIT_REFLOG_ACTION"),
)


class CommandFailed(MamError):
    """A program ended with an exit status that was not expected. ``data`` holds it as *code*."""

    command: str
    exit_status: int = field(alias="code")
    stdout: str
    stderr: str

    code = "command_failed"
    message = "{command}\n  exit code {code}\n  stdout: {stdout}\n  stderr: {stderr}"
    remedy_text = "put right what it names (run it by hand to see all of it), then give the same command again"


class CommandTimedOut(MamError):
    """A program ran longer than it was allowed to, and was killed."""

    command: str
    timeout_s: float

    code = "command_timed_out"
    message = "{command} did not end within {timeout_s:g} s"
    remedy_text = "the machine may be overloaded: try again, and see what holds it"


class ProgramMissing(MamError):
    """A program is not installed, or cannot be run."""

    program: str

    code = "program_missing"
    message = "there is no program {program!r}"
    remedy_text = "install it, or give its whole path"


class DirectoryMissing(ProgramMissing):
    """The directory that a program was to run in is not there, or cannot be entered."""

    directory: str

    message = "{program} cannot run in {directory}: there is no such directory"
    remedy_text = "create it, or name another one"


class Done(NamedTuple):
    """A program that ended. *code* is negative where a signal ended it."""

    code: int
    stdout: str
    stderr: str


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = 30.0,
    expect: Sequence[int] = (0,),
) -> Done:
    """
    Run *argv* without a shell, wait for its end, and return its code and output. Bytes that are not UTF-8 are replaced.

    The program never gets MAM's broker password, even where *env* holds it.

    Raises:
        ProgramMissing: The program does not exist.
        DirectoryMissing: The directory *cwd* does not exist.
        CommandTimedOut: The program was killed after *timeout_s*.
        CommandFailed: The code is not one of *expect*. An empty *expect* allows all codes.
    """
    try:
        done = subprocess.run(
            list(argv),
            cwd=cwd,
            env=discreet(os.environ if env is None else env),
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        if cwd is not None and error.filename == str(cwd):
            raise DirectoryMissing(program=argv[0], directory=str(cwd)) from error
        raise ProgramMissing(program=error.filename or argv[0]) from error
    except subprocess.TimeoutExpired as error:
        raise CommandTimedOut(command=shlex.join(argv), timeout_s=timeout_s) from error
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    if expect and done.returncode not in expect:
        raise CommandFailed(command=shlex.join(argv), code=done.returncode, stdout=_shown(out), stderr=_shown(err))
    return Done(done.returncode, out, err)


def _shown(text: str) -> str:
    text = text.strip()
    return text if len(text) <= SHOWN_CHARS else "…" + text[-SHOWN_CHARS:]


def spawn(
    argv: Sequence[str],
    log: Path,
    cwd: Path,
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
) -> int:
    """
    Start *argv* in a session of its own, so that it outlives this process, and return its pid.

    Its output is appended to *log* (0600), which begins anew where it has grown large. It has no standard input.
    Raises ProgramMissing, and OSError where *log* cannot be opened.
    """
    fault_points.point("spawn")
    rotated_log.set_aside(log)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=discreet(os.environ) if env is None else env,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        raise ProgramMissing(program=error.filename or argv[0]) from error
    finally:
        os.close(descriptor)
    return child.pid


def replace_self(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process by another program. It does not return; it raises ProgramMissing where that fails."""
    try:
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        raise ProgramMissing(program=argv[0]) from error


def discreet(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without the secrets that only MAM itself needs."""
    return {key: value for key, value in environ.items() if key not in SECRET}


def unnested(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without what would tell a child that it runs inside another agent, pane or git hook."""
    left_out = (*NESTED, *SECRET, *OF_GIT)
    return {key: value for key, value in environ.items() if key not in left_out and not key.startswith(NESTED_PREFIXES)}


def unnested_pane(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for an agent in its own pane: *unnested*, but the pane's own variables stay."""
    kept = ("TMUX", "TMUX_PANE")  # they are true here, since the agent lives in that pane
    return {**unnested(environ), **{key: environ[key] for key in kept if key in environ}}
