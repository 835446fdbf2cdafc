"""What a runner reads, without pydantic: as strict as the models here, which say the same rules a second time."""

from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from mam.broker.envelope import events, orders, payloads
from mam.broker.envelope.events import Count, Data, Hex32, Sha256, Text
from mam.broker.envelope.signing import EventRefused

SHA256 = "a" * 64
NOBODY = object()  # a member that must be refused when it is missing
TEXT: list[object] = [7, True, 1.5, None, []]
INT: list[object] = ["1", True, 1.5, [], {}]
SAY: dict[str, Any] = {"prompt": "go on", "deliver_within_s": 60}
# The last is an integer that no database holds.
SAY_WRONG: dict[str, list[object]] = {
    "prompt": [NOBODY, *TEXT, "x" * 60_001],
    "deliver_within_s": [NOBODY, None, 0, 10**400, *INT],
}
INBOX_KINDS: dict[str, tuple[dict[str, Any], dict[str, list[object]]]] = {
    "say": (SAY, SAY_WRONG),
    "dispatch": (
        {**SAY, "brief_path": "/w/brief.md", "brief_sha256": SHA256, "key_file": "/w/job.key"},
        {
            **SAY_WRONG,
            "brief_path": [NOBODY, *TEXT],
            "brief_sha256": [NOBODY, *TEXT, "short"],
            "key_file": [NOBODY, *TEXT],
        },
    ),
    "cancel": ({}, {"reason": TEXT}),
    "settled": (
        {"items": [{"id": "0" * 32, "outcome": "accepted"}]},
        {"items": [NOBODY, None, {}, "x", [1], [{}], [{"id": "x", "outcome": "late"}], [{"id": "0" * 32}]]},
    ),
}
PRESENCE = {"online": True, "incarnation": "i", "pid": 4, "start_time": "9", "boot_id": "b", "version": "0.1.0"}


class Say(Data):
    prompt: Annotated[str, Field(max_length=60_000)]
    deliver_within_s: Annotated[int, Field(ge=1, lt=2**53)]
    expires_at: Count | None = None


class Order(Say):
    brief_path: str
    brief_sha256: Sha256
    key_file: str


class Off(Data):
    reason: Text = ""


class Item(Data):
    id: Hex32
    outcome: str


class Items(Data):
    items: list[Item]


INBOX: dict[str, type[Data]] = {"dispatch": Order, "say": Say, "cancel": Off, "settled": Items}


def message(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return payloads.Producer("p").session_message("w1", kind, data, job="job-0123456789ab", attempt=1)


def models_take(body: dict[str, Any], kinds: dict[str, type[Data]]) -> Any:
    """The data as the models read it, False where they refuse it."""
    try:
        return events.check(events.SessionMessage, kinds, body).data
    except EventRefused:
        return False


def taken(body: dict[str, Any]) -> Any:
    try:
        return orders.read_inbox(body).data
    except EventRefused as error:
        assert error.outcome == "schema"
        return False


CELLS = [
    (kind, member, value)
    for kind, (_, wrong) in INBOX_KINDS.items()
    for member, values in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("kind", "member", "value"), CELLS)
def test_a_wrong_member_of_data_is_refused_as_schema(kind: str, member: str, value: object) -> None:
    data = {**INBOX_KINDS[kind][0], member: value}
    if value is NOBODY:
        del data[member]

    with pytest.raises(EventRefused) as caught:
        orders.read_inbox(message(kind, data))

    assert caught.value.outcome == "schema"


def test_a_refusal_names_the_member_and_shows_nothing_of_its_value() -> None:
    with pytest.raises(EventRefused) as caught:
        orders.read_inbox(message("say", {**SAY, "prompt": ["a-secret-word"]}))

    assert "prompt" in str(caught.value) and "secret" not in str(caught.value) + repr(caught.value)


def test_each_kind_becomes_what_the_runner_works_with() -> None:
    read = {kind: orders.read_inbox(message(kind, least)) for kind, (least, _) in INBOX_KINDS.items()}

    assert {kind: (each.job, each.attempt, each.kind) for kind, each in read.items()} == {
        kind: ("job-0123456789ab", 1, kind) for kind in INBOX_KINDS
    }
    assert read["say"].data == orders.FreeText(prompt="go on", deliver_within_s=60)
    assert read["dispatch"].data == orders.Dispatch(
        prompt="go on",
        deliver_within_s=60,
        brief_path="/w/brief.md",
        brief_sha256=SHA256,
        key_file="/w/job.key",
    )
    assert read["cancel"].data == orders.Cancel()
    assert read["settled"].data == orders.Settled(frozenset(["0" * 32]))


def test_what_a_newer_version_adds_has_no_effect() -> None:
    assert orders.read_inbox(message("say", {**SAY, "colour": [1]})).data == orders.read_inbox(message("say", SAY)).data
    assert orders.read_inbox(message("sing", {"percent": "many"})).data is None
    assert orders.read_presence(message("signal", {"name": "screen"})).data is None


def test_the_own_presence_is_read() -> None:
    assert orders.read_presence(message("presence", PRESENCE)).data == orders.SeenPresence(True, "i")


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.sampled_from(
        [0, 1, 2**53 - 1, 2**53, "", "k", "0" * 32, SHA256, "job-0123456789ab", "w1", "x" * 4000, "x" * 4001]
    ),
    st.text(max_size=20),
    st.lists(
        st.one_of(
            st.integers(), st.dictionaries(st.sampled_from(["id", "outcome"]), st.sampled_from(["0" * 32, "x", 1]))
        ),
        max_size=3,
    ),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@st.composite
def spoilt(draw: st.DrawFn, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A good message, of which a member or two of the body or of its data is another, missing or new."""
    kind = draw(st.sampled_from(sorted(kinds)))
    body = message(kind, dict(kinds[kind]))
    for _ in range(draw(st.integers(0, 2))):
        of = draw(st.sampled_from([body, body["data"]])) if isinstance(body.get("data"), dict) else body
        name = draw(st.sampled_from([*of, "new", "expires_at", "reason", "agent_pid", "agent_start"]))
        if draw(st.booleans()):
            of[name] = draw(values)
        else:
            of.pop(name, None)
    return body


@settings(max_examples=400, deadline=None)
@given(spoilt({kind: least for kind, (least, _) in INBOX_KINDS.items()}))
def test_the_reader_takes_just_what_the_models_take_and_reads_the_same(body: dict[str, Any]) -> None:
    theirs, ours = models_take(body, INBOX), taken(body)

    assert (theirs is False, theirs is None) == (ours is False, ours is None)
    if isinstance(ours, orders.FreeText | orders.Cancel):
        assert vars(ours) == theirs.model_dump()
    elif isinstance(ours, orders.Settled):
        assert ours.ids == {item.id for item in theirs.items}


@settings(max_examples=300, deadline=None)
@given(spoilt({"presence": PRESENCE}))
def test_a_presence_is_taken_just_where_the_monitor_takes_it(body: dict[str, Any]) -> None:
    theirs = models_take(body, events.RUNTIME_DATA)
    if body.get("kind") in ("signal", "delivery"):
        return  # a runner has no use for these
    try:
        ours = orders.read_presence(body).data
    except EventRefused:
        assert theirs is False
        return
    assert ours == (theirs and orders.SeenPresence(theirs.online, theirs.incarnation))
