"""Questions to the registry, over one connection. Standard library only."""

import sqlite3
from collections.abc import Iterator
from typing import Any, TypeVar

from mam.control_plane.registry.records import (
    OPEN,
    Attempt,
    Finding,
    Job,
    Lease,
    Loop,
    OutboxMessage,
    Question,
    Row,
    Session,
    StepMark,
    Ticket,
    Worktree,
)

R = TypeVar("R", bound=Row)


class View:
    """Questions to the registry, over one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def rows(self, kind: type[R], where: str = "", values: tuple[Any, ...] = ()) -> list[R]:
        columns = ", ".join(kind.columns())
        return [kind(*row) for row in self.connection.execute(f"SELECT {columns} FROM {kind.table} {where}", values)]

    def _one(self, kind: type[R], *key: object) -> R | None:
        where = "WHERE " + " AND ".join(f"{name} = ?" for name in kind.key)
        rows = self.rows(kind, where, key)
        return rows[0] if rows else None

    def meta(self, name: str) -> str | None:
        row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def session(self, name: str) -> Session | None:
        return self._one(Session, name)

    def sessions(self) -> list[Session]:
        return self.rows(Session, "ORDER BY created_at, name")

    def online(self) -> set[str]:
        """Names of the sessions whose runner is connected to the broker."""
        return {name for (name,) in self.connection.execute("SELECT name FROM sessions WHERE presence = 'online'")}

    def mux_places(self) -> set[tuple[str, str]]:
        """The multiplexer servers that sessions live in: kind and server."""
        return {(kind, server) for kind, server in self.connection.execute("SELECT mux, mux_server FROM sessions")}

    def job(self, job_id: str) -> Job | None:
        return self._one(Job, job_id)

    def jobs(self, *, session: str | None = None, states: tuple[str, ...] = (), limit: int = -1) -> list[Job]:
        """Jobs that are not archived, newest first."""
        where, values = ["archived_at IS NULL"], []
        if session is not None:
            where.append("session = ?")
            values.append(session)
        if states:
            where.append(f"state IN ({','.join('?' * len(states))})")
            values += states
        clause = f"WHERE {' AND '.join(where)} ORDER BY created_at DESC, id LIMIT ?"
        return self.rows(Job, clause, (*values, limit))

    def count_jobs(self) -> dict[str, int]:
        query = "SELECT state, count(*) FROM jobs WHERE archived_at IS NULL GROUP BY state"
        return dict(self.connection.execute(query).fetchall())

    def open_job(self, session: str) -> Job | None:
        found = self.rows(Job, f"WHERE session = ? AND state IN ({OPEN_STATES})", (session,))
        return found[0] if found else None

    def open_jobs(self) -> list[Job]:
        return self.rows(Job, f"WHERE state IN ({OPEN_STATES})")

    def attempt(self, job_id: str, attempt: int) -> Attempt | None:
        return self._one(Attempt, job_id, attempt)

    def worktree(self, name: str) -> Worktree | None:
        return self._one(Worktree, name)

    def worktrees(self) -> list[Worktree]:
        """Those that are there, oldest first."""
        return self.rows(Worktree, "WHERE state <> 'removed' ORDER BY created_at, name")

    def loop(self, loop_id: str) -> Loop | None:
        return self._one(Loop, loop_id)

    def loops(self, *, only_open: bool = False) -> list[Loop]:
        """Loops that are not archived, newest first."""
        ended = " AND ended_at IS NULL" if only_open else ""
        return self.rows(Loop, f"WHERE archived_at IS NULL{ended} ORDER BY created_at DESC, id")

    def step(self, loop_id: str, step: str) -> StepMark | None:
        return self._one(StepMark, loop_id, step)

    def steps(self, loop_id: str) -> list[StepMark]:
        return self.rows(StepMark, "WHERE loop = ? ORDER BY at", (loop_id,))

    def lease(self, resource: str) -> Lease | None:
        return self._one(Lease, resource)

    def leases(self) -> list[Lease]:
        """Those that somebody holds."""
        return self.rows(Lease, "WHERE holder IS NOT NULL ORDER BY resource")

    def ticket(self, ticket_id: str) -> Ticket | None:
        return self._one(Ticket, ticket_id)

    def waiting(self) -> list[Ticket]:
        """Tickets without a grant, oldest first."""
        return self.rows(Ticket, "WHERE granted_at IS NULL ORDER BY seq")

    def question(self, question_id: str) -> Question | None:
        return self._one(Question, question_id)

    def open_questions(self, job: str | None = None) -> list[Question]:
        """Questions that nobody answered, oldest first."""
        if job is None:
            return self.rows(Question, "WHERE answered_at IS NULL ORDER BY asked_at")
        return self.rows(Question, "WHERE answered_at IS NULL AND job = ? ORDER BY asked_at", (job,))

    def outbox(self) -> list[OutboxMessage]:
        return self.rows(OutboxMessage, "ORDER BY created_at, id")

    def findings(self, subject: str | None = None) -> list[Finding]:
        if subject is None:
            return self.rows(Finding, "ORDER BY since")
        return self.rows(Finding, "WHERE subject = ? ORDER BY since", (subject,))

    def events(self, *, scope: str | None = None, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Stored events in the order of their arrival, as dictionaries with the columns' names."""
        where, values = "seq > ?", [after]
        if scope is not None:
            where += " AND scope = ?"
            values.append(scope)  # type: ignore[arg-type]
        cursor = self.connection.execute(f"SELECT * FROM events WHERE {where} ORDER BY seq LIMIT ?", (*values, limit))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def last_event(self) -> int:
        return int(self.connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def slot(self, scope: str, attempt: int, producer: str, number: int) -> str | None:
        """The body's sha256 of the event that used this slot."""
        row = self.connection.execute(
            "SELECT wire_sha256 FROM events WHERE scope = ? AND attempt = ? AND producer = ? AND slot = ?",
            (scope, attempt, producer, number),
        ).fetchone()
        return None if row is None else str(row[0])

    def data_version(self) -> int:
        """A number that changes when another connection committed."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])


OPEN_STATES = ", ".join(f"'{state}'" for state in OPEN)  # for a query


def pages(view: View, scope: str | None = None, after: int = 0) -> Iterator[dict[str, Any]]:
    """All stored events of *scope* after a number, without holding them all in memory."""
    while batch := view.events(scope=scope, after=after):
        yield from batch
        after = batch[-1]["seq"]
