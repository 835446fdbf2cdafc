"""Which process carries a loop out: locks that live as long as it does."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from mam.broker.envelope import topics
from mam.broker.errors import Busy, MamError
from mam.broker.host import locks
from mam.control_plane.config import filesystems
from mam.control_plane.control_root.context import Mam


class LoopRuns(MamError):
    """Another process carries the loop out, or has taken it over."""

    loop: str

    code = "loop_runs"
    message = "the loop {loop} is at work already"
    remedy_text = "`mam why {loop}` says where it stands: wait for its end, or `mam loop cancel {loop}`"


@contextlib.contextmanager
def held(mam: Mam, loop_id: str) -> Generator[None]:
    """
    Be the one process that carries this loop out.

    The lock lives as long as the process: a killed one's successor gets it at
    once, a living one's never. Where no such loop was begun, its file is gone
    again. Raises LoopRuns, BadName, NetworkFileSystem.
    """
    mam.check_place()
    topics.check_name(loop_id, "loop")  # it becomes a file's name
    mam.layout.loops.mkdir(mode=0o700, exist_ok=True)
    filesystems.check(mam.layout.loops)
    with contextlib.ExitStack() as stack:
        try:
            # Not at once: a call of `runs` holds it for a moment.
            stack.enter_context(locks.hold(_lock(mam, loop_id), wait_s=0.5))
        except Busy as error:
            raise LoopRuns(loop=loop_id) from error
        try:
            yield
        except BaseException:
            _tidy(mam, loop_id)
            raise


def _tidy(mam: Mam, loop_id: str) -> None:
    with contextlib.suppress(MamError):  # a registry that cannot be read: the file stays, which does no harm
        with mam.registry.view() as view:
            begun = view.loop(loop_id) is not None
        if not begun:
            _lock(mam, loop_id).unlink(missing_ok=True)


def _lock(mam: Mam, loop_id: str) -> Path:
    return mam.layout.loops / f"{loop_id}.lock"


def runs(mam: Mam, loop_id: str) -> bool:
    """Whether some process carries this loop out at this moment."""
    return locks.is_held(_lock(mam, loop_id))
