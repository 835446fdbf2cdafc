"""The records of the registry. They are frozen: a change is a new record. Standard library only."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

# A column that may hold a path says so by its type: `mam init --moved` corrects those, and no others.
PathText = Annotated[str, "path"]
PathsInJson = Annotated[str, "paths in JSON"]  # any string in it may be one; names of members are none

OPEN = ("queued", "waiting_local_directory", "dispatched", "running")
PRESUMED = ("agent_blocked", "timed_out", "lost")
FINAL = ("reported", "cancelled")

# States of an agent. `ended` means that the agent or its runner has gone without being asked to.
LIVE = ("starting", "running")


_COLUMNS: dict[str, tuple[str, ...]] = {}  # looked up once, since every row needs it


@dataclass(frozen=True)
class Row:
    """A record: one row of *table*, known by its *key*. Its fields are the columns, in their order."""

    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]]

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the columns."""
        if cls.table not in _COLUMNS:
            _COLUMNS[cls.table] = tuple(field.name for field in fields(cls))
        return _COLUMNS[cls.table]

    @classmethod
    def path_columns(cls) -> dict[str, bool]:
        """Return the columns that may hold paths; True stands for those that hold them inside JSON."""
        kinds = {field.name: getattr(field.type, "__metadata__", ()) for field in fields(cls)}
        return {name: "paths in JSON" in kind for name, kind in kinds.items() if kind}

    def values(self) -> tuple[Any, ...]:
        """Return the values in the order of the columns."""
        return tuple(getattr(self, name) for name in self.columns())

    def key_text(self) -> str:
        """Return the key as the audit names it."""
        return "/".join(str(getattr(self, name)) for name in self.key)


@dataclass(frozen=True)
class Session(Row):
    """One agent. *binding* and *args* are JSON texts. Times are ms since 1970, by the clock of this machine."""

    table: ClassVar[str] = "sessions"
    key: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    agent: str
    role: str
    status: str
    generation: int
    incarnation: str
    mux: str
    mux_server: PathText
    pane: str
    cwd: PathText
    program: PathText
    args: PathsInJson
    binding: PathsInJson
    conversation: str | None
    created_at: int
    updated_at: int
    pid: int | None = None
    pid_start: str | None = None
    boot_id: str | None = None
    agent_pid: int | None = None
    agent_start: str | None = None
    version: str | None = None
    presence: str | None = None
    screen: str | None = None
    screen_text: str | None = None
    screen_at: int | None = None
    ended_reason: str | None = None
    exit_code: int | None = None
    hook: str | None = None
    hook_at: int | None = None


@dataclass(frozen=True)
class Job(Row):
    """
    One unit of delegated work. *late* marks a report that came after a presumed end.

    A review belongs to a *loop*, and is about the commits (*base_sha*, *head_sha*). Its report named *seen_sha*.
    """

    table: ClassVar[str] = "jobs"
    key: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    topic_prefix: str
    title: str
    session: str
    state: str
    attempt: int
    folder: PathText
    brief_sha256: str
    started_within_s: float
    deliver_within_s: float
    limit_s: float
    heartbeat_misses: int
    created_at: int
    updated_at: int
    ended_at: int | None = None
    result: str | None = None
    verdict: str | None = None
    late: int = 0
    detail: str | None = None
    summary: str | None = None
    report_sha256: str | None = None
    report_bytes: int | None = None
    archived_at: int | None = None
    loop: str | None = None
    round: int | None = None
    base_sha: str | None = None
    head_sha: str | None = None
    seen_sha: str | None = None
    retries: int = 0

    @property
    def brief_path(self) -> str:
        """The file of the brief."""
        return f"{self.folder}/brief.md"

    @property
    def report_path(self) -> str:
        """The file that the agent must write its report to."""
        return f"{self.folder}/{self.session}-reports/report-final.md"


@dataclass(frozen=True)
class Attempt(Row):
    """One try to have a job done, and how far its prompt and its agent have come. Times are ms since 1970."""

    table: ClassVar[str] = "attempts"
    key: ClassVar[tuple[str, ...]] = ("job", "attempt")

    job: str
    attempt: int
    session: str
    created_at: int
    delivery: str | None = None
    delivery_reason: str | None = None
    delivery_evidence: str | None = None
    delivered_at: int | None = None
    received_at: int | None = None
    started_at: int | None = None
    heartbeat_s: float | None = None
    last_heartbeat_at: int | None = None
    last_progress_at: int | None = None
    last_note: str | None = None
    ended_at: int | None = None


@dataclass(frozen=True)
class OutboxMessage(Row):
    """A message that the monitor must send to a runner until the runner confirms it."""

    table: ClassVar[str] = "outbox"
    key: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    session: str
    kind: str
    job: str
    attempt: int
    incarnation: str | None
    data: str
    created_at: int


@dataclass(frozen=True)
class Finding(Row):
    """Something that a person should know. It is removed when it is no longer true."""

    table: ClassVar[str] = "findings"
    key: ClassVar[tuple[str, ...]] = ("code", "subject")

    code: str
    subject: str
    since: int
    text: str


@dataclass(frozen=True)
class Worktree(Row):
    """A worktree that MAM made: preparing → ready → removing → removed. *new_branch* says the same of its branch."""

    table: ClassVar[str] = "worktrees"
    key: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    path: PathText
    branch: str
    base_sha: str
    state: str
    new_branch: int
    created_at: int
    updated_at: int
    head_sha: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Loop(Row):
    """One review loop. *checkpoint*, as JSON, is the state of its machine; the other columns only show it."""

    table: ClassVar[str] = "loops"
    key: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    state: str
    generation: int
    worktree: PathText
    branch: str | None
    base_sha: str
    creator: str | None
    reviewers: str
    isolation: str
    promote: str
    remote: str | None
    test_command: str | None
    title: str
    folder: PathText
    checkpoint: str
    created_at: int
    updated_at: int
    head_sha: str | None = None
    round: int = 0
    outcome: str | None = None
    detail: str | None = None
    ended_at: int | None = None
    cancel_at: int | None = None
    archived_at: int | None = None
    priority: int = 0


@dataclass(frozen=True)
class StepMark(Row):
    """A side effect of a loop. `begun` is written before it, and `done` after it."""

    table: ClassVar[str] = "steps"
    key: ClassVar[tuple[str, ...]] = ("loop", "step")

    loop: str
    step: str
    state: str
    at: int
    detail: str | None = None


@dataclass(frozen=True)
class Lease(Row):
    """
    The holder of a resource. *token* grows with every grant, and *renewals* with every sign of its holder.

    *usual_s* is a moving average of how long the resource is held.
    """

    table: ClassVar[str] = "leases"
    key: ClassVar[tuple[str, ...]] = ("resource",)

    resource: str
    holder: str | None
    token: int
    renewals: int
    ttl_s: float
    since: int | None = None
    usual_s: float | None = None


@dataclass(frozen=True)
class Ticket(Row):
    """A place in the queue. It asks for all *names* and *count* of *pool* (JSON lists), at once or not at all."""

    table: ClassVar[str] = "tickets"
    key: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    seq: int
    holder: str
    names: str
    pool: str
    count: int
    priority: int
    ttl_s: float
    asked_at: int
    granted_at: int | None = None
    granted: str | None = None
    renewals: int = 0


@dataclass(frozen=True)
class Question(Row):
    """A question of an agent to a person during a job. *fallback* becomes the answer after *timeout_s*."""

    table: ClassVar[str] = "questions"
    key: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    job: str
    attempt: int
    question: str
    choices: str
    asked_at: int
    timeout_s: float | None = None
    fallback: str | None = None
    answered_at: int | None = None
    answer: str | None = None
    answered_by: str | None = None


# Every record: each table but `meta`, `events` and `audit`.
RECORDS: tuple[type[Row], ...] = (
    Session, Job, Attempt, OutboxMessage, Finding, Worktree, Loop, StepMark, Lease, Ticket, Question,
)  # fmt: skip
