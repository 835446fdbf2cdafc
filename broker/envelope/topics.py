"""Topics: built from ids and taken apart again. All topic strings of MAM stand here. Standard library only."""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from mam.broker.errors import BadName

JOB_ID = re.compile(r"[a-z0-9][a-z0-9_-]{7,63}")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,47}")
FINGERPRINT = re.compile(r"[0-9a-f]{12}")

TopicKind = Literal["job", "inbox", "events", "presence", "job_state", "loop_state", "monitor", "drift", "probe"]


class Address(NamedTuple):
    """A logical topic, taken apart. *owner* is a job id, a session name, a loop id, or empty."""

    place: TopicKind
    owner: str


def root(fingerprint: str) -> str:
    """Return the prefix of all topics of one control root."""
    return f"mam/{fingerprint}"


def job_prefix(fingerprint: str) -> str:
    """What stands on the wire before the slash and the id of each job of one control root."""
    return f"{root(fingerprint)}/jobs"


def job(job_id: str) -> str:
    """Return the topic of all events about a job."""
    return f"jobs/{job_id}"


def job_state(job_id: str) -> str:
    """Return the topic of a job's retained state."""
    return f"jobs/{job_id}/state"


def loop_state(loop_id: str) -> str:
    """Return the topic of a loop's retained state."""
    return f"loops/{loop_id}/state"


def inbox(session: str) -> str:
    """Return the topic of messages to the runner of an agent."""
    return f"agents/{session}/inbox"


def events(session: str) -> str:
    """Return the topic of messages from the runner of an agent."""
    return f"agents/{session}/events"


def presence(session: str) -> str:
    """Return the topic that says whether the runner of an agent is connected; retained, and set by its will."""
    return f"agents/{session}/presence"


def probe(user: str) -> str:
    """Return the topic on which a broker user's rights are tried."""
    return f"probe/{user}"


MONITOR = "monitor/state"
DRIFT = "drift"

_AGENT_PLACES: dict[str, TopicKind] = {"inbox": "inbox", "events": "events", "presence": "presence"}


@lru_cache(maxsize=4096)
def parse(logical: str) -> Address | None:
    """Return the parts of a logical topic, or None for a topic that is not one of MAM's."""
    match logical.split("/"):
        case ["jobs", job_id] if JOB_ID.fullmatch(job_id):
            return Address("job", job_id)
        case ["jobs", job_id, "state"] if JOB_ID.fullmatch(job_id):
            return Address("job_state", job_id)
        case ["agents", session, place] if NAME.fullmatch(session) and place in _AGENT_PLACES:
            return Address(_AGENT_PLACES[place], session)
        case ["loops", loop, "state"] if NAME.fullmatch(loop):
            return Address("loop_state", loop)
        case ["monitor", "state"]:
            return Address("monitor", "")
        case ["drift"]:
            return Address("drift", "")
        case ["probe", user] if NAME.fullmatch(user):
            return Address("probe", user)
    return None


def check_job_id(job_id: str) -> str:
    """Return *job_id*, or raise BadName. An id is also a topic and a file name."""
    if not JOB_ID.fullmatch(job_id):
        raise BadName(kind="job", name=job_id, rule="8 to 64 of a-z 0-9 _ -, starting with a letter or digit")
    return job_id


def check_name(name: str, kind: str = "session") -> str:
    """Return *name*, or raise BadName. A name is also a topic, a file name and a pane's title."""
    if not NAME.fullmatch(name):
        raise BadName(kind=kind, name=name, rule="1 to 48 of a-z 0-9 _ -, starting with a letter")
    return name
