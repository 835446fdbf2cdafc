"""
seal and unseal: the envelope `mam-event/1`. Standard library only.

The signature covers the exact bytes; nothing is canonicalised. A body is parsed only after its signature was found
right. The topic decides which key must have signed; the message does not.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, NoReturn

from mam.broker.envelope import keys
from mam.broker.errors import MamError

# What a key signs: each use has a key of its own, derived from the same token.
USE_JOB = "event-mac"
USE_COMMAND = "cmd"
USE_RUNTIME = "rt"
USE_CARD = "card"

MAX_WIRE_BYTES = 256 * 1024
_SIG_PREFIX = "v1,"

# Outcomes before the signature was checked: they prove nothing about the sender. The other outcomes do.
UNAUTHENTICATED = frozenset(
    {"too_large", "malformed", "unsupported_version", "bad_topic", "unknown_job", "unknown_key", "bad_signature"}
)


class EventRefused(MamError):
    """
    A message was not accepted.

    *outcome* is one of UNAUTHENTICATED; or the signature was right, and it is one of schema, binding_mismatch, expired,
    unknown_attempt, stale_attempt, equivocation, report_altered. The error never holds the payload.
    """

    outcome: str
    detail: str

    code = "event_refused"
    message = "event refused: {outcome} ({detail})"


def refuse(outcome: str, detail: str = "") -> NoReturn:
    """Raise EventRefused."""
    raise EventRefused(outcome=outcome, detail=detail)


class Wrapper(NamedTuple):
    """An envelope whose form is right. Its signature was not checked yet."""

    kid: str
    body: bytes
    mac: bytes


@lru_cache(maxsize=4096)
def _head(kid: str, topic: str) -> bytes:
    """What stands before a body in the bytes that are signed, its length excepted."""
    parts = (b"v1", kid.encode(), topic.encode())
    # Each is headed by its length, so that no two lists of parts make the same bytes.
    return b"".join((b"MAM1", _length(len(parts) + 1), *(_length(len(part)) + part for part in parts)))


def _length(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _mac(token: bytes, use: str, scope: str, kid: str, topic: str, body: bytes) -> bytes:
    data = _head(kid, topic) + _length(len(body)) + body
    return hmac.digest(keys.derive(token, use, scope), data, hashlib.sha256)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        refuse("malformed", "base64")
    if _b64(data) != text:  # with spare bits or padding, one message would have a second spelling
        refuse("malformed", "base64 is not canonical")
    return data


def _encode_wrapper(kid: str, body: bytes, mac: bytes) -> bytes:
    wrapper = {"v": 1, "kid": kid, "body": _b64(body), "sig": _SIG_PREFIX + _b64(mac)}
    return json.dumps(wrapper, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def seal(body: Mapping[str, object], *, token: bytes, use: str, scope: str, topic: str, kid: str = "k1") -> bytes:
    """
    Return the wire bytes of *body*, bound to *topic* and signed with the key for (*use*, *scope*).

    Lone surrogates become ``?``. Raises ValueError for what a reader would refuse: floats, a key that stands twice,
    more than MAX_WIRE_BYTES.
    """
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    _DECODER.decode(data.decode())
    wire = _encode_wrapper(kid, data, _mac(token, use, scope, kid, topic, data))
    if len(wire) > MAX_WIRE_BYTES:
        raise ValueError(f"an event of {len(wire)} bytes is over the limit of {MAX_WIRE_BYTES}")
    return wire


def unwrap(wire: bytes) -> Wrapper:
    """Return the parts of an envelope whose size and form are right. The body is not parsed. Raises EventRefused."""
    if len(wire) > MAX_WIRE_BYTES:
        refuse("too_large", f"{len(wire)} bytes")
    plain = _PLAIN.fullmatch(wire)
    if plain and _canonical(plain[2]) and _canonical(plain[3]):
        return Wrapper(plain[1].decode(), _unb64_plain(plain[2]), _unb64_plain(plain[3]))
    return _unwrap_slowly(wire)


# How an envelope is spelled whose kid needs no escapes. A wire that matches is its own re-encoding already.
_PLAIN = re.compile(rb'\{"v":1,"kid":"([A-Za-z0-9._-]{0,32})","body":"([A-Za-z0-9_-]*)","sig":"v1,([A-Za-z0-9_-]*)"\}')
_STANDARD = bytes.maketrans(b"-_", b"+/")
# By what is left of a text's length over 4: the last characters whose spare bits are zero.
_LAST = {2: b"AQgw", 3: b"AEIMQUYcgkosw048"}


def _canonical(text: bytes) -> bool:
    """Whether base64 of the URL's alphabet, without padding, is the one spelling of its bytes."""
    rest = len(text) % 4
    return rest == 0 or (rest != 1 and text[-1] in _LAST[rest])


def _unb64_plain(text: bytes) -> bytes:
    return binascii.a2b_base64(text.translate(_STANDARD) + b"=" * (-len(text) % 4))


def _unwrap_slowly(wire: bytes) -> Wrapper:
    """Any other spelling: what is wrong with it, or a kid that is spelled with escapes."""
    members = _strict_json(wire, "malformed")
    if not isinstance(members, dict) or list(members) != ["v", "kid", "body", "sig"]:
        refuse("malformed", "members")
    version, kid, body, sig = members.values()
    if type(version) is not int or version != 1:
        refuse("unsupported_version", str(version)[:20])
    if not (isinstance(kid, str) and isinstance(body, str) and isinstance(sig, str)) or len(kid) > 32:
        refuse("malformed", "types")
    if not sig.startswith(_SIG_PREFIX):
        refuse("malformed", "signature scheme")
    wrapper = Wrapper(kid, _unb64(body), _unb64(sig[len(_SIG_PREFIX) :]))
    if _encode_wrapper(*wrapper) != wire:
        refuse("malformed", "spelling")
    return wrapper


def unseal(wire: bytes, *, keyring: Mapping[str, bytes], use: str, scope: str, topic: str) -> dict[str, object]:
    """
    Return the parsed body of a signed message. Raises EventRefused.

    Args:
        keyring: The tokens of this scope by key id. Each of them is accepted.
        topic: The logical topic (below the root) on which the message arrived.
    """
    wrapper = unwrap(wire)
    token = keyring.get(wrapper.kid)
    if token is None:
        refuse("unknown_key", "kid")
    expected = _mac(token, use, scope, wrapper.kid, topic, wrapper.body)
    if not hmac.compare_digest(expected, wrapper.mac):
        refuse("bad_signature", topic)
    body = _strict_json(wrapper.body, "schema")
    if not isinstance(body, dict):
        refuse("schema", "the body is no object")
    return body


def unverified_body(wire: bytes) -> dict[str, object]:
    """
    The body that a message claims to have, its signature unseen; empty where there is none. Never raises.

    For timing, for what is dropped first, and for what `inbox` has verified before; never for truth.
    """
    try:
        text = json.loads(wire)["body"]
        body = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def claimed(wire: bytes) -> tuple[str, int]:
    """Kind and attempt that a message claims, its signature unseen; empty and 0 where it claims none."""
    body = unverified_body(wire)
    attempt = body.get("attempt")
    return str(body.get("kind", "")), attempt if isinstance(attempt, int) else 0


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key stands twice")
    return members


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is not allowed")


# Built once: json.loads with hooks would build a decoder for each call.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_float=_no_number, parse_constant=_no_number, strict=True
)


def _strict_json(data: bytes, outcome: str) -> object:
    try:
        text = data.decode("utf-8")
        value = _DECODER.decode(text)
        if "\\u" in text:  # an escaped half of a surrogate pair could not be stored
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        refuse(outcome, type(error).__name__)
    else:
        return value
