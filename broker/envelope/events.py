"""
The event union: every fact that reaches the monitor, checked where foreign bytes enter.

What the monitor tells a runner is in orders.py.

A body must have exactly its members. Unknown members of ``data`` are ignored, and an event of an unknown kind is kept
without effect, so that versions can mix on one bus.
"""

from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mam.broker.envelope.payloads import DeliveryReason, DeliveryState
from mam.broker.envelope.signing import refuse
from mam.broker.envelope.topics import JOB_ID, NAME

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
    """The members of every signed message. ``ts`` is the sender's clock in ms since 1970; it must not decide order."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Hex32
    kind: Annotated[str, Field(pattern=r"^[a-z_]{1,32}\z")]
    ts: Annotated[int, Field(ge=0, lt=MAX_SEQ)]
    producer: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}\z")]
    data: dict[str, Any]


class JobEvent(Body):
    """A fact about one attempt of a job, counted from 1."""

    job: JobId
    attempt: Annotated[int, Field(ge=1, lt=MAX_SEQ)]
    seq: Annotated[int, Field(ge=0, lt=MAX_SEQ)]


class SessionMessage(Body):
    """A message from or to the runner of one agent. *attempt* is 0 where it belongs to no job."""

    session: SessionName
    job: JobId | None
    attempt: Annotated[int, Field(ge=0, lt=MAX_SEQ)]
    seq: Annotated[int, Field(ge=0, lt=MAX_SEQ)]


class Card(Body):
    """A retained state. Of two cards on one topic, the one with the higher *generation* counts."""

    generation: Annotated[int, Field(ge=0, lt=MAX_SEQ)]


B = TypeVar("B", bound=Body)


class Data(BaseModel):
    """The root of what a message says beyond its frame."""

    # A newer MAM may send members that this one does not know.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Started(Data):
    """The agent has begun with the job. *heartbeat_s* is set where the agent sends heartbeats by a timer."""

    cwd: Text = ""
    heartbeat_s: Annotated[int, Field(ge=1, le=86_400)] | None = None


class Heartbeat(Data):
    """The agent still works on the job."""


class Progressed(Data):
    """How far the agent has come, in its own words."""

    note: Text
    percent: Annotated[int, Field(ge=0, le=100)] | None = None


class Asked(Data):
    """A question to the person who leads the work. *fallback* becomes the answer after *timeout_s*."""

    question_id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}\z")]
    question: Annotated[str, Field(min_length=1, max_length=4000)]
    choices: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20)] = []
    timeout_s: Annotated[int, Field(ge=1, le=86_400)] | None = None
    fallback: Text | None = None


class Report(Data):
    """The end of an attempt. The report file must have this digest and size; the shas say what a review looked at."""

    result: JobResult
    verdict: Verdict | None = None
    report_sha256: Sha256
    report_bytes: Count
    summary: Text = ""
    base_sha: CommitSha | None = None
    head_sha: CommitSha | None = None


class Cancelled(Data):
    """The job was ended by a person or by its loop."""

    reason: Text = ""


class DeliveryReport(Data):
    """How far a prompt has come on its way into the agent's composer. *evidence* is what the screen showed."""

    state: DeliveryState
    reason: DeliveryReason = ""
    evidence: Text = ""


SignalName = Literal[
    "turn_ended", "permission", "permission_answered", "agent_exited", "agent_stopped", "conversation_id", "screen"
]


class Signal(Data):
    """Something that a runner, or a hook of the agent's CLI, noticed. A member that its name does not need is unset."""

    name: SignalName
    state: str = ""
    evidence: Text = ""
    incarnation: str | None = None  # the life of the session that is meant
    exit_code: Annotated[int, Field(gt=-(2**31), lt=2**31)] | None = None
    conversation_id: str | None = None


class Presence(Data):
    """Whether the runner of an agent is connected, and which processes the runner and the agent are."""

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
RUNTIME_DATA: dict[str, type[Data]] = {"delivery": DeliveryReport, "signal": Signal, "presence": Presence}


class CheckedEvent(NamedTuple, Generic[B]):
    """A checked message. *data* is None where this version does not know the kind."""

    frame: B
    data: Data | None


def check(frame_type: type[B], kinds: dict[str, type[Data]], body: dict[str, object]) -> CheckedEvent[B]:
    """Return the event of a parsed body. Raises EventRefused with the outcome "schema"."""
    try:
        frame = frame_type.model_validate(body)
        data_type = kinds.get(frame.kind)
        return CheckedEvent(frame, None if data_type is None else data_type.model_validate(frame.data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        refuse("schema", f"{'.'.join(str(part) for part in first['loc'])}: {first['type']}")
