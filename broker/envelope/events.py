"""
The event union: every fact that crosses a process border, checked where foreign bytes enter.

The members of a body are exact; unknown members of ``data`` are ignored and an
unknown kind is kept without effect, so that versions can mix on one bus.
"""

from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mam.broker.envelope.signing import refuse
from mam.broker.envelope.topics import JOB_ID, NAME

USE_JOB = "event-mac"
USE_COMMAND = "cmd"
USE_RUNTIME = "rt"
USE_CARD = "card"

MAX_SEQ = 2**53

Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}\z")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]
CommitSha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?\z")]
JobId = Annotated[str, Field(pattern=rf"^{JOB_ID.pattern}\z")]
SessionName = Annotated[str, Field(pattern=rf"^{NAME.pattern}\z")]
Count = Annotated[int, Field(ge=0, lt=MAX_SEQ)]
Text = Annotated[str, Field(max_length=4000)]
JobResult = Literal["done", "failed"]
Verdict = Literal["pass", "not_pass"]


class Body(BaseModel):
    """What every signed message carries; ``ts`` is the sender's clock in ms, never used for order."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Hex32
    kind: Annotated[str, Field(pattern=r"^[a-z_]{1,32}\z")]
    ts: Annotated[int, Field(ge=0, lt=MAX_SEQ)]
    producer: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}\z")]
    data: dict[str, Any]


class JobEvent(Body):
    job: JobId
    attempt: Annotated[int, Field(ge=1, lt=MAX_SEQ)]
    seq: Annotated[int, Field(ge=0, lt=MAX_SEQ)]


class SessionMessage(Body):
    session: SessionName
    job: JobId | None
    attempt: Annotated[int, Field(ge=0, lt=MAX_SEQ)]
    seq: Annotated[int, Field(ge=0, lt=MAX_SEQ)]


class Card(Body):
    generation: Annotated[int, Field(ge=0, lt=MAX_SEQ)]


B = TypeVar("B", bound=Body)


class Data(BaseModel):
    # A newer MAM may say more than this one understands.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Started(Data):
    cwd: Text = ""
    heartbeat_s: Annotated[int, Field(ge=1, le=86_400)] | None = (
        None  # set where a timer of the agent's own sends heartbeats
    )


class Heartbeat(Data):
    pass


class Progressed(Data):
    note: Text
    percent: Annotated[int, Field(ge=0, le=100)] | None = None


class Asked(Data):
    """A question to whoever leads the work; *fallback* answers it when *timeout_s* is over."""

    question_id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}\z")]
    question: Annotated[str, Field(min_length=1, max_length=4000)]
    choices: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20)] = []
    timeout_s: Annotated[int, Field(ge=1, le=86_400)] | None = None
    fallback: Text | None = None


class Report(Data):
    result: JobResult
    verdict: Verdict | None = None
    report_sha256: Sha256
    report_bytes: Count
    summary: Text = ""
    base_sha: CommitSha | None = None
    head_sha: CommitSha | None = None


class Cancelled(Data):
    reason: Text = ""


class FreeText(Data):
    """Free text for an agent's composer, outside of any job."""

    prompt: Annotated[str, Field(max_length=60_000)]
    deliver_within_s: Annotated[int, Field(ge=1, lt=MAX_SEQ)]
    expires_at: Count | None = None  # by the clock of the host that both ends share; then its sender has given up


class Dispatch(FreeText):
    """The prompt of one attempt; the runner hands it over only while the brief is the one that was signed."""

    brief_path: str
    brief_sha256: Sha256
    key_file: str


class Cancel(Data):
    reason: Text = ""


class SettledItem(Data):
    id: Hex32
    outcome: str


class Settled(Data):
    items: list[SettledItem]


DeliveryState = Literal["received", "submitted", "refused", "unknown"]
DeliveryReason = Literal[
    "busy", "not_foreground", "dialog", "draft", "unsubmitted", "restarted", "brief_altered", "cancelled", ""
]


class DeliveryReport(Data):
    state: DeliveryState
    reason: DeliveryReason = ""
    evidence: Text = ""


SignalName = Literal[
    "turn_ended", "permission", "permission_answered", "agent_exited", "agent_stopped", "conversation_id", "screen"
]


class Signal(Data):
    name: SignalName
    state: str = ""
    evidence: Text = ""
    incarnation: str | None = None  # which life of the session is meant
    exit_code: Annotated[int, Field(gt=-(2**31), lt=2**31)] | None = None
    conversation_id: str | None = None


class Presence(Data):
    online: bool
    incarnation: str
    pid: Count
    start_time: str
    boot_id: str
    version: str
    agent_pid: Count | None = None
    agent_start: str | None = None


JOB_DATA: dict[str, type[Data]] = {
    "started": Started,
    "heartbeat": Heartbeat,
    "progress": Progressed,
    "asked": Asked,
    "report": Report,
    "cancelled": Cancelled,
}
INBOX_DATA: dict[str, type[Data]] = {"dispatch": Dispatch, "say": FreeText, "cancel": Cancel, "settled": Settled}
RUNTIME_DATA: dict[str, type[Data]] = {"delivery": DeliveryReport, "signal": Signal, "presence": Presence}


class CheckedEvent(NamedTuple, Generic[B]):
    """A checked message: its frame, and its data where the kind is known."""

    frame: B
    data: Data | None


def check(frame_type: type[B], kinds: dict[str, type[Data]], body: dict[str, object]) -> CheckedEvent[B]:
    """Turn a parsed body into an event. Raises EventRefused("schema")."""
    try:
        frame = frame_type.model_validate(body)
        data_type = kinds.get(frame.kind)
        return CheckedEvent(frame, None if data_type is None else data_type.model_validate(frame.data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        refuse("schema", f"{'.'.join(str(part) for part in first['loc'])}: {first['type']}")
