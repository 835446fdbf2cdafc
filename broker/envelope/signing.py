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
from collections.abc import Mapping
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


def _pae(*parts: bytes) -> bytes:
    """Return *parts* as bytes, each with its length before it, so that two different lists never give the same."""
    out = [b"MAM1", len(parts).to_bytes(8, "little")]
    for part in parts:
        out += (len(part).to_bytes(8, "little"), part)
    return b"".join(out)


def _mac(token: bytes, use: str, scope: str, kid: str, topic: str, body: bytes) -> bytes:
    data = _pae(b"v1", kid.encode(), topic.encode(), body)
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
