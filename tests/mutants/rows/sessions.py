"""What a runner's messages make of a session."""

from tests.mutants.mutant import Mutant

_FILE, _TESTS = "control_plane/sessions/state.py", ("tests/control_plane/sessions/test_state.py",)


def _row(name: str, rule: str, old: str, new: str) -> Mutant:
    return Mutant(f"session-{name}", rule, _FILE, old, new, _TESTS)


ROWS = (
    _row(
        "presence-of-now",
        "the presence of another life changes nothing of this one",
        "if seen.incarnation != session.incarnation:\n        return session",
        "if False:\n        return session",
    ),
    _row(
        "offline-asks",
        "offline is a question, not an end",
        'replace(session, presence="offline", updated_at=now)',
        'replace(session, presence="offline", status="ended", updated_at=now)',
    ),
    _row(
        "given-up",
        "a runner that speaks for the first time was given up too early",
        'given_up = session.status == "ended" and session.pid is None',
        "given_up = False",
    ),
    _row(
        "stopped-stays",
        "a stopped session stays stopped",
        'given_up = session.status == "ended" and session.pid is None',
        'given_up = session.status in ("ended", "stopped") and session.pid is None',
    ),
    _row(
        "signal-of-now",
        "what an earlier life said changes nothing of this one",
        "seen.incarnation is not None and seen.incarnation != session.incarnation",
        "False",
    ),
    _row(
        "last-words",
        "last words that come after the death was found still say how the agent ended, once",
        'unexplained = session.status == "ended" and session.exit_code is None',
        'unexplained = session.status == "ended"',
    ),
    _row(
        "last-words-late",
        "last words count also where the death was found before",
        "and (session.status in LIVE or unexplained)",
        "and session.status in LIVE",
    ),
    _row(
        "hook-alive",
        "a hook of an agent that has ended says nothing",
        "if seen.name in HOOK_SIGNALS and session.status in LIVE:",
        "if seen.name in HOOK_SIGNALS:",
    ),
    _row(
        "conversation-kept",
        "a conversation that is known is not exchanged",
        "and seen.conversation_id and not session.conversation:",
        "and seen.conversation_id:",
    ),
    _row(
        "screen-alive",
        "the screen of a dead agent is not this session's",
        "return session.status in LIVE and seen.incarnation in (None, session.incarnation)",
        "return seen.incarnation in (None, session.incarnation)",
    ),
    _row(
        "screen-of-now",
        "the screen of an earlier life is not this session's",
        "return session.status in LIVE and seen.incarnation in (None, session.incarnation)",
        "return session.status in LIVE",
    ),
)
