"""MamError: the root of every error that MAM raises on purpose. Standard library only."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform


class _Alias:
    """The attribute of a field whose keyword has another name."""

    def __init__(self, keyword: str) -> None:
        self.keyword = keyword

    def __get__(self, error: "MamError", kind: type["MamError"]) -> object:
        return error.data[self.keyword]


def field(*, alias: str) -> Any:
    """Declare a field that is given as the keyword *alias*, where every error already has an attribute of that name."""
    return _Alias(alias)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class MamError(Exception):
    """
    What happened, to what, and what to do about it.

    A subclass is declared, not programmed. It annotates its fields, and *message* and *remedy_text* are format strings
    over them. The fields of its bases are its fields as well. No field has a default.

    A type checker checks each raise statement against the fields. Python checks the two texts when the class is made: a
    placeholder that is not a field raises TypeError. What an error was raised with stays readable as ``data`` and as
    attributes, and survives pickling.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    message: ClassVar[str] = ""
    remedy_text: ClassVar[str] = ""
    keywords: ClassVar[frozenset[str]] = frozenset()
    # Tests set this, so that a missing or unknown keyword raises TypeError. For a person it stays False: an error that
    # was raised with the wrong words must still tell the trouble that it stands for.
    strict: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        own = {
            _keyword(cls, name)
            for name, kind in cls.__annotations__.items()
            if getattr(kind, "__origin__", None) is not ClassVar
        }
        cls.keywords = frozenset(own).union(*(base.keywords for base in cls.__bases__ if issubclass(base, MamError)))
        for text in (cls.message, cls.remedy_text):
            text.format_map(_Declared(cls))

    def __init__(self, **data: object) -> None:
        super().__init__(data)
        self.data = data
        if self.strict and data.keys() != self.keywords:
            raise TypeError(f"{type(self).__name__} needs {sorted(self.keywords)}, and was given {sorted(data)}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """The value of a field. Raises AttributeError for other names, and for a field that was not given."""
            if name in type(self).keywords and name in self.data:
                return self.data[name]
            raise AttributeError(f"{type(self).__name__} has no {name}")

    def __str__(self) -> str:
        return _sentence(self.message, self.data)

    def __reduce__(self) -> tuple[object, tuple[type["MamError"], dict[str, object]]]:
        return _rebuild, (type(self), self.data)

    @property
    def remedy(self) -> str:
        """The next command or step, or an empty string where there is none."""
        return _sentence(self.remedy_text, self.data)


def _keyword(kind: type[MamError], name: str) -> str:
    """The keyword of the field *name*. Raises TypeError for a field that has a default."""
    given = vars(kind).get(name)
    if isinstance(given, _Alias):
        return given.keyword
    if name in vars(kind):
        raise TypeError(f"the field {name} of {kind.__name__} must have no default")
    return name


def _sentence(text: str, data: Mapping[str, object]) -> str:
    """
    Return *text* with *data* filled in.

    It never raises: an error of an older version may lack a field, or hold a value of another type.
    """
    try:
        return text.format_map(_Shown(data))
    except (ValueError, TypeError, LookupError, AttributeError):
        return f"{text} {dict(data)!r}"


class _Shown(dict[str, object]):
    """Data as it appears in a sentence: a missing name shows itself instead of raising a second error."""

    def __missing__(self, key: str) -> "_Placeholder":
        return _Placeholder(key)


class _Declared(dict[str, object]):
    """What the texts of a class may name: its fields. Any other name raises TypeError."""

    def __init__(self, kind: type[MamError]) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, key: str) -> "_Placeholder":
        if key not in self._kind.keywords:
            raise TypeError(f"a text of {self._kind.__name__} names {{{key}}}, which is none of its fields")
        return _Placeholder(key)


class _Placeholder:
    """Stands for a value that is not there, in any format."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __format__(self, spec: str) -> str:
        return f"<{self._key}>"

    def __repr__(self) -> str:
        return f"<{self._key}>"


def _rebuild(kind: type[MamError], data: dict[str, object]) -> MamError:
    """Return a pickled error as it was. Its keywords are not checked: another version may have written it."""
    error = kind.__new__(kind, data)
    error.data = data
    return error


def described(error: BaseException) -> str:
    """The type and the words of an error that foreign code raised. Never raises itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 (foreign code as well: an error's own text can fail)
        return type(error).__name__


class Usage(MamError):
    """The call's words are wrong."""

    what: str
    hint: str

    code = "usage"
    exit_code = 2
    message = "{what}"
    remedy_text = "{hint}"


class BadName(MamError):
    """A name could not be a topic, a file name, or what else it must be as well."""

    kind: str
    name: str
    rule: str

    code = "bad_name"
    exit_code = 2
    message = "{kind} name {name!r} cannot be used"
    remedy_text = "use {rule}"


class Busy(MamError):
    """Another process holds what was asked for, and did not let go of it in time."""

    what: str
    holder: str
    waited_s: float

    code = "busy"
    exit_code = 75  # EX_TEMPFAIL: the same command may work later
    message = "{what} is in use by {holder} (waited {waited_s:g} s)"
    remedy_text = "try again; a holder that was stopped goes on after `kill -CONT` with its pid"


class BrokerUnreachable(MamError):
    """The broker did not accept a connection in time, or did not grant what was asked of it."""

    url: str
    why: str

    code = "broker_unreachable"
    exit_code = 6
    message = "no broker answers at {url}: {why}"
    remedy_text = "`mam up` starts the embedded one; `mam doctor` checks yours"


class FileUnusable(MamError):
    """The root of the errors about one file or directory."""

    path: str


class FileRefused(FileUnusable):
    """A file or directory is not what it must be."""

    why: str
    hint: str

    code = "file_refused"
    message = "{path} was refused: {why}"
    remedy_text = "{hint}"
