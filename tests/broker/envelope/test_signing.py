"""seal and unseal: what is sealed comes back, and nothing else does."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mam.broker.envelope import payloads, signing
from mam.broker.envelope.signing import EventRefused, seal, unseal, unwrap

JOB = "job-0123456789ab"
TOPIC = f"jobs/{JOB}"
TOKEN = bytes(range(7, 39))
USES = ("event-mac", "cmd", "rt", "card")
MANY = settings(deadline=None, max_examples=200)

text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
json_bodies = st.dictionaries(text, json_values, max_size=8)


def sealed(
    body: Mapping[str, object],
    *,
    token: bytes = TOKEN,
    use: str = "event-mac",
    scope: str = JOB,
    topic: str = TOPIC,
    kid: str = "k1",
) -> bytes:
    return seal(body, token=token, use=use, scope=scope, topic=topic, kid=kid)


def opened(
    wire: bytes,
    *,
    keyring: Mapping[str, bytes] | None = None,
    use: str = "event-mac",
    scope: str = JOB,
    topic: str = TOPIC,
) -> dict[str, object]:
    return unseal(wire, keyring={"k1": TOKEN} if keyring is None else keyring, use=use, scope=scope, topic=topic)


def outcome(wire: bytes, **options: Any) -> str:
    with pytest.raises(EventRefused) as caught:
        opened(wire, **options)
    return caught.value.outcome


def started() -> dict[str, object]:
    return payloads.Producer("p").job_event(JOB, 1, "started", {"cwd": "/작업/ä 🚀"})


@pytest.mark.req("M38", "M96")
def test_a_sealed_event_comes_back_as_it_was() -> None:
    body = started()
    assert opened(sealed(body)) == body


@MANY
@given(json_bodies, text.filter(lambda kid: len(kid) <= 32))
def test_every_json_body_without_floats_comes_back(body: Mapping[str, object], kid: str) -> None:
    wire = sealed(body, kid=kid)
    assert opened(wire, keyring={kid: TOKEN}) == body


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert opened(sealed({"note": "a\ud800b"})) == {"note": "a?b"}


def test_seal_refuses_a_float_which_no_reader_would_take() -> None:
    with pytest.raises(ValueError):
        sealed({"data": {"percent": 1.5}})


def test_seal_refuses_what_is_over_the_limit_and_unseal_takes_what_is_at_it() -> None:
    empty = len(sealed({"data": ""}))
    fits = (signing.MAX_WIRE_BYTES - empty) // 4 * 3
    wire = sealed({"data": "x" * fits})
    assert signing.MAX_WIRE_BYTES - 4 <= len(wire) <= signing.MAX_WIRE_BYTES
    assert opened(wire) == {"data": "x" * fits}
    with pytest.raises(ValueError):
        sealed({"data": "x" * (fits + 8)})
    assert outcome(b"x" * signing.MAX_WIRE_BYTES) == "malformed"
    assert outcome(b"x" * (signing.MAX_WIRE_BYTES + 1)) == "too_large"


@pytest.mark.req("M38")
@pytest.mark.parametrize("signed", USES)
@pytest.mark.parametrize("read", USES)
def test_a_key_of_one_use_opens_nothing_of_another(signed: str, read: str) -> None:
    """The control plane's words to a runner cannot be reflected as the runner's own, nor any other way round."""
    wire = sealed(started(), use=signed)
    if signed == read:
        assert opened(wire, use=read)["job"] == JOB
    else:
        assert outcome(wire, use=read) == "bad_signature"


def test_a_use_and_a_scope_cannot_be_divided_otherwise() -> None:
    assert outcome(sealed(started(), use="cmd", scope="w1"), use="cm", scope="dw1") == "bad_signature"


@pytest.mark.req("M38", "M36")
@pytest.mark.parametrize("topic", ["jobs/job-ffffffffffff", f"jobs/{JOB}/state", "agents/w1/inbox", f"mam/fp/{TOPIC}"])
def test_an_event_is_valid_on_its_own_topic_only(topic: str) -> None:
    assert outcome(sealed(started()), topic=topic) == "bad_signature"


@pytest.mark.req("M38")
def test_the_same_token_in_another_scope_is_another_key() -> None:
    assert outcome(sealed(started(), scope="job-ffffffffffff")) == "bad_signature"


def test_every_kid_of_the_ring_is_accepted_until_it_is_removed() -> None:
    old, new = bytes(32), bytes(range(32))
    before, after = sealed(started(), token=old), sealed(started(), token=new, kid="k2")
    both = {"k1": old, "k2": new}
    assert opened(before, keyring=both)["job"] == opened(after, keyring=both)["job"] == JOB
    assert outcome(before, keyring={"k2": new}) == "unknown_key"
    assert outcome(sealed(started(), token=new), keyring=both) == "bad_signature"


def test_the_name_of_the_key_is_signed_as_well() -> None:
    renamed = sealed(started()).replace(b'"kid":"k1"', b'"kid":"k2"')
    assert outcome(renamed, keyring={"k1": TOKEN, "k2": TOKEN}) == "bad_signature"


def test_the_form_of_an_envelope_is_known_before_its_key() -> None:
    wrapper = unwrap(sealed(started(), kid="k7"))
    assert wrapper.kid == "k7"
    assert json.loads(wrapper.body)["job"] == JOB


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good wire after one to five flips, inserts and deletes, unlike what it was."""
    good = sealed({"id": "0" * 32, "job": JOB, "data": {"note": "ä"}})
    wire = bytearray(good)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(wire) - 1))
        match draw(st.sampled_from(("flip", "insert", "delete"))):
            case "flip":
                wire[at] ^= 1 << draw(st.integers(0, 7))
            case "insert":
                wire[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "delete":
                del wire[at]
    return bytes(wire) if bytes(wire) != good else good + b" "


@pytest.mark.req("M96")
@MANY
@given(damaged())
def test_damage_of_any_kind_is_refused_before_the_body_is_read(wire: bytes) -> None:
    assert outcome(wire) in signing.UNAUTHENTICATED


def test_every_single_flipped_bit_and_deleted_byte_is_refused() -> None:
    good = sealed({"job": JOB})
    for at in range(len(good)):
        for bit in range(8):
            wire = bytearray(good)
            wire[at] ^= 1 << bit
            assert outcome(bytes(wire)) in signing.UNAUTHENTICATED
        assert outcome(good[:at] + good[at + 1 :]) in signing.UNAUTHENTICATED


@MANY
@given(st.binary(max_size=600))
@example(b"")
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbf{}")
def test_arbitrary_bytes_raise_nothing_but_event_refused(wire: bytes) -> None:
    assert outcome(wire) == "malformed"


@MANY
@given(json_values | st.fixed_dictionaries(dict.fromkeys(("v", "kid", "body", "sig"), json_values | st.floats())))
@example({"v": 1, "kid": "\ud800", "body": "", "sig": "v1,"})
@example({"v": 1, "kid": "k1", "body": "é", "sig": "v1,"})
@example({"v": 1, "kid": "k1", "body": "a", "sig": "v1,a"})
def test_arbitrary_json_raises_nothing_but_event_refused(value: object) -> None:
    wire = json.dumps(value, separators=(",", ":")).encode()
    assert outcome(wire) in signing.UNAUTHENTICATED


DEEP = 30_000
HOSTILE = {
    "nested arrays": b"[" * DEEP,
    "nested objects": b'{"a":' * DEEP,
    "closed nested arrays": b"[" * DEEP + b"]" * DEEP,
    "an integer of 5000 digits": b'{"v":' + b"9" * 5000 + b"}",
    "a float": b'{"v":1.0}',
    "NaN": b'{"v":NaN}',
    "Infinity": b'{"v":-Infinity}',
    "a lone surrogate": rb'{"v":"\ud800"}',
    "a raw control character": b'{"v":"\n"}',
    "a key twice": b'{"v":1,"v":1}',
    "bytes after the end": b'{"v":1}{',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_refused_as_a_wrapper_and_as_a_signed_body(data: bytes, forge: Callable[..., bytes]) -> None:
    assert outcome(data) == "malformed"
    assert outcome(forge(data, token=TOKEN, use="event-mac", scope=JOB, topic=TOPIC)) == "schema"


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"text"', b""])
def test_a_signed_body_that_is_no_object_is_refused(body: bytes, forge: Callable[..., bytes]) -> None:
    assert outcome(forge(body, token=TOKEN, use="event-mac", scope=JOB, topic=TOPIC)) == "schema"


def spellings(token: bytes) -> list[bytes]:
    plain, url = base64.b64encode(token), base64.urlsafe_b64encode(token)
    return [token, token.hex().encode(), token.hex().upper().encode(), plain.rstrip(b"="), url.rstrip(b"=")]


@pytest.mark.req("M38")
@MANY
@given(
    token=st.binary(min_size=32, max_size=32),
    fault=st.sampled_from(["wire", "kid", "topic", "damage", "schema"]),
)
def test_the_token_is_in_no_wire_no_repr_and_no_error(token: bytes, fault: str, forge: Callable[..., bytes]) -> None:
    wire = sealed(started(), token=token)
    ring, topic = {"k1": token}, TOPIC
    if fault == "kid":
        ring = {"k2": token}
    elif fault == "topic":
        topic = "jobs/job-ffffffffffff"
    elif fault == "damage":
        wire = wire[:-3] + b'"}'
    elif fault == "schema":
        wire = forge(b"[]", token=token, use="event-mac", scope=JOB, topic=TOPIC)
    shown = [wire, repr(unwrap(sealed(started(), token=token))).encode()]
    if fault != "wire":
        with pytest.raises(EventRefused) as caught:
            opened(wire, keyring=ring, topic=topic)
        error = caught.value
        shown += [str(error).encode(), repr(error).encode(), repr(error.data).encode(), error.remedy.encode()]
    assert not [spelling for spelling in spellings(token) for place in shown if spelling in place]


GARBAGE = [
    *(b"", b"\xff\xfe", b"{", b"[]", b"null", b"1", b'"text"', b"{}", b'{"body": 1}', b'{"body": null}'),
    *(b'{"body": []}', b'{"body": {}}', b'{"body": "%%%"}', b'{"body": "\xed\x95\x9c"}', b'{"body": "AAAA"}'),
    *(b'{"body": "W10"}', b'{"body": "bnVsbA"}', b"[" * 100_000, b'{"body": "' + b"W1tb" * 50_000 + b'"}'),
    b'{"body": ' + b"9" * 5000 + b"}",
]


def claiming(body: object) -> bytes:
    text = base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")
    return json.dumps({"v": 1, "kid": "k1", "body": text, "sig": "v1,x"}).encode()


class TestUnverified:
    @pytest.mark.parametrize("content", GARBAGE, ids=lambda content: repr(content[:24]))
    def test_garbage_claims_nothing_and_raises_nothing(self, content: bytes) -> None:
        assert signing.unverified_body(content) == {}
        assert signing.claimed(content) == ("", 0)

    def test_kind_and_attempt_are_read(self) -> None:
        wire = claiming({"kind": "started", "attempt": 2})
        assert signing.claimed(wire) == ("started", 2)
        body = started()
        assert signing.unverified_body(sealed(body)) == body

    @pytest.mark.parametrize("attempt", [None, "2", 2.5, [2]])
    def test_an_attempt_that_is_not_a_number_reads_as_0(self, attempt: object) -> None:
        assert signing.claimed(claiming({"kind": "started", "attempt": attempt})) == ("started", 0)
