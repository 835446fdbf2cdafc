"""Spoils a good message in one of many ways, each time so that nobody should accept it any more."""

import base64
import json
import random
from collections.abc import Callable, Sequence

from mam.broker.envelope.signing import MAX_WIRE_BYTES, seal

Wire = tuple[str, bytes]  # logical topic and bytes


def tamper(dice: random.Random, good: Sequence[Wire], tokens: Sequence[bytes]) -> Wire:
    """One of *good*, spoilt; never one of *good* itself. *tokens* are keys that belong to something else."""
    while True:
        topic, wire = dice.choice(good)
        spoilt = dice.choice(WAYS)(dice, topic, wire, good, tokens)
        if spoilt not in good:
            return spoilt


Way = Callable[[random.Random, str, bytes, Sequence[Wire], Sequence[bytes]], Wire]


def _flip(dice: random.Random, topic: str, wire: bytes, *_: object) -> Wire:
    spoilt = bytearray(wire)
    for _again in range(dice.randint(1, 4)):
        spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
    return topic, bytes(spoilt)


def _insert(dice: random.Random, topic: str, wire: bytes, *_: object) -> Wire:
    at = dice.randrange(len(wire) + 1)
    return topic, wire[:at] + dice.randbytes(dice.randint(1, 8)) + wire[at:]


def _cut(dice: random.Random, topic: str, wire: bytes, *_: object) -> Wire:
    at = dice.randrange(len(wire))
    return topic, wire[:at] + wire[at + dice.randint(1, 40) :] if dice.random() < 0.7 else wire[:at]


def _graft(dice: random.Random, topic: str, wire: bytes, good: Sequence[Wire], *_: object) -> Wire:
    """A member of another message in this one."""
    members, donor = json.loads(wire), json.loads(dice.choice(good)[1])
    name = dice.choice(["body", "sig"])
    return topic, _spell({**members, name: donor[name]})


def _move(dice: random.Random, topic: str, wire: bytes, good: Sequence[Wire], *_: object) -> Wire:
    """The untouched message in another place."""
    elsewhere = [dice.choice(good)[0], topic + "/state", topic.upper(), "jobs/job-ffffffffffff", "agents/x/inbox", ""]
    return dice.choice(elsewhere), wire


def _rewrite(dice: random.Random, topic: str, wire: bytes, *_: object) -> Wire:
    """Another content, well spelt, under the old signature."""
    members = json.loads(wire)
    body = _unbase(members["body"])
    field = dice.choice(list(body))
    body[field] = dice.choice([None, 0, 2, "", "report", {"result": "done"}, [], True, dice.randbytes(16).hex()])
    return topic, _spell({**members, "body": _base(json.dumps(body, separators=(",", ":")).encode())})


def _sign_badly(dice: random.Random, topic: str, wire: bytes, *_: object) -> Wire:
    members = json.loads(wire)
    length = dice.choice([0, 16, 31, 32, 32, 32, 33, 64])
    return topic, _spell(
        {**members, "sig": dice.choice(["v1,", "v1,", "v1,", "v2,", ""]) + _base(dice.randbytes(length))}
    )


def _sign_with_another_key(dice: random.Random, topic: str, wire: bytes, _: object, tokens: Sequence[bytes]) -> Wire:
    """Signed by all the rules, with a key of another job, session or use, or one that nobody knows."""
    body = _unbase(json.loads(wire)["body"])
    job, runner = topic.startswith("jobs/"), topic.startswith("agents/")
    token = dice.choice([*tokens, dice.randbytes(32)])
    wrong_use = dice.choice(["cmd", "card", "rt" if job else "event-mac"])
    scope = topic.split("/")[1]
    if dice.random() < 0.5:
        return topic, seal(body, token=token, use=wrong_use, scope=scope, topic=topic)
    use = "event-mac" if job else "rt" if runner else "card"
    return topic, seal(body, token=token, use=use, scope=scope + "x", topic=topic)


def _rename_key(dice: random.Random, topic: str, wire: bytes, *_: object) -> Wire:
    return topic, _spell({**json.loads(wire), "kid": dice.choice(["k2", "", "K1", "k1 ", "k" * 33, "k1\0"])})


def _respell(dice: random.Random, topic: str, wire: bytes, *_: object) -> Wire:
    """The same content in other letters."""
    members = json.loads(wire)
    return topic, dice.choice(
        [
            json.dumps(members).encode(),
            _spell(dict(reversed(members.items()))),
            _spell({**members, "alg": "none"}),
            _spell({**members, "v": dice.choice([0, 2, 2**64, "1"])}),
            _spell({**members, "body": members["body"] + "="}),
            wire.replace(b'"kid"', rb'"\u006bid"'),
            wire.replace(b'"v":1', b'"v":1.0'),
            wire[:-1] + b',"v":1}',
            wire + b"\n",
            b"\xef\xbb\xbf" + wire,
            wire.decode().encode("utf-16"),
            b"[" + wire + b"]",
        ]
    )


def _rubbish(dice: random.Random, topic: str, *_: object) -> Wire:
    many = dice.randrange(1, 3000)
    oversize = b"x" * (MAX_WIRE_BYTES + many)
    return topic, dice.choice([dice.randbytes(many), b"[" * many, b'{"a":' * many, b"9" * many, b"{}", oversize])


WAYS: list[Way] = [
    _flip,
    _insert,
    _cut,
    _graft,
    _move,
    _rewrite,
    _sign_badly,
    _sign_with_another_key,
    _rename_key,
    _respell,
    _rubbish,
]


def _spell(members: dict[str, object]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()


def _base(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unbase(text: str) -> dict[str, object]:
    body: dict[str, object] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return body
