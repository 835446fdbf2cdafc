"""The contract of agent adapters: MAM's own and a package's keep it, and each check fails where it should."""

from pathlib import Path
from typing import Any

import pytest

from mam.agents import catalog, contract, samples
from mam.agents.border import Adapter
from mam.agents.protocol import Launch, Screen, ScreenState, Seat
from mam.agents.samples import Sample
from tests.agents.test_border import foreign
from tests.support.sample_choice import CHOSEN, KINDS, SCREENS, choose, chosen, reached, read_now

NEWCOMER = Path(__file__).parents[1] / "support" / "newcomer"
PACKAGES = ("early-bird", "parrot")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial"


def failed(adapter: Adapter, place: Path, *recorded: Sample) -> set[str]:
    return {each.check for each in contract.run(adapter, place, recorded) if each.outcome == "failed"}


@pytest.mark.parametrize("kind", [*catalog.AGENTS, *PACKAGES])
def test_every_adapter_keeps_the_contract(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(NEWCOMER)
    recorded = [samples.load(SCREENS / f"{kind}-{name}.txt", kind) for name in read_now(kind)]

    results = contract.run(catalog.find(kind), folder, recorded)
    assert [each for each in results if each.outcome == "failed"] == []
    assert ("reads its samples as they are named", bool(recorded)) in [
        (each.check, each.outcome == "passed") for each in results
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_chosen_screens_reach_what_all_of_them_reach(kind: str) -> None:
    found = reached(kind)
    few = set().union(*(found[name] for name in chosen() if name.startswith(f"{kind}-")))

    assert set().union(*found.values()) - few == set(), f"`python -m tests.support.sample_choice` renews {CHOSEN.name}"


def test_a_screen_that_alone_reaches_something_is_chosen() -> None:
    assert choose({"a": {("x",)}, "b": {("x",), ("y",)}, "c": {("z",)}}) == ["b", "c"]


def raises(*_: object) -> Any:
    raise IndexError("list index out of range")


def writes(seat: Seat) -> Launch:
    (seat.home / "left").write_text("x", "utf-8")
    return Launch(["odd", *seat.args])


BREAKS: dict[str, tuple[str, dict[str, Any]]] = {
    "another name": ("says what it is", {"name": "other"}),
    "a start of hours": ("says what it is", {"ready_within_s": 7200}),
    "no file's name": ("says what it is", {"instruction_file": "docs/ODD.md"}),
    "one id for all": ("draws each conversation anew", {"new_conversation": lambda: "1"}),
    "words dropped": ("launches with the user's words last", {"launch": lambda seat: Launch(["odd"])}),
    "words first": ("launches with the user's words last", {"launch": lambda seat: Launch([*seat.args, "odd"])}),
    "a zero byte": (
        "launches with the user's words last",
        {"launch": lambda seat: Launch(["odd", *seat.args], {"A": "\x00"})},
    ),
    "resumes anything": ("resumes nothing that was not kept", {"resume": lambda seat: Launch(["odd"])}),
    "files of others": (
        "names only files of the conversation",
        {"conversation_files": lambda seat: [seat.home]},
    ),
    "grants that fail": ("takes permissions", {"grants": raises}),
    "an index error": ("reads any screen", {"read": raises}),
    "ready at once": ("takes an empty screen for a start", {"read": lambda screen: ScreenState.READY}),
    "a draft on nothing": ("sees a draft or none on any screen", {"draft": lambda screen: True}),
    "a file left": ("changes nothing", {"launch": writes}),
}


def sound(**members: Any) -> Adapter:
    """An adapter that keeps the contract but for *members*."""
    plain = {
        "launch": lambda seat: Launch(["odd", *seat.args]),
        "read": lambda screen: ScreenState.READY if screen.text.strip() else ScreenState.STARTING,
    }
    return Adapter("odd", foreign(**{**plain, **members}))


def test_an_adapter_with_nothing_wrong_fails_in_nothing(folder: Path) -> None:
    assert failed(sound(), folder) == set()


@pytest.mark.parametrize("broken", BREAKS)
def test_each_check_fails_where_its_promise_is_broken(broken: str, folder: Path) -> None:
    check, members = BREAKS[broken]

    assert check in failed(sound(**members), folder)


def test_a_sample_that_is_read_otherwise_than_its_name_says_fails_and_is_named(tmp_path: Path, folder: Path) -> None:
    path = samples.write(tmp_path / "samples", "odd", "working", "in-a-turn", Screen("thinking", "a title"))
    results = contract.run(sound(), folder, [samples.load(path, "odd")])

    assert ["odd-working-in-a-turn as ready" in each.why for each in results if each.outcome == "failed"] == [True]


def test_a_sample_is_read_back_as_it_was_written_and_never_replaced(tmp_path: Path) -> None:
    screen = Screen("one\n two\n\n", "a title")
    first, second = (samples.write(tmp_path, "odd", "draft", "line", screen) for _ in range(2))

    assert (first.name, second.name) == ("odd-draft-line.txt", "odd-draft-line-2.txt")
    assert samples.load_all(tmp_path, "odd") == [
        Sample(path, screen, ScreenState.READY, draft=True) for path in (second, first)
    ]


@pytest.mark.parametrize("words", ["", "UP", "../x", "a b", "-x"])
def test_words_that_fit_no_name_are_refused(folder: Path, words: str) -> None:
    with pytest.raises(samples.SampleRefused):
        samples.write(folder, "odd", "ready", words, Screen(""))
    with pytest.raises(samples.SampleRefused):
        samples.load(folder / "odd-unheard-of.txt", "odd")
    assert list(folder.iterdir()) == []


def test_a_sample_is_named_by_what_its_adapter_reads() -> None:
    assert samples.state_word(sound(), Screen("x")) == "ready"
    assert samples.state_word(sound(draft=lambda screen: True), Screen("x")) == "draft"
    assert samples.state_word(sound(read=raises), Screen("x")) == "unreadable"
