"""
Recorded screens of agents, one text file each: the pane's title on the first line, then what it showed.

A file's name says what it must be read as: `KIND-STATE-WORDS.txt`, where STATE is one of ScreenState, or `draft` for a
screen that is ready and holds text. `draft` among the words says the same of another state.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mam.agents.border import UNREADABLE, Adapter, AdapterFailed
from mam.agents.protocol import Screen, ScreenState
from mam.broker.errors import MamError

DRAFT = "draft"
STATES = (DRAFT, *(state.value for state in ScreenState))
_WORDS = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


class Sample(NamedTuple):
    """A recorded screen, and what an adapter must read there."""

    path: Path
    screen: Screen
    state: ScreenState
    draft: bool

    @property
    def name(self) -> str:
        return self.path.stem


class SampleRefused(MamError):
    path: str
    why: str
    states: str

    code = "sample_refused"
    exit_code = 2
    message = "the sample {path} cannot be used: {why}"
    remedy_text = "a name is KIND-STATE-WORDS.txt, STATE one of {states}; WORDS of a-z, 0-9 and -"


def load(path: Path, kind: str) -> Sample:
    """Raises SampleRefused where the name says nothing, OSError where the file cannot be read."""
    words = path.stem.removeprefix(f"{kind}-").split("-")
    if words[0] not in STATES:
        raise SampleRefused(path=str(path), why=f"its name begins with {words[0]!r}", states=", ".join(STATES))
    title, _, text = path.read_text("utf-8").partition("\n")
    state = ScreenState.READY if words[0] == DRAFT else ScreenState(words[0])
    return Sample(path, Screen(text, title), state, DRAFT in words)


def load_all(folder: Path, kind: str) -> list[Sample]:
    """The samples of one agent kind in *folder*, by name. Raises SampleRefused, OSError."""
    return [load(path, kind) for path in sorted(folder.glob(f"{kind}-*.txt"))]


def state_word(adapter: Adapter, screen: Screen) -> str:
    """The word for a sample's name by what *adapter* reads now; UNREADABLE where it fails."""
    try:
        state = adapter.read(screen)
        return DRAFT if state is ScreenState.READY and adapter.draft(screen) else state.value
    except AdapterFailed:
        return UNREADABLE


def write(folder: Path, kind: str, state: str, words: str, screen: Screen) -> Path:
    """
    Keep *screen* under a name that is free, and return its path. Nothing is ever replaced.

    Raises SampleRefused for words that no name can hold, OSError where *folder* cannot be written.
    """
    if not _WORDS.fullmatch(words):
        raise SampleRefused(path=words, why="these words do not fit a name", states=", ".join(STATES))
    folder.mkdir(parents=True, exist_ok=True)
    for stem in _stems(f"{kind}-{state}-{words}"):
        path = folder / f"{stem}.txt"
        try:
            with path.open("x", encoding="utf-8") as out:
                out.write(f"{' '.join(screen.title.split())}\n{screen.text}")
            return path
        except FileExistsError:
            continue
    raise SampleRefused(path=words, why="there are a thousand of that name", states=", ".join(STATES))


def _stems(first: str) -> Sequence[str]:
    return [first, *(f"{first}-{number}" for number in range(2, 1000))]
