"""An agent's record by its name, and the reasons why an agent cannot take work now."""

from mam.broker.errors import MamError
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import Session


class UnknownSession(MamError):
    """No agent has this name."""

    session: str

    code = "unknown_session"
    exit_code = 2
    message = "there is no agent {session!r}"
    remedy_text = "`mam agent list` shows them"


class SessionBusy(MamError):
    """The root of the reasons why an agent is not free."""

    session: str

    code = "session_busy"
    exit_code = 5


class SessionHasJob(SessionBusy):
    """The agent has an open job. It takes one at a time."""

    job: str

    message = "{session} has a job already: {job}"
    remedy_text = "wait with `mam job wait {job}`, or give the work to another agent"


class SessionGivenAway(SessionBusy):
    """Another process gave the agent a job at the same moment."""

    message = "{session} was given another job at the same moment"
    remedy_text = "`mam why {session}` names it: wait for its end, or give the work to another agent"


class SessionAlive(SessionBusy):
    """The agent must be stopped before it can be removed."""

    status: str

    message = "{session} is alive ({status})"
    remedy_text = "`mam agent stop {session}` first"


class SessionNotRunning(MamError):
    """The agent was stopped, or has ended."""

    session: str
    status: str

    code = "session_not_running"
    message = "{session} is {status}"
    remedy_text = "`mam agent resume {session}`"


def need_session(view: View, name: str) -> Session:
    """Return the record of the agent *name*. Raises UnknownSession."""
    session = view.session(name)
    if session is None:
        raise UnknownSession(session=name)
    return session
