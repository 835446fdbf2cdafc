"""check(): the door where foreign bytes become events."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mam.broker.envelope import events, payloads
from mam.broker.envelope.signing import EventRefused

JOB = "job-0123456789ab"
SHA256, COMMIT = "a" * 64, "b" * 40
NOBODY = object()  # a member that must be refused when it is missing

# kind -> (the least that is accepted, member -> values that are refused)
TEXT: list[object] = [7, True, 1.5, None, []]
INT: list[object] = ["1", True, 1.5, [], {}]
Kinds = dict[str, tuple[dict[str, Any], dict[str, list[Any]]]]  # Any: most of these values have wrong types
JOB_KINDS: Kinds = {
    "started": ({}, {"cwd": TEXT, "heartbeat_s": INT}),
    "heartbeat": ({}, {}),
    "progress": ({"note": "half way"}, {"note": [NOBODY, *TEXT], "percent": [*INT, -1, 101]}),
    "asked": (
        {"question_id": "0123456789ab", "question": "which?"},
        {
            "question_id": [NOBODY, *TEXT, "../../etc", "0123456789AB", "0123456789ab\n"],
            "question": [NOBODY, *TEXT, "", "x" * 4001],
            "choices": [7, "sqlite", [7], [""], ["x"] * 21, ["x" * 201]],
            "timeout_s": [*INT, 0, -1, 86_401],
            "fallback": [7, True, [], "x" * 4001],
        },
    ),
    "report": (
        {"result": "done", "report_sha256": SHA256, "report_bytes": 12},
        {
            "result": [NOBODY, *TEXT, "maybe", "DONE"],
            "verdict": [7, True, "PASS", "", []],
            "report_sha256": [NOBODY, *TEXT, "a" * 63, "A" * 64, SHA256 + "\n"],
            "report_bytes": [NOBODY, None, *INT],
            "summary": [*TEXT, "x" * 4001],
            "base_sha": [7, True, "b" * 39, "b" * 41, COMMIT.upper(), COMMIT + "\n"],
            "head_sha": [7, True, "", "main"],
        },
    ),
    "cancelled": ({}, {"reason": TEXT}),
}
RUNTIME_KINDS: Kinds = {
    "delivery": (
        {"state": "received"},
        {"state": [NOBODY, *TEXT, "gone"], "reason": [*TEXT, "tired"], "evidence": [*TEXT, "x" * 4001]},
    ),
    "signal": (
        {"name": "turn_ended"},
        {"name": [NOBODY, *TEXT, "slept"], "state": TEXT, "exit_code": INT, "conversation_id": [7, True, []]},
    ),
    "presence": (
        {"online": True, "incarnation": "i", "pid": 4, "start_time": "9", "boot_id": "b", "version": "0.1.0"},
        {
            "online": [NOBODY, 1, "true", None],
            "incarnation": [NOBODY, *TEXT],
            "pid": [NOBODY, None, *INT],
            "start_time": [NOBODY, *TEXT],
            "boot_id": [NOBODY, *TEXT],
            "version": [NOBODY, *TEXT],
            "agent_pid": INT,
            "agent_start": [7, True, []],
        },
    ),
}
TABLES: dict[str, tuple[type[Any], dict[str, type[events.Data]], Kinds]] = {
    "job": (events.JobEvent, events.JOB_DATA, JOB_KINDS),
    "runtime": (events.SessionMessage, events.RUNTIME_DATA, RUNTIME_KINDS),
}
KINDS = [(table, kind) for table, (_, _, kinds) in TABLES.items() for kind in kinds]
CELLS = [
    (table, kind, member, value)
    for table, kind in KINDS
    for member, values in TABLES[table][2][kind][1].items()
    for value in values
]


def checked(table: str, kind: str, data: Mapping[str, object]) -> events.CheckedEvent[Any]:
    frame_type, known, _ = TABLES[table]
    producer = payloads.Producer("p")
    if table == "job":
        return events.check(frame_type, known, producer.job_event(JOB, 1, kind, data))
    return events.check(frame_type, known, producer.session_message("w1", kind, data, job=JOB, attempt=1))


def refusal(call: Callable[[], object]) -> EventRefused:
    with pytest.raises(EventRefused) as caught:
        call()
    return caught.value


def test_the_tables_here_hold_every_kind_that_the_source_knows() -> None:
    for _, known, kinds in TABLES.values():
        assert kinds.keys() == known.keys()


@pytest.mark.req("M96")
@pytest.mark.parametrize(("table", "kind"), KINDS)
def test_each_kind_is_accepted_with_its_data(table: str, kind: str) -> None:
    least = TABLES[table][2][kind][0]
    event = checked(table, kind, least)
    assert isinstance(event.data, TABLES[table][1][kind])
    assert event.data is not None and event.data.model_dump(exclude_unset=True) == least
    assert event.frame.data == least


@pytest.mark.parametrize(("table", "kind"), KINDS)
def test_an_unknown_member_of_data_is_kept_and_has_no_effect(table: str, kind: str) -> None:
    least = TABLES[table][2][kind][0]
    event = checked(table, kind, {**least, "from_a_newer_mam": [1, {"a": None}]})
    assert event.data == checked(table, kind, least).data
    assert event.frame.data["from_a_newer_mam"] == [1, {"a": None}]


@pytest.mark.parametrize("table", TABLES)
def test_an_unknown_kind_is_kept_without_data(table: str) -> None:
    event = checked(table, "from_a_newer_mam", {"percent": "many"})
    assert event.data is None
    assert (event.frame.kind, event.frame.data) == ("from_a_newer_mam", {"percent": "many"})


@pytest.mark.parametrize("name", payloads.HOOK_SIGNALS)
def test_every_signal_of_an_agents_hook_is_accepted(name: str) -> None:
    event = checked("runtime", "signal", {"name": name})
    assert isinstance(event.data, events.Signal) and event.data.name == name


@pytest.mark.parametrize("kind", [kind for table, kind in KINDS if table != "job"])
def test_a_session_kind_on_a_job_topic_is_unknown(kind: str) -> None:
    """The topic chose the table: a runner's word about itself means nothing as a job event."""
    assert checked("job", kind, {}).data is None


@pytest.mark.parametrize(("table", "kind", "member", "value"), CELLS)
def test_a_wrong_member_of_data_is_refused_as_schema(table: str, kind: str, member: str, value: object) -> None:
    data = {**TABLES[table][2][kind][0], member: value}
    if value is NOBODY:
        del data[member]
    assert refusal(lambda: checked(table, kind, data)).outcome == "schema"


def test_a_refusal_names_the_member_and_shows_nothing_of_its_value() -> None:
    error = refusal(lambda: checked("job", "progress", {"note": ["a-secret-word"]}))
    assert "note" in str(error)
    assert "a-secret-word" not in str(error) + repr(error)


@pytest.mark.parametrize("optional", ["verdict", "base_sha", "head_sha"])
def test_null_is_no_answer_where_none_is_needed(optional: str) -> None:
    event = checked("job", "report", {**JOB_KINDS["report"][0], optional: None})
    assert getattr(event.data, optional) is None


@pytest.mark.parametrize("verdict", ["pass", "not_pass"])
@pytest.mark.parametrize("sha", [COMMIT, "b" * 64])
def test_a_report_carries_its_verdict_and_commits_of_either_length(verdict: str, sha: str) -> None:
    event = checked("job", "report", {**JOB_KINDS["report"][0], "verdict": verdict, "head_sha": sha})
    assert isinstance(event.data, events.Report) and (event.data.verdict, event.data.head_sha) == (verdict, sha)


BAD_EVERYWHERE = ["", "a b c d e f", "jobs.and.dots", "jörg-jörg", "작업작업작업작업", "UPPERCASE", "jobs/other-1"]
BAD_EVERYWHERE += [
    "trailing-newline\n",
    "\nleading-line",
    "job-with-#",
    "job-with-+",
    "job-with-*",
    "-starts-low",
    "x" * 65,
]
BAD_EVERYWHERE += ["nul-is-\0-bad", "../../etc/passwd", "٠١٢٣٤٥٦٧٨", "job-ıdotless"]


@pytest.mark.parametrize(
    ("job", "good"),
    [(name, False) for name in (*BAD_EVERYWHERE, "no", "0123", "short-7")]
    + [(name, True) for name in ("01234567", "job-0123456789ab", "a" * 64, "9_-_-_-_")],
)
def test_job_ids(job: str, good: bool) -> None:
    body = payloads.Producer("p").job_event(job, 1, "started", {})
    if good:
        assert events.check(events.JobEvent, events.JOB_DATA, body).frame.job == job
    else:
        assert refusal(lambda: events.check(events.JobEvent, events.JOB_DATA, body)).outcome == "schema"


@pytest.mark.parametrize(
    ("session", "good"),
    [(name, False) for name in (*BAD_EVERYWHERE, "0123", "_x", "x" * 49)]
    + [(name, True) for name in ("no", "w", "w-1_a", "x" * 48)],
)
def test_session_names(session: str, good: bool) -> None:
    body = payloads.Producer("p").session_message(session, "cancel", {})
    if good:
        assert events.check(events.SessionMessage, events.RUNTIME_DATA, body).frame.session == session
    else:
        assert refusal(lambda: events.check(events.SessionMessage, events.RUNTIME_DATA, body)).outcome == "schema"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
members = st.sampled_from(["id", "job", "session", "kind", "attempt", "seq", "ts", "producer", "data", "generation"])


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(members, values, max_size=10), st.sampled_from(sorted(TABLES)))
def test_an_arbitrary_body_is_refused_as_schema_and_raises_nothing_else(body: dict[str, object], table: str) -> None:
    frame_type, known, _ = TABLES[table]
    assert refusal(lambda: events.check(frame_type, known, body)).outcome == "schema"


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(KINDS), st.data())
def test_arbitrary_data_of_a_known_kind_is_taken_or_refused_as_schema(
    where: tuple[str, str], draw: st.DataObject
) -> None:
    table, kind = where
    known = sorted(TABLES[table][2][kind][1]) or ["note"]
    data = draw.draw(st.dictionaries(st.sampled_from(known), values, max_size=6))
    try:
        assert checked(table, kind, data).frame.data == data
    except EventRefused as error:
        assert error.outcome == "schema"


@pytest.mark.parametrize(
    ("table", "kind", "member"),
    [
        *[("job", "report", "report_bytes"), ("job", "started", "heartbeat_s"), ("runtime", "signal", "exit_code")],
        *[("runtime", "presence", "pid"), ("runtime", "presence", "agent_pid")],
    ],
)
def test_an_integer_that_no_database_holds_is_refused(table: str, kind: str, member: str) -> None:
    error = refusal(lambda: checked(table, kind, {**TABLES[table][2][kind][0], member: 10**400}))
    assert error.outcome == "schema"
