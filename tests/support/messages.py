"""What a message on the wire says, read by a test that does not ask who signed it."""

from typing import Any

from mam.broker.envelope.signing import unverified_body


def content_of(wire: bytes) -> dict[str, Any]:
    """The body of a message, with values of any type, as JSON has them."""
    return unverified_body(wire)
