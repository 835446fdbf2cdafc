"""Finds secrets in whatever was seen: as they are, as hex, as base64 at any offset, and in base64 inside of base64."""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_HEX_RUN, _HEX_PROBE = re.compile(rb"[0-9a-f]{16,}"), 16
_B64_RUN, _B64_PROBE = re.compile(rb"[A-Za-z0-9+/]{20,}"), 20
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
LAYERS = 2


class Leak(NamedTuple):
    """A secret by its name, never by itself: this is printed where a test fails."""

    secret: str
    form: str
    place: str


class Scanner:
    """
    Knows secrets (bytes, of at least 16) by name and finds each where its first 16 bytes show.

    A key is known by its bytes and by the hex that its file holds, a password by its text.
    """

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self._plain: list[tuple[bytes, str]] = []
        self._hex: dict[bytes, str] = {}
        self._base64: dict[bytes, str] = {}
        for name, secret in secrets.items():
            assert len(secret) >= 16, name
            self._learn(name, secret)
            self._hex[secret.hex().encode()[:_HEX_PROBE]] = name
            self._learn(name, secret.hex().encode(), plain=False)

    def _learn(self, name: str, text: bytes, *, plain: bool = True) -> None:
        if plain:
            self._plain.append((text[:16], name))
        self._hex[text.hex().encode()[:_HEX_PROBE]] = name
        for offset, unstable in ((0, 0), (1, 2), (2, 3)):  # characters that hold bits of what stands before
            probe = base64.b64encode(b"\0" * offset + text)[unstable:][:_B64_PROBE]
            self._base64[probe] = name

    def find(self, place: str, data: bytes, layers: int = LAYERS) -> Iterator[Leak]:
        """Every secret that *data* shows; *layers* of base64 are taken off."""
        for probe, name in self._plain:
            if probe in data:
                yield Leak(name, "plain", place)
        for name in _probed(_HEX_RUN, _HEX_PROBE, data.lower(), self._hex):
            yield Leak(name, "hex", place)
        standard = data.translate(_TO_STANDARD)
        for name in _probed(_B64_RUN, _B64_PROBE, standard, self._base64):
            yield Leak(name, "base64", place)
        if layers > 0:
            for run in _B64_RUN.findall(standard):
                inner = base64.b64decode(run[: len(run) // 4 * 4])
                yield from (
                    leak._replace(form=f"{leak.form} in base64") for leak in self.find(place, inner, layers - 1)
                )


def _probed(runs: "re.Pattern[bytes]", length: int, data: bytes, known: Mapping[bytes, str]) -> set[str]:
    found = set()
    for run in runs.findall(data):
        found |= known.keys() & {run[start : start + length] for start in range(len(run) - length + 1)}
    return {known[probe] for probe in found}
