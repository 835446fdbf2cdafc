"""Waiting until an agent's screen takes a prompt."""

import time

from mam.agents.border import UNREADABLE
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host.progress import Progress, silent
from mam.broker.host.waiting import wait_until
from mam.control_plane.control_root.context import Mam
from mam.control_plane.registry.records import LIVE, Session
from mam.control_plane.sessions.lookup import need_session

SCREEN_STANDS_MS = 3000


class NotReady(MamError):
    """The root of the errors of a caller that has waited in vain for an agent."""

    session: str
    waited_s: float

    code = "agent_not_ready"
    exit_code = 4
    remedy_text = "`mam why {session}` says more"


class StillStarting(NotReady):
    """The agent has ended, or its screen shows nothing that its adapter knows."""

    status: str
    screen: str

    message = "{session} is {status}, its screen is {screen} after {waited_s:g} s"


def await_ready(mam: Mam, name: str, *, wait_s: float, say: Progress = silent) -> Session:
    """
    Wait until the agent's screen takes a prompt, asks something, or the agent is gone; at most *wait_s*.

    Returns its record. The caller must look at its ``status`` and ``screen``. Raises UnknownSession.
    """
    last = ""

    def look() -> Session:
        nonlocal last
        with mam.registry.view() as view:
            session = need_session(view, name)
        seen = f"{session.status}, screen: {session.screen or 'not seen yet'}"
        if seen != last:
            say(f"{name} is {seen}")
            last = seen
        return session

    def settled() -> Session | None:
        session = look()
        # A screen that asks something may still be being drawn, so it counts after it has stood for a while.
        stands = session.screen == "ready" or now_ms() - (session.screen_at or now_ms()) > SCREEN_STANDS_MS
        shows = session.screen not in (None, "starting", "working") and session.status == "running" and stands
        return session if shows or session.status not in LIVE else None

    return wait_until(settled, wait_s, every_s=0.05) or look()


def need_ready(mam: Mam, name: str, *, ready_within_s: float, say: Progress = silent) -> Session:
    """
    Return the agent once its screen takes a prompt or asks something.

    Waits for MAM_READY_WITHIN_S, else for twice *ready_within_s*. Raises UnknownSession, and StillStarting where the
    agent is gone, or shows nothing that can be recognised.
    """
    wait_s = mam.settings.seconds("MAM_READY_WITHIN_S", max(30.0, ready_within_s * 2))
    began = time.monotonic()
    session = await_ready(mam, name, wait_s=wait_s, say=say)
    if session.status != "running" or session.screen in (None, "starting"):
        waited_s, screen = round(time.monotonic() - began, 1), session.screen or "not seen yet"
        raise StillStarting(session=name, status=session.status, screen=screen, waited_s=waited_s)
    if session.screen == UNREADABLE:
        say(f"the screen of {name} cannot be read: `mam agent check {session.agent}`")
    elif session.screen != "ready":
        say(f"{name} shows a question ({session.screen}): answer it in its pane")
    return session
