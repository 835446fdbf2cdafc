"""docs/architecture.md leads through the rooms: what it names exists, and no room is left out."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PAGE = TOP / "docs" / "architecture.md"
ROOMS = ("broker", "agents", "wrappers", "control_plane")
NAMED = re.compile(r"`((?:broker|agents|wrappers|control_plane|tests)/(?:[\w/.*-]*/|[\w/.*-]+\.\w+)?)`")


def rooms() -> list[str]:
    """Each package below the four top folders, and each module that stands beside packages."""
    found = [str(init.parent.relative_to(TOP)) + "/" for room in ROOMS for init in (TOP / room).rglob("__init__.py")]
    beside = [path for room in ("broker", "wrappers") for path in (TOP / room).glob("*.py")]
    modules = [str(path.relative_to(TOP)) for path in beside if path.stem not in ("__init__", "errors", "version")]
    return [room for room in found if room.count("/") > 1 or room == "agents/"] + modules


@pytest.mark.parametrize("page", [*sorted((TOP / "docs").glob("*.md")), TOP / "README.md"], ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text("utf-8"))

    assert [name for name in named if not list(TOP.glob(name.rstrip("/")))] == []


def test_the_page_says_what_each_room_is_for() -> None:
    table = re.findall(r"^\| `([\w/.]+)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)

    assert sorted(set(rooms()) - {name for name, purpose in table if purpose}) == []
    assert len(rooms()) > 20  # or the search above has lost what it looks for


@pytest.mark.parametrize("way", ["job", "heartbeat", "loop's round"])
def test_each_way_through_the_rooms_is_told_file_by_file(way: str) -> None:
    text = PAGE.read_text("utf-8").partition(f"## The way of a {way}\n")[2].partition("\n## ")[0]

    assert len(set(NAMED.findall(text))) >= 4


@pytest.mark.parametrize("room", [room for room in rooms() if room.endswith("/")])
def test_each_room_says_which_file_to_read_first(room: str) -> None:
    text = (TOP / room / "__init__.py").read_text("utf-8")
    first = text.partition("Read first:")[2].partition('"""')[0]

    assert [name for name in re.findall(r"[\w/]+\.py", first) if (TOP / room / name).is_file()] != []
