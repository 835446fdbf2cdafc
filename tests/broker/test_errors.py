"""MamError: fields that are declared, checked against the texts, and given at each raise."""

import pickle
from typing import ClassVar

import pytest

from mam.broker.errors import MamError, field


class Base(MamError):
    session: str


class Asleep(Base):
    waited_s: float

    limit: ClassVar[int] = 3
    code = "asleep"
    message = "{session} sleeps since {waited_s:g} s"
    remedy_text = "`mam why {session}`"


class Ended(MamError):
    exit_status: int = field(alias="code")

    code = "ended"
    message = "it ended with {code}"


def test_the_fields_of_an_error_are_its_annotations_and_those_of_its_bases() -> None:
    assert [set(each.keywords) for each in (Base, Asleep)] == [{"session"}, {"session", "waited_s"}]


def test_fields_are_attributes_and_stay_readable_as_data() -> None:
    error = Asleep(session="writer", waited_s=2.0)

    assert (error.session, error.waited_s) == ("writer", 2.0)
    assert error.data == {"session": "writer", "waited_s": 2.0}
    assert (str(error), error.remedy) == ("writer sleeps since 2 s", "`mam why writer`")
    assert not hasattr(error, "seat")


@pytest.mark.parametrize("text", ["message", "remedy_text"])
def test_a_text_that_names_an_undeclared_field_makes_no_class(text: str) -> None:
    with pytest.raises(TypeError, match=r"names \{seat\}"):
        type("Wrong", (Base,), {text: "{session} has lost its {seat!r}"})


def test_a_field_with_a_default_makes_no_class() -> None:
    with pytest.raises(TypeError, match="no default"):
        type("Wrong", (Base,), {"__annotations__": {"seat": str}, "seat": "none"})


@pytest.mark.parametrize("words", [{"session": "writer"}, {"session": "writer", "waited_s": 1.0, "seat": 1}])
def test_a_missing_and_an_unknown_keyword_are_refused_in_tests(words: dict[str, object]) -> None:
    kind: type[MamError] = Asleep
    with pytest.raises(TypeError, match="waited_s"):
        kind(**words)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ({"session": "writer"}, "writer sleeps since <waited_s> s"),
        ({"session": "writer", "waited_s": 1.0, "seat": 1}, "writer sleeps since 1 s"),
        ({"session": "writer", "waited_s": "long"}, "{session} sleeps since {waited_s:g} s {'session': 'writer', "),
    ],
)
def test_wrong_words_never_hide_the_trouble_from_a_person(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, object], shown: str
) -> None:
    monkeypatch.setattr(MamError, "strict", False)
    kind: type[MamError] = Asleep

    assert str(kind(**words)).startswith(shown)


def test_an_error_that_was_pickled_with_other_fields_still_tells_its_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MamError, "strict", False)
    kind: type[MamError] = Asleep
    kept = pickle.dumps(kind(session="writer", seat=1))
    monkeypatch.setattr(MamError, "strict", True)

    again = pickle.loads(kept)

    assert (type(again), again.data, again.args) == (Asleep, {"session": "writer", "seat": 1}, (again.data,))
    assert str(again) == "writer sleeps since <waited_s> s" and not hasattr(again, "waited_s")


def test_a_field_whose_keyword_every_error_has_as_an_attribute_gets_a_name_of_its_own() -> None:
    error = Ended(code=9)

    assert (error.code, error.exit_status, error.data, str(error)) == ("ended", 9, {"code": 9}, "it ended with 9")
