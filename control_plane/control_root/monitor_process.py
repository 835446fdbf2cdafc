"""The monitor as other processes see it: look whether it runs, start it, end it."""

import os

from mam.broker.errors import MamError
from mam.broker.host import ending, locks, process_identity
from mam.broker.host.ending import DoesNotEnd
from mam.broker.host.progress import Progress, silent
from mam.broker.host.waiting import wait_until
from mam.control_plane.config.layout import Layout
from mam.control_plane.control_root import installation
from mam.control_plane.control_root.context import Mam
from mam.control_plane.control_root.monitor_status import MonitorStatus as MonitorStatus
from mam.control_plane.control_root.monitor_status import look as look
from mam.control_plane.registry import database
from mam.wrappers import process

# The variables that the monitor inherits: enough to find programs and files, and nothing of a pane or an agent.
_PASSED_ON = (
    *("PATH", "HOME", "XDG_STATE_HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "USER", "LOGNAME"),
    "SSL_CERT_FILE",
)
_OWN_TO_A_PANE = ("MAM_SESSION", "MAM_SESSION_KEY_FILE", "MAM_SPOOL", "MAM_PANE", "MAM_VERSION")
SAYS_WITHIN_S = 5.0  # within this, a monitor that starts or whose state was damaged says who it is


class MonitorFailed(MamError):
    """The monitor could not be started."""

    why: str
    log: str

    code = "monitor_failed"
    message = "the monitor did not start: {why}"
    remedy_text = "its log is {log}"


class MonitorNotEnded(MonitorFailed):
    """The monitor still runs after SIGKILL."""

    message = "the monitor cannot be ended: {why}"


class NoMonitorHere(MamError):
    """Nothing would end without a monitor, none runs, and MAM_NO_SUBSCRIBER_DAEMON forbids to start one here."""

    kept: str

    code = "no_monitor"
    exit_code = 4
    message = "no monitor runs, and MAM_NO_SUBSCRIBER_DAEMON forbids to start one here: {kept}"
    remedy_text = "`mam up`, where that variable is not set"


def clean_environment(mam: Mam) -> dict[str, str]:
    """Return the environment of the monitor. It does not depend on the pane, worktree or agent that starts it."""
    environ = mam.settings.environ
    kept = {name: environ[name] for name in _PASSED_ON if name in environ}
    kept |= {k: v for k, v in environ.items() if k.startswith("MAM_") and k not in _OWN_TO_A_PANE}
    return {**kept, **mam.layout.binding()}


def upgrade(mam: Mam) -> bool:
    """
    Migrate a registry that an older version made. Returns whether it was older.

    The old version's monitor is ended first. Raises Busy, RegistryUnusable, MonitorFailed, and OtherRuntime where
    another installation serves this control root.
    """
    if not database.is_older(mam.layout.database):
        return False
    recorded = database.fact(mam.layout.database, installation.META)
    installation.insist(recorded, mam.layout.root, "bring its registry to another version")
    end(mam.layout)
    with mam.registry.locked():
        return database.migrate(mam.layout.database, mam.layout.mam / "backups")


def ensure(mam: Mam, *, wait_s: float = 15.0, say: Progress = silent) -> MonitorStatus | None:
    """
    Return the running monitor, after starting it where it is missing; None where MAM_NO_SUBSCRIBER_DAEMON forbids that.

    Raises MonitorFailed, also where it is not ready after *wait_s*, and what Mam.check_place raises.
    """
    found = look(mam.layout)
    if found is not None and found.ready:
        return _warned(found, say)
    if found is None and mam.settings.no_daemon:
        return None
    mam.check_place()
    log = mam.layout.logs / "monitor.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pid = None
    if found is None:
        say("starting the monitor")
        argv = [mam.command, "monitor", "run", "--root", str(mam.layout.root)]
        pid = process.spawn(argv, log, mam.layout.root, env=clean_environment(mam))
    try:
        return _warned(_await_ready(mam, pid, wait_s), say)
    except KeyboardInterrupt:
        started = process_identity.of(pid) if pid is not None else None
        if started is not None:
            ending.end_group(started)  # no file names it yet
        raise


def _await_ready(mam: Mam, pid: int | None, wait_s: float) -> MonitorStatus:
    """Return the monitor as soon as it is ready. *pid* is the one that was started here. Raises MonitorFailed."""
    log = mam.layout.logs / "monitor.log"

    def ready() -> MonitorStatus | None:
        found = look(mam.layout)
        ours_ended = pid is not None and process_identity.start_time(pid) is None
        # Another monitor may run or start: the one of here may have lost a race against it.
        if found is None and ours_ended and not locks.is_held(mam.layout.monitor_lock):
            raise MonitorFailed(why=last_line(log), log=str(log))
        return found if found is not None and found.ready else None

    found = wait_until(ready, wait_s)
    if found is None:
        raise MonitorFailed(why=f"it is not ready after {wait_s:g} s", log=str(log))
    return found


def ensure_after(mam: Mam, kept: str, say: Progress) -> MonitorStatus | None:
    """Do as *ensure* after a change that was made. Trouble is only told, since an error would deny the change."""
    try:
        known = ensure(mam, say=say)
    except MonitorFailed as error:
        say(f"{error}: {kept}")
        return None
    if known is None:
        say(f"no monitor runs and none may be started here: {kept}")
    return known


def _warned(known: MonitorStatus, say: Progress) -> MonitorStatus:
    if known.problem:
        say(f"the monitor has a problem: {known.problem}")
    return known


def last_line(path: os.PathLike[str]) -> str:
    """Return what a process said last in its log, without the remedy that follows an error."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read()[-4000:].strip().splitlines()
    except OSError:
        return "it left no log"
    said = [line for line in lines if not line.lstrip().startswith("→")]
    return said[-1] if said else "it ended without a word"


def end(layout: Layout, *, wait_s: float = 10.0, made_at: str | None = None) -> bool:
    """
    End the monitor: TERM, then KILL after *wait_s*, which its work survives. Returns whether one ran.

    Args:
        made_at: Where the control root was when the monitor began, if it was moved since.

    Raises MonitorNotEnded.
    """

    def known() -> bool:
        # A monitor that starts, or whose state was damaged, soon says who it is.
        return look(layout, made_at=made_at) is not None or not locks.is_held(layout.monitor_lock)

    wait_until(known, SAYS_WITHIN_S, every_s=0.05)
    found = look(layout, made_at=made_at)
    try:
        return found is not None and ending.end_process(found.process, wait_s=wait_s)
    except DoesNotEnd as error:
        log = str(layout.logs / "monitor.log")
        raise MonitorNotEnded(why=f"pid {error.pid} does not end", log=log) from error
