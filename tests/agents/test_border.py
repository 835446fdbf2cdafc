"""The border to agent adapters: what an adapter raises or returns wrongly is one typed error that names the adapter."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mam.agents import catalog
from mam.agents.border import Adapter, AdapterFailed, required
from mam.agents.protocol import Launch, Permissions, Screen, ScreenState, Seat
from mam.broker.errors import Usage

NEWCOMER = Path(__file__).parents[1] / "support" / "newcomer"
SEAT = Seat("writer", Path("/srv/x"), Path("/home/x"), "")
CALLS: dict[str, Callable[[Adapter], object]] = {
    "new_conversation": lambda adapter: adapter.new_conversation(),
    "launch": lambda adapter: adapter.launch(SEAT),
    "resume": lambda adapter: adapter.resume(SEAT),
    "read": lambda adapter: adapter.read(Screen("")),
    "draft": lambda adapter: adapter.draft(Screen("")),
    "conversation_files": lambda adapter: adapter.conversation_files(SEAT),
    "grants": lambda adapter: adapter.grants(Permissions([])),
}


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def foreign(**members: Any) -> Any:
    """An adapter that has all that is required, and *members* besides or instead."""
    plain: dict[str, Any] = {
        "name": "odd",
        "ready_within_s": 5,
        "submit_pause_s": 0.1,
        "instruction_file": "ODD.md",
        "new_conversation": lambda: None,
        "launch": lambda seat: Launch(["odd"]),
        "resume": lambda seat: None,
        "read": lambda screen: ScreenState.READY,
    }
    return SimpleNamespace(**{**plain, **members})


@pytest.mark.parametrize("error", [IndexError("out of range"), SystemExit(3), SilentError(), Usage(what="x", hint="y")])
@pytest.mark.parametrize("member", CALLS)
def test_whatever_an_adapter_raises_is_one_typed_error(member: str, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    adapter = Adapter("odd", foreign(**{member: fail}))
    if isinstance(error, Usage) and member in ("launch", "resume"):
        with pytest.raises(Usage):  # the user's own words are wrong, and the adapter says how
            CALLS[member](adapter)
        return
    with pytest.raises(AdapterFailed, match=f"'odd' failed in {member}: {type(error).__name__}") as caught:
        CALLS[member](adapter)
    assert "mam agent check odd" in caught.value.remedy


@pytest.mark.parametrize(
    ("member", "wrong"),
    [
        ("new_conversation", 7),
        ("launch", None),
        ("launch", ["odd"]),
        ("launch", Launch([])),
        ("launch", Launch("odd")),
        ("launch", Launch(["odd"], {"A": 1})),  # type: ignore[dict-item]
        ("resume", "odd"),
        ("read", "ready"),
        ("read", None),
        ("draft", 1),
        ("conversation_files", "/srv/x"),
        ("conversation_files", ["/srv/x"]),
        ("conversation_files", None),
        ("grants", "-c"),
        ("grants", [1]),
    ],
)
def test_a_result_of_another_type_is_the_same_error(member: str, wrong: object) -> None:
    adapter = Adapter("odd", foreign(**{member: lambda *_: wrong}))

    with pytest.raises(AdapterFailed, match=f"failed in {member}: "):
        CALLS[member](adapter)


def test_a_capability_that_an_adapter_does_not_have_gives_the_empty_answer() -> None:
    adapter = Adapter("odd", foreign())

    assert (adapter.draft(Screen("text")), adapter.conversation_files(SEAT), adapter.grants(Permissions([]))) == (
        False,
        [],
        [],
    )
    assert not (adapter.sees_drafts or adapter.keeps_conversations or adapter.takes_permissions)


def test_an_adapter_that_fails_when_it_is_asked_for_a_capability_is_refused_where_it_is_loaded() -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            if name == "draft":
                raise IndexError("odd")
            return getattr(foreign(), name)

    with pytest.raises(AdapterFailed, match="draft: IndexError"):
        Adapter("odd", Odd())


def test_the_loader_demands_all_that_the_protocol_has() -> None:
    functions = {"new_conversation", "launch", "resume", "read"}

    assert set(required()) == functions | {"name", "ready_within_s", "submit_pause_s", "instruction_file"}


@pytest.mark.parametrize("member", required())
def test_a_member_that_is_missing_is_named_by_the_loader(member: str) -> None:
    lacking = foreign()
    delattr(lacking, member)

    with pytest.raises(AdapterFailed, match=f"it lacks {member}"):
        Adapter("odd", lacking)


@pytest.mark.parametrize("member", ["ready_within_s", "submit_pause_s"])
@pytest.mark.parametrize("wrong", ["5", True, -1, float("nan"), None])
def test_a_time_that_is_none_is_refused_before_it_is_waited_for(member: str, wrong: object) -> None:
    with pytest.raises(AdapterFailed):
        Adapter("odd", foreign(**{member: wrong}))


@pytest.mark.parametrize(
    "text",
    ["raise RuntimeError('at import')", "import sys; sys.exit(1)", "def (", "import no_such_module", "name = 'odd'"],
)
def test_a_package_that_cannot_be_loaded_is_named_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    about = tmp_path / "mam_odd-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mam-odd\nVersion: 1.0\n", "utf-8")
    (about / "entry_points.txt").write_text("[mam.agents]\nodd = mam_odd\n", "utf-8")
    (tmp_path / "mam_odd.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mam_odd", raising=False)

    with pytest.raises(catalog.BrokenAgent, match=r"'odd' of mam-odd cannot be used: "):
        catalog.find("odd")


@pytest.mark.parametrize(("kind", "capable"), [("parrot", True), ("early-bird", False)])
def test_a_package_of_a_strangers_is_found_with_and_without_capabilities(
    monkeypatch: pytest.MonkeyPatch, kind: str, capable: bool
) -> None:
    monkeypatch.syspath_prepend(NEWCOMER)
    adapter = catalog.find(kind)

    assert (adapter.sees_drafts, adapter.keeps_conversations, adapter.takes_permissions) == (capable,) * 3
