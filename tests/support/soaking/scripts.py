"""The jobs of a soak: what each one's agent plays, how long it may take, and how it must end."""

import json
import random
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mam.control_plane.jobs.delegate import Limits
from mam.control_plane.registry.records import Job

REPORTER = Path(__file__).with_name("reporter.py")
ROOMY = Limits(started_within_s=30.0, deliver_within_s=30.0, limit_s=45.0, heartbeat_misses=6)
BIG_BYTES = 4_900_000

Step = dict[str, Any]


class Kind(NamedTuple):
    """One sort of job. *ends* says whether a row shows the end that its script leads to."""

    name: str
    weight: int
    steps: Callable[["Place"], list[Step]]
    ends: Callable[[Job], bool]
    limits: Limits = ROOMY
    deadly: bool = False  # for the agent that plays it


class Place(NamedTuple):
    """What a script needs to know of its run."""

    answers: Path  # where acknowledged reports are noted
    mark: Path  # a file that no other job has
    work_s: float

    def report(self, *words: str, size: int = 200) -> Step:
        argv = [sys.executable, "-I", "-S", str(REPORTER), str(self.answers), str(size), *words]
        return {"shell": shlex.join(argv)}


def _reported(result: str, verdict: str | None = None) -> Callable[[Job], bool]:
    return lambda job: (job.state, job.result, job.verdict, job.detail) == ("reported", result, verdict, None)


def _presumed(state: str, words: str) -> Callable[[Job], bool]:
    return lambda job: job.state == state and (job.detail or "").startswith(words)


def _work(place: Place, *last: Step) -> list[Step]:
    return [{"started": {}}, {"progress": "working"}, {"wait": place.work_s}, *last]


def _chatty(place: Place) -> list[Step]:
    notes: list[Step] = [{"progress": f"note {number}"} for number in range(8)]
    return [{"started": {}}, *notes, place.report("--result", "done")]


def _once(place: Place) -> list[Step]:
    """Dies in the first attempt, as its runner sees it; goes through in the next one."""
    mark = shlex.quote(str(place.mark))
    die: Step = {"shell": f"test -e {mark} || {{ touch {mark}; kill -9 $PPID; }}"}
    return [{"started": {}}, die, place.report("--result", "done")]


PASS = ("--result", "done", "--verdict", "pass")
NOT_PASS = ("--result", "done", "--verdict", "not_pass")

KINDS = (
    Kind("pass", 40, lambda p: _work(p, p.report(*PASS)), _reported("done", "pass")),
    Kind("not_pass", 14, lambda p: _work(p, p.report(*NOT_PASS)), _reported("done", "not_pass")),
    Kind("failed", 10, lambda p: _work(p, p.report("--result", "failed")), _reported("failed")),
    Kind("chatty", 8, _chatty, _reported("done")),
    Kind("big", 4, lambda p: _work(p, p.report("--result", "done", size=BIG_BYTES)), _reported("done")),
    Kind(
        "silent",
        4,
        lambda p: [{"started": {}}, {"wait": 9}],
        _presumed("timed_out", "no report within"),
        ROOMY._replace(limit_s=6.0),
    ),
    Kind(
        "late",
        4,
        lambda p: [{"started": {}}, {"wait": 8}, p.report("--result", "done")],
        _reported("done"),
        ROOMY._replace(limit_s=4.0),
    ),
    Kind(
        "mute",
        3,
        lambda p: [{"say": "hm"}, {"wait": 8}],
        _presumed("agent_blocked", "no `started` within"),
        ROOMY._replace(started_within_s=4.0),
    ),
    Kind("exits", 4, lambda p: [{"started": {}}, {"exit": 3}], _presumed("lost", "its agent "), deadly=True),
    Kind("once", 4, _once, _reported("done"), deadly=True),
    Kind(
        "hang",
        2,
        lambda p: [{"started": {}}, {"hang": {}}],
        _presumed("timed_out", "no report within"),
        ROOMY._replace(limit_s=5.0),
        deadly=True,
    ),
    Kind(
        "cancelled",
        3,
        lambda p: [{"started": {}}, {"wait": 4}, p.report("--result", "done")],
        # The report may come first: then there is nothing to cancel any more.
        lambda job: job.state in ("cancelled", "reported"),
    ),
)


class Planned(NamedTuple):
    """The *number*-th job of a soak; the same for the same seed, whatever else happens."""

    number: int
    kind: Kind
    brief: str


def plan(seed: int, number: int, folder: Path) -> Planned:
    dice = random.Random(f"{seed}/job/{number}")
    kind = dice.choices(KINDS, [kind.weight for kind in KINDS])[0]
    place = Place(folder / "answers", folder / f"mark-{number}", round(dice.uniform(0.0, 2.0), 2))
    return Planned(number, kind, f"Soaked job {number}, {kind.name}\nSCRIPT: {json.dumps(kind.steps(place))}\n")
