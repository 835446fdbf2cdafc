"""The bodies of messages, before they are sealed. Standard library only: an agent's verbs pay for every import."""

import itertools
import secrets
import time
from collections.abc import Mapping

# What an agent CLI's own hooks say, by `mam agent-signal`.
HOOK_SIGNALS = ("permission", "permission_answered", "turn_ended")


def new_id() -> str:
    """A random event id: 32 hex."""
    return secrets.token_hex(16)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Producer:
    """
    One incarnation of one speaker: a random name and its own count of messages.

    (scope, attempt, producer, seq) is the slot by which the registry knows a
    repeated message, so no count has to survive a crash.
    """

    def __init__(self, role: str) -> None:
        self.name = f"{role}-{secrets.token_hex(4)}"
        self._seq = itertools.count()

    def job_event(self, job: str, attempt: int, kind: str, data: Mapping[str, object]) -> dict[str, object]:
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
        return {
            "id": new_id(),
            "kind": kind,
            "generation": generation,
            "ts": now_ms(),
            "producer": self.name,
            "data": dict(data),
        }
