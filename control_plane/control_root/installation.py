"""
Which installation of MAM serves a control root: monitor and runners start from that one alone.

A worktree of MAM's own repository has an installation too, made of what an agent writes there. It may ask, as any mam
may; it never becomes the control plane.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from mam.broker.errors import MamError

META = "runtime"  # the name of the fact in the registry


class RuntimeGone(MamError):
    """The program that serves this control root is not there any more. Nothing else takes its place by itself."""

    path: str
    remake: str

    code = "runtime_gone"
    exit_code = 2
    message = "the mam that serves this control root is gone: {path}"
    remedy_text = "`{remake}` has the mam that you run serve it from now on"


class OtherRuntime(MamError):
    """The running mam is not the one that serves this control root, and asked to do that one's work."""

    own: str
    recorded: str
    what: str
    remake: str

    code = "other_runtime"
    exit_code = 2
    message = "{own} does not {what}: {recorded} serves this control root"
    remedy_text = "use that one, or `{remake}` has the mam that you run serve it from now on"


def mam_command() -> str:
    """
    Return the path of this installation's console script.

    `python -m` must not be used: in a worktree of MAM it would import that worktree's own code.
    """
    own = Path(sysconfig.get_path("scripts")) / "mam"
    if os.access(own, os.X_OK):
        return str(own)
    started = Path(sys.argv[0]).absolute()
    return str(started) if started.name == "mam" else shutil.which("mam") or str(own)


def is_running(recorded: str) -> bool:
    """Whether the recorded program belongs to the running code."""
    return os.path.realpath(recorded) == os.path.realpath(mam_command())


def serving(recorded: str | None, root: Path) -> str:
    """Return the program that monitor and runners start from; the running one without a record. Raises RuntimeGone."""
    if recorded is None:
        return mam_command()
    if not os.access(recorded, os.X_OK):
        raise RuntimeGone(path=recorded, remake=remake(root))
    return recorded


def insist(recorded: str | None, root: Path, what: str) -> None:
    """Raise OtherRuntime, or RuntimeGone, where another program than the running one serves the control root."""
    if recorded is not None and not is_running(recorded):
        serving(recorded, root)
        raise OtherRuntime(own=mam_command(), recorded=recorded, what=what, remake=remake(root))


def remake(root: Path) -> str:
    """Return the command that records the running installation."""
    return f"mam init --runtime --root {shlex.quote(str(root))}"
