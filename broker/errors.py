"""MamError: the root of every error that MAM raises on purpose. Standard library only."""

from collections.abc import Mapping
from typing import ClassVar


class MamError(Exception):
    """
    What happened, to what, and what to do about it.

    A subclass is declared, not programmed: *message* and *remedy* are format
    strings over the keyword arguments that it is raised with, which stay
    readable as ``data`` and survive pickling.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = "{what}"
    remedy_text: ClassVar[str] = ""

    def __init__(self, **data: object) -> None:
        super().__init__(data)
        self.data = data

    def __str__(self) -> str:
        return self.message.format_map(_Shown(self.data))

    def __reduce__(self) -> tuple[object, tuple[type["MamError"], dict[str, object]]]:
        return _rebuild, (type(self), self.data)

    @property
    def remedy(self) -> str:
        """The next command or step, or an empty string where there is none."""
        return self.remedy_text.format_map(_Shown(self.data))


class _Shown(dict[str, object]):
    """Data as it appears in a sentence: a missing name shows itself instead of raising a second error."""

    def __init__(self, data: Mapping[str, object]) -> None:
        super().__init__(data)

    def __missing__(self, key: str) -> "_Absent":
        return _Absent(key)


class _Absent:
    def __init__(self, key: str) -> None:
        self._key = key

    def __format__(self, spec: str) -> str:
        return f"<{self._key}>"

    def __repr__(self) -> str:
        return f"<{self._key}>"


def _rebuild(kind: type[MamError], data: dict[str, object]) -> MamError:
    return kind(**data)


class Usage(MamError):
    """The call's words are wrong."""

    code = "usage"
    exit_code = 2
    message = "{what}"
    remedy_text = "{hint}"


class BadName(MamError):
    code = "bad_name"
    exit_code = 2
    message = "{kind} name {name!r} cannot be used"
    remedy_text = "use {rule}"


class Busy(MamError):
    code = "busy"
    exit_code = 75  # EX_TEMPFAIL: the same command may work later
    message = "{what} is in use by {holder} (waited {waited_s:g} s)"
    remedy_text = "try again; a holder that somebody stopped goes on after `kill -CONT` with its pid"


class BrokerUnreachable(MamError):
    code = "broker_unreachable"
    exit_code = 6
    message = "no broker answers at {url}: {why}"
    remedy_text = "`mam up` starts the embedded one; `mam doctor` checks yours"


class FileRefused(MamError):
    code = "file_refused"
    message = "{path} was refused: {why}"
    remedy_text = "{hint}"
