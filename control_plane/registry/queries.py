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
    """
    Questions to the registry, over one connection.

    A question by a key returns None where there is no such record. Each may raise sqlite3.DatabaseError for a damaged
    file; the registry's context managers turn that into RegistryUnusable.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def rows(self, kind: type[R], where: str = "", values: tuple[Any, ...] = ()) -> list[R]:
        """Return the records of *kind* that the SQL clause *where* selects."""
        columns = ", ".join(kind.columns())
        return [kind(*row) for row in self.connection.execute(f"SELECT {columns} FROM {kind.table} {where}", values)]

    def _one(self, kind: type[R], *key: object) -> R | None:
        where = "WHERE " + " AND ".join(f"{name} = ?" for name in kind.key)
        rows = self.rows(kind, where, key)
        return rows[0] if rows else None

    def meta(self, name: str) -> str | None:
        """Return a fixed fact of the control root."""
        row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def session(self, name: str) -> Session | None:
        """Return the record of the agent *name*."""
        return self._one(Session, name)

    def sessions(self) -> list[Session]:
        """Return all agents, the oldest first."""
        return self.rows(Session, "ORDER BY created_at, name")

    def online(self) -> set[str]:
        """Return the names of the agents whose runner is connected to the broker."""
        return {name for (name,) in self.connection.execute("SELECT name FROM sessions WHERE presence = 'online'")}

    def mux_places(self) -> set[tuple[str, str]]:
        """Return the kind and the server of each multiplexer that holds an agent."""
        return {(kind, server) for kind, server in self.connection.execute("SELECT mux, mux_server FROM sessions")}

    def job(self, job_id: str) -> Job | None:
        """Return the job *job_id*."""
        return self._one(Job, job_id)

    def jobs(self, *, session: str | None = None, states: tuple[str, ...] = (), limit: int = -1) -> list[Job]:
        """Return the jobs that are not archived, the newest first. A negative *limit* means all."""
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
        """Return how many jobs that are not archived are in each state."""
        query = "SELECT state, count(*) FROM jobs WHERE archived_at IS NULL GROUP BY state"
        return dict(self.connection.execute(query).fetchall())

    def open_job(self, session: str) -> Job | None:
        """Return the open job of an agent. It has at most one."""
        found = self.rows(Job, f"WHERE session = ? AND state IN ({OPEN_STATES})", (session,))
        return found[0] if found else None

    def open_jobs(self) -> list[Job]:
        """Return all open jobs."""
        return self.rows(Job, f"WHERE state IN ({OPEN_STATES})")

    def attempt(self, job_id: str, attempt: int) -> Attempt | None:
        """Return one attempt of a job, counted from 1."""
        return self._one(Attempt, job_id, attempt)

    def worktree(self, name: str) -> Worktree | None:
        """Return the worktree *name*, also where it was removed."""
        return self._one(Worktree, name)

    def worktrees(self) -> list[Worktree]:
        """Return the worktrees that were not removed, the oldest first."""
        return self.rows(Worktree, "WHERE state <> 'removed' ORDER BY created_at, name")

    def loop(self, loop_id: str) -> Loop | None:
        """Return the loop *loop_id*."""
        return self._one(Loop, loop_id)

    def loops(self, *, only_open: bool = False) -> list[Loop]:
        """Return the loops that are not archived, the newest first."""
        ended = " AND ended_at IS NULL" if only_open else ""
        return self.rows(Loop, f"WHERE archived_at IS NULL{ended} ORDER BY created_at DESC, id")

    def step(self, loop_id: str, step: str) -> StepMark | None:
        """Return the mark of one side effect of a loop."""
        return self._one(StepMark, loop_id, step)

    def steps(self, loop_id: str) -> list[StepMark]:
        """Return the marks of all side effects of a loop, in the order in which they changed."""
        return self.rows(StepMark, "WHERE loop = ? ORDER BY at", (loop_id,))

    def lease(self, resource: str) -> Lease | None:
        """Return the lease of a resource. It may have no holder."""
        return self._one(Lease, resource)

    def leases(self) -> list[Lease]:
        """Return the leases that have a holder."""
        return self.rows(Lease, "WHERE holder IS NOT NULL ORDER BY resource")

    def ticket(self, ticket_id: str) -> Ticket | None:
        """Return the place *ticket_id* in the queue."""
        return self._one(Ticket, ticket_id)

    def waiting(self) -> list[Ticket]:
        """Return the tickets without a grant, the oldest first."""
        return self.rows(Ticket, "WHERE granted_at IS NULL ORDER BY seq")

    def question(self, question_id: str) -> Question | None:
        """Return a question of an agent, answered or not."""
        return self._one(Question, question_id)

    def questions(self, job: str) -> list[Question]:
        """Return all questions of a job's attempts, answered or not, the oldest first."""
        return self.rows(Question, "WHERE job = ? ORDER BY asked_at, id", (job,))

    def open_questions(self, job: str | None = None) -> list[Question]:
        """Return the questions without an answer, the oldest first."""
        if job is None:
            return self.rows(Question, "WHERE answered_at IS NULL ORDER BY asked_at")
        return self.rows(Question, "WHERE answered_at IS NULL AND job = ? ORDER BY asked_at", (job,))

    def outbox(self) -> list[OutboxMessage]:
        """Return all messages that wait for a runner, the oldest first."""
        return self.rows(OutboxMessage, "ORDER BY created_at, id")

    def findings(self, subject: str | None = None) -> list[Finding]:
        """Return the findings about *subject*, or all of them, the oldest first."""
        if subject is None:
            return self.rows(Finding, "ORDER BY since")
        return self.rows(Finding, "WHERE subject = ? ORDER BY since", (subject,))

    def events(self, *, scope: str | None = None, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Return at most *limit* stored events behind number *after*, in the order of arrival, as dictionaries."""
        where, values = "seq > ?", [after]
        if scope is not None:
            where += " AND scope = ?"
            values.append(scope)  # type: ignore[arg-type]
        cursor = self.connection.execute(f"SELECT * FROM events WHERE {where} ORDER BY seq LIMIT ?", (*values, limit))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def last_event(self) -> int:
        """Return the number of the last stored event; 0 where there is none."""
        return int(self.connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def slot(self, scope: str, attempt: int, producer: str, number: int) -> str | None:
        """Return the sha256 of the event that used this slot; None where the slot is free."""
        row = self.connection.execute(
            "SELECT wire_sha256 FROM events WHERE scope = ? AND attempt = ? AND producer = ? AND slot = ?",
            (scope, attempt, producer, number),
        ).fetchone()
        return None if row is None else str(row[0])

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed something."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])


OPEN_STATES = ", ".join(f"'{state}'" for state in OPEN)  # as a list in SQL


def pages(view: View, scope: str | None = None, after: int = 0) -> Iterator[dict[str, Any]]:
    """Yield all stored events of *scope* behind number *after*. Only one page of them is in memory."""
    while batch := view.events(scope=scope, after=after):
        yield from batch
        after = batch[-1]["seq"]
