"""The rows of the registry, frozen: a change is a new row. Standard library only."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

# A column that may hold a path says so by its type: `mam init --moved` corrects those, and no others.
PathText = Annotated[str, "path"]
PathsInJson = Annotated[str, "paths in JSON"]  # any string in it may be one; names of members are none

OPEN = ("queued", "waiting_local_directory", "dispatched", "running")
PRESUMED = ("agent_blocked", "timed_out", "lost")
FINAL = ("reported", "cancelled")

# Session states. `ended`: the agent or its runner is gone without being asked to go.
LIVE = ("starting", "running")


_COLUMNS: dict[str, tuple[str, ...]] = {}  # asked for with every row: looked up once


@dataclass(frozen=True)
class Row:
    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]]

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        if cls.table not in _COLUMNS:
            _COLUMNS[cls.table] = tuple(field.name for field in fields(cls))
        return _COLUMNS[cls.table]

    @classmethod
    def path_columns(cls) -> dict[str, bool]:
        """The columns that may hold paths; True for those that hold them inside JSON."""
        kinds = {field.name: getattr(field.type, "__metadata__", ()) for field in fields(cls)}
        return {name: "paths in JSON" in kind for name, kind in kinds.items() if kind}

    def values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.columns())

    def key_text(self) -> str:
        return "/".join(str(getattr(self, name)) for name in self.key)


@dataclass(frozen=True)
class Session(Row):
    """One agent instance. *binding* and *args* are JSON texts; times are ms since 1970, by our own clock."""

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

    A review belongs to a *loop* and is bound to (*base_sha*, *head_sha*); its report named *seen_sha*.
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
        return f"{self.folder}/brief.md"

    @property
    def report_path(self) -> str:
        return f"{self.folder}/{self.session}-reports/report-final.md"


@dataclass(frozen=True)
class Attempt(Row):
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
    """An outbox row: something the monitor has to tell a runner until it is confirmed."""

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
    """Something that a person should know; it goes away when it is true no longer."""

    table: ClassVar[str] = "findings"
    key: ClassVar[tuple[str, ...]] = ("code", "subject")

    code: str
    subject: str
    since: int
    text: str


@dataclass(frozen=True)
class Worktree(Row):
    """A work tree that MAM made: preparing → ready → removing → removed. *new_branch*: the branch was made with it."""

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
    """One review loop. *checkpoint* is the state machine's own state as JSON; the other columns are for looking at."""

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
    """A side effect of a loop: `begun` was written before it, `done` after it."""

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
    Who has a resource for itself. *token* grows with every grant; *renewals* with every sign of its holder.

    *usual_s* is how long it was held lately, a moving average.
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
    """A place in the queue: all of *names* and *count* of *pool* (JSON lists), at once or not at all."""

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
    """What an agent asks of a person in the middle of a job; *fallback* answers it when *timeout_s* is over."""

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
