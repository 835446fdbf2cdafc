"""Every member of an envelope and of its body, spoilt in every way, and the outcome that each cell must have."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from mam.broker.envelope import events, orders, payloads, signing
from mam.broker.envelope.signing import USE_CARD, USE_COMMAND, USE_JOB, USE_RUNTIME, EventRefused, seal, unseal

pytestmark = pytest.mark.scorecard(5)

JOB, OTHER_JOB, SESSION = "job-0123456789ab", "job-ffffffffffff", "w1"
TOKEN, OTHER_TOKEN = bytes(range(32)), bytes(range(1, 33))
FRAMES: dict[str, tuple[type[Any], dict[str, type[events.Data]], str, str, str]] = {
    "job": (events.JobEvent, events.JOB_DATA, USE_JOB, JOB, f"jobs/{JOB}"),
    "command": (events.SessionMessage, {}, USE_COMMAND, SESSION, f"agents/{SESSION}/inbox"),
    "runtime": (events.SessionMessage, events.RUNTIME_DATA, USE_RUNTIME, SESSION, f"agents/{SESSION}/events"),
    "card": (events.Card, {}, USE_CARD, "control", "monitor/state"),
}


def good_body(frame: str) -> dict[str, object]:
    producer = payloads.Producer("p")
    match frame:
        case "job":
            return producer.job_event(JOB, 1, "started", {"cwd": "/w"})
        case "command":
            return producer.session_message(SESSION, "cancel", {"reason": ""}, job=JOB, attempt=1)
        case "runtime":
            return producer.session_message(SESSION, "delivery", {"state": "received"}, job=JOB, attempt=1)
    return producer.card("state", 3, {"jobs": 0})


def spelt(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read(wire: bytes, frame: str, **options: Any) -> Any:
    frame_type, kinds, use, scope, topic = FRAMES[frame]
    asked = {"keyring": {"k1": TOKEN}, "use": use, "scope": scope, "topic": topic, **options}
    body = unseal(wire, **asked)
    if frame == "command":
        return orders.read_inbox(body)
    return events.check(frame_type, kinds, body).frame


def outcome(wire: bytes, frame: str = "job", **options: Any) -> str:
    with pytest.raises(EventRefused) as caught:
        read(wire, frame, **options)
    assert TOKEN.hex() not in str(caught.value) + repr(caught.value)
    return caught.value.outcome


def good_wire(frame: str = "job") -> bytes:
    _, _, use, scope, topic = FRAMES[frame]
    return seal(good_body(frame), token=TOKEN, use=use, scope=scope, topic=topic)


@pytest.mark.parametrize("frame", FRAMES)
def test_the_unspoilt_message_is_accepted(frame: str) -> None:
    assert read(good_wire(frame), frame).kind == good_body(frame)["kind"]


@pytest.mark.parametrize("frame", FRAMES)
def test_the_envelope_is_what_the_design_says_it_is(frame: str, forge: Callable[..., bytes]) -> None:
    _, _, use, scope, topic = FRAMES[frame]
    body = good_body(frame)
    assert seal(body, token=TOKEN, use=use, scope=scope, topic=topic) == forge(
        spelt(body), token=TOKEN, use=use, scope=scope, topic=topic
    )


# -- the wrapper ----------------------------------------------------------------

B64 = base64.urlsafe_b64encode
MAC = "v1," + B64(bytes(32)).decode().rstrip("=")
WRONG_TYPES: list[object] = [1, True, None, [], {}]
WRONG_VERSIONS: list[object] = ["1", True, None, [], {}, 0, 2, -1, 10**30]
WRAPPER: list[tuple[str, object, object, str]] = [
    *[(field, "missing", None, "malformed") for field in ("v", "kid", "body", "sig")],
    *[(field, "float", 1.5, "malformed") for field in ("v", "kid", "body", "sig")],
    *[(field, value, value, "malformed") for field in ("kid", "body", "sig") for value in WRONG_TYPES],
    *[("v", value, value, "unsupported_version") for value in WRONG_VERSIONS],
    ("kid", "another", "k2", "unknown_key"),
    ("kid", "empty", "", "unknown_key"),
    ("kid", "too long", "k" * 33, "malformed"),
    ("body", "empty", "", "bad_signature"),
    ("body", "another", B64(b"{} ").decode(), "bad_signature"),
    ("body", "padded", B64(b"{}").decode(), "malformed"),
    ("body", "spare bits", "e31", "malformed"),
    ("body", "plain alphabet", "+//+", "malformed"),
    ("body", "impossible length", "a", "malformed"),
    ("body", "white space", "e30\n", "malformed"),
    ("body", "not ascii", "é" * 4, "malformed"),
    ("sig", "another", MAC, "bad_signature"),
    ("sig", "truncated", "v1," + B64(bytes(30)).decode(), "bad_signature"),
    ("sig", "longer", "v1," + B64(bytes(33)).decode(), "bad_signature"),
    ("sig", "no MAC", "v1,", "bad_signature"),
    ("sig", "empty", "", "malformed"),
    ("sig", "no scheme", MAC[3:], "malformed"),
    ("sig", "another scheme", "v2" + MAC[2:], "malformed"),
    ("sig", "two of them", f"{MAC} {MAC}", "malformed"),
    ("sig", "padded", MAC + "=", "malformed"),
    ("sig", "spare bits", MAC[:-1] + "B", "malformed"),
]


@pytest.mark.req("M96")
@pytest.mark.parametrize(
    ("field", "value", "code"),
    [(field, None if how == "missing" else (value,), code) for field, how, value, code in WRAPPER],
    ids=[f"{field}: {how!r}" for field, how, _, _ in WRAPPER],
)
def test_a_spoilt_member_of_the_wrapper_is_refused(field: str, value: tuple[object] | None, code: str) -> None:
    members = json.loads(good_wire())
    if value is None:
        del members[field]
    else:
        (members[field],) = value
    assert outcome(spelt(members)) == code
    assert code in signing.UNAUTHENTICATED


@pytest.mark.parametrize("field", ["v", "kid", "body", "sig"])
def test_a_member_of_the_wrapper_that_stands_twice_is_refused(field: str) -> None:
    wire = good_wire()
    member = spelt({field: json.loads(wire)[field]})[1:-1]
    assert outcome(wire[:-1] + b"," + member + b"}") == "malformed"


SPELLINGS = {
    "an extra member": lambda wire: wire[:-1] + b',"alg":"none"}',
    "another order": lambda wire: spelt(dict(reversed(json.loads(wire).items()))),
    "white space inside": lambda wire: json.dumps(json.loads(wire)).encode(),
    "white space after": lambda wire: wire + b"\n",
    "an escape": lambda wire: wire.replace(b'"kid"', rb'"\u006bid"'),
    "an escaped value": lambda wire: wire.replace(b'"k1"', rb'"\u006b1"'),
    "another way to write 1": lambda wire: wire.replace(b'"v":1', b'"v":1e0'),
    "an array": lambda wire: b"[" + wire + b"]",
    "UTF-16": lambda wire: wire.decode().encode("utf-16"),
    "a byte order mark": lambda wire: b"\xef\xbb\xbf" + wire,
    "half of it": lambda wire: wire[: len(wire) // 2],
}


@pytest.mark.parametrize("respell", SPELLINGS.values(), ids=SPELLINGS)
def test_another_spelling_of_a_good_wrapper_is_refused(respell: Callable[[bytes], bytes]) -> None:
    assert outcome(respell(good_wire())) == "malformed"


LEGACY = {"event": "report", "job_id": JOB, "auth_token": TOKEN.hex(), "verdict": "pass"}


@pytest.mark.req("M96")
@pytest.mark.parametrize(
    "wire",
    [spelt(LEGACY), spelt({**LEGACY, "v": 1}), OTHER_TOKEN.hex().encode() + b"." + spelt(LEGACY), TOKEN.hex().encode()],
    ids=["plain", "with a version", "hex and JSON", "the token itself"],
)
def test_a_legacy_message_that_shows_its_token_is_refused(wire: bytes) -> None:
    assert outcome(wire) == "malformed"


@pytest.mark.req("M38")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"keyring": {"k1": OTHER_TOKEN}}, "bad_signature"),
        ({"keyring": {"k2": TOKEN}}, "unknown_key"),
        ({"keyring": {}}, "unknown_key"),
        ({"topic": f"jobs/{OTHER_JOB}"}, "bad_signature"),
        ({"topic": ""}, "bad_signature"),
        ({"scope": OTHER_JOB}, "bad_signature"),
        ({"use": "rt"}, "bad_signature"),
    ],
    ids=repr,
)
def test_a_good_wire_in_the_wrong_place_is_refused(options: dict[str, Any], code: str) -> None:
    assert outcome(good_wire(), **options) == code


# -- the body, which is signed well -----------------------------------------------

WRONG: dict[str, list[object]] = {
    "id": [7, True, 1.5, None, "", "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n", []],
    "kind": [7, True, 1.5, None, "", "Started", "a b", "a" * 33, "started\n", []],
    "ts": ["1", True, 1.5, None, -1, 2**53, 10**4000, []],
    "producer": [7, True, 1.5, None, "", "P", "p q", "p" * 65, "p\n", []],
    "data": [7, True, 1.5, None, "{}", []],
    "job": [7, True, 1.5, "", "no", "JOB-0123456789", JOB + "\n", []],
    "session": [7, True, 1.5, None, "", "0123", "W1", "w1\n", []],
    "attempt": ["1", True, 1.5, None, -1, 2**53, []],
    "seq": ["0", True, 1.5, None, -1, 2**53, []],
    "generation": ["0", True, 1.5, None, -1, 2**53, []],
}
FIELDS = [(frame, field) for frame in FRAMES for field in good_body(frame)]


@pytest.mark.req("M38", "M96")
@pytest.mark.parametrize(("frame", "field"), FIELDS)
def test_a_spoilt_member_of_a_signed_body_is_refused(
    frame: str, field: str, forge: Callable[..., bytes], figure: Callable[[str, float], None]
) -> None:
    _, _, use, scope, topic = FRAMES[frame]
    good = good_body(frame)

    def code(data: bytes) -> str:
        return outcome(forge(data, token=TOKEN, use=use, scope=scope, topic=topic), frame)

    assert code(spelt({key: value for key, value in good.items() if key != field})) == "schema"
    assert code(spelt(good)[:-1] + b"," + spelt({field: good[field]})[1:-1] + b"}") == "schema"
    accepted = [value for value in WRONG[field] if code(spelt({**good, field: value})) != "schema"]
    assert accepted == []
    figure("cells", 1 + len(WRONG[field]))  # beside this case itself


@pytest.mark.parametrize("frame", FRAMES)
def test_an_extra_member_of_a_signed_body_is_refused(frame: str, forge: Callable[..., bytes]) -> None:
    _, _, use, scope, topic = FRAMES[frame]
    body = spelt({**good_body(frame), "auth_token": "x"})
    assert outcome(forge(body, token=TOKEN, use=use, scope=scope, topic=topic), frame) == "schema"


@pytest.mark.parametrize("value", [0, None])
def test_a_job_event_belongs_to_an_attempt_and_a_session_message_need_not(
    value: object, forge: Callable[..., bytes]
) -> None:
    field = "attempt" if value == 0 else "job"
    for frame in ("job", "command"):
        _, _, use, scope, topic = FRAMES[frame]
        wire = forge(spelt({**good_body(frame), field: value}), token=TOKEN, use=use, scope=scope, topic=topic)
        if frame == "job":
            assert outcome(wire, frame) == "schema"
        else:
            assert getattr(read(wire, frame), field) == value
