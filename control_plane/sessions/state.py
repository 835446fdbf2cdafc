"""How a runner's messages change the record of its agent: pure functions."""

from dataclasses import replace

from mam.broker.envelope.events import Presence, Signal
from mam.broker.envelope.payloads import HOOK_SIGNALS
from mam.control_plane.registry.records import LIVE, Session


def presence(session: Session, seen: Presence, *, now: int) -> Session:
    """Return the record after a presence. One of another incarnation changes nothing, since it is old news."""
    if seen.incarnation != session.incarnation:
        return session
    if not seen.online:
        # It proves nothing, since the broker may have lost a healthy runner. The monitor looks at the process.
        return replace(session, presence="offline", updated_at=now) if session.presence != "offline" else session
    # A runner that speaks for the first time was given up too early. `stopped` stays, since a person wanted it.
    given_up = session.status == "ended" and session.pid is None
    after = replace(
        session,
        presence="online",
        status="running" if session.status in LIVE or given_up else session.status,
        ended_reason=None if given_up else session.ended_reason,
        pid=seen.pid,
        pid_start=seen.start_time,
        boot_id=seen.boot_id,
        agent_pid=seen.agent_pid,
        agent_start=seen.agent_start,
        version=seen.version,
    )
    return session if after == session else replace(after, updated_at=now)


def signal(session: Session, seen: Signal, *, now: int) -> Session:
    """Return the record after a signal. One of an earlier life changes nothing: it came late."""
    if seen.incarnation is not None and seen.incarnation != session.incarnation:
        return session
    # The last words of a runner tell how the agent ended, even where its death was seen before they were read.
    unexplained = session.status == "ended" and session.exit_code is None
    if seen.name == "agent_exited" and (session.status in LIVE or unexplained):
        return replace(
            session,
            status="ended",
            ended_reason="its pane was closed" if seen.state == "hung_up" else "the agent ended",
            exit_code=seen.exit_code,
            screen_text=seen.evidence or session.screen_text,
            screen="gone",
            updated_at=now,
        )
    if seen.name in HOOK_SIGNALS and session.status in LIVE:
        return replace(session, hook=seen.name, hook_at=now, updated_at=now)
    if seen.name == "conversation_id" and seen.conversation_id and not session.conversation:
        return replace(session, conversation=seen.conversation_id, updated_at=now)
    return session


def shows(session: Session, seen: Signal) -> bool:
    """Whether a screen signal is of this life of the agent, and the agent lives."""
    return session.status in LIVE and seen.incarnation in (None, session.incarnation)
