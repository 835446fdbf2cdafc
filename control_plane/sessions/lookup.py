"""A session by its name, and why it cannot be had now."""

from mam.broker.errors import MamError
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Session


class UnknownSession(MamError):
    code = "unknown_session"
    exit_code = 2
    message = "there is no agent session {session!r}"
    remedy_text = "`mam agent list` shows them"


class SessionBusy(MamError):
    code = "session_busy"
    exit_code = 5
    message = "{session} has a job already: {job}"
    remedy_text = "wait with `mam job wait {job}`, or give the work to another agent"


class SessionNotRunning(MamError):
    code = "session_not_running"
    message = "{session} is {status}"
    remedy_text = "`mam agent resume {session}`"


def need_session(view: View, name: str) -> Session:
    session = view.session(name)
    if session is None:
        raise UnknownSession(session=name)
    return session
