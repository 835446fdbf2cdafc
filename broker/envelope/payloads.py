"""The bodies of messages, before they are sealed. Standard library only, since agents' verbs import it."""

import itertools
import os
import time
from collections.abc import Mapping
from typing import Literal

# The signals that the hooks of an agent's CLI send, by `mam agent-signal`.
HOOK_SIGNALS = ("permission", "permission_answered", "turn_ended")

# What became of a prompt, and why.
DeliveryState = Literal["received", "submitted", "refused", "unknown"]
DeliveryReason = Literal[
    "busy", "not_foreground", "dialog", "draft", "unsubmitted", "restarted", "brief_altered", "cancelled", ""
]


def new_id() -> str:
    """Return a random event id of 32 hex digits."""
    return os.urandom(16).hex()  # as `secrets` draws it, whose import costs agents' verbs more than it does


def now_ms() -> int:
    """Return the wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class Producer:
    """
    One sender in one process: a random name and a count of its messages.

    The registry recognises a repeated message by (scope, attempt, producer, seq). A sender that starts again takes a
    new name, so the count need not survive a crash.
    """

    def __init__(self, role: str) -> None:
        self.name = f"{role}-{os.urandom(4).hex()}"
        self._seq = itertools.count()

    def job_event(self, job: str, attempt: int, kind: str, data: Mapping[str, object]) -> dict[str, object]:
        """Return the body of the next event about an attempt of *job*."""
        return {
            "id": new_id(),
            "job": job,
            "kind": kind,
            "attempt": attempt,
            "seq": next(self._seq),
            "ts": now_ms(),
            "producer": self.name,
            "data": dict(data),
        }

    def session_message(
        self, session: str, kind: str, data: Mapping[str, object], *, job: str | None = None, attempt: int = 0
    ) -> dict[str, object]:
        """Return the body of the next message from or to the runner of *session*."""
        return {
            "id": new_id(),
            "session": session,
            "job": job,
            "kind": kind,
            "attempt": attempt,
            "seq": next(self._seq),
            "ts": now_ms(),
            "producer": self.name,
            "data": dict(data),
        }

    def card(self, kind: str, generation: int, data: Mapping[str, object]) -> dict[str, object]:
        """Return the body of a retained state. It carries no count: its *generation* decides."""
        return {
            "id": new_id(),
            "kind": kind,
            "generation": generation,
            "ts": now_ms(),
            "producer": self.name,
            "data": dict(data),
        }
