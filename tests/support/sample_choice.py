"""
Which recorded screens are enough: those that together reach everything that all of them reach.

Reached are the lines of an adapter in the order in which they ran, the alternatives of its patterns that matched, its
own texts that a screen shows, and each state in each size. `python -m tests.support.sample_choice` chooses anew.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType
from typing import Any

from mam.agents import catalog, samples
from mam.agents.samples import Sample
from tests.support.sizes import FULL

SCREENS = Path(__file__).parents[1] / "agents" / "screens"
CHOSEN = Path(__file__).parents[1] / "agents" / "chosen_screens.txt"
KINDS = ("claude", "codex", "grok", "opencode")

Feature = tuple[object, ...]


def chosen() -> list[str]:
    """The names of the screens that `make test` reads."""
    return CHOSEN.read_text("utf-8").split()


def read_now(kind: str) -> list[str]:
    """The screens of *kind* to read in this run, without the kind: the chosen ones, all with MAM_TEST_FULL=1."""
    names = [path.stem for path in sorted(SCREENS.glob("*.txt"))] if FULL else chosen()
    return [name.removeprefix(f"{kind}-") for name in names if name.startswith(f"{kind}-")]


def reached(kind: str) -> dict[str, set[Feature]]:
    """By the name of each screen of *kind*, what reading it reaches."""
    adapter: Any = catalog.AGENTS[kind]
    return {sample.name: _features(adapter, sample) for sample in samples.load_all(SCREENS, kind)}


def choose(found: dict[str, set[Feature]]) -> list[str]:
    """A small set that reaches all of *found*, none of which can be left out."""
    missing, taken = set[Feature]().union(*found.values()), list[str]()
    while missing:
        best = max(sorted(found), key=lambda name: len(found[name] & missing))
        taken.append(best)
        missing -= found[best]
    for name in sorted(taken):
        others = set[Feature]().union(*(found[other] for other in taken if other != name))
        if found[name] <= others:
            taken.remove(name)
    return sorted(taken)


def _features(adapter: ModuleType, sample: Sample) -> set[Feature]:
    size = re.search(r"(\d+-)?\d+x\d+$", sample.name)
    features: set[Feature] = {("state", sample.state, sample.draft), ("size", sample.state, size and size[0])}
    texts = {text for value in vars(adapter).values() for text in _texts(value)}
    features |= {("text", text) for text in texts if text in sample.screen.text}
    with_patterns = {name: value for name, value in vars(adapter).items() if _holds_pattern(value)}
    for name, value in with_patterns.items():
        setattr(adapter, name, _watched(value, features))
    before = sys.gettrace()
    sys.settrace(_tracer(str(inspect.getsourcefile(adapter)), features))
    try:
        adapter.read(sample.screen)
        adapter.draft(sample.screen)
    finally:
        sys.settrace(before)
        for name, value in with_patterns.items():
            setattr(adapter, name, value)
    return features


def _tracer(file: str, features: set[Feature]) -> Any:
    def enter(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        last = [0]

        def inside(frame: FrameType, event: str, arg: object) -> Any:
            if event == "line":
                features.add(("line", frame.f_code.co_name, last[0], frame.f_lineno))
                last[0] = frame.f_lineno
            return inside

        return inside

    return enter


def _texts(value: object) -> Iterator[str]:
    """Texts that an adapter compares with: a constant, or several in a tuple."""
    if isinstance(value, str) and len(value) > 3 and "\n" not in value and "/" not in value:
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _texts(one)


def _holds_pattern(value: object) -> bool:
    return isinstance(value, re.Pattern) or (isinstance(value, tuple) and any(map(_holds_pattern, value)))


def _watched(value: Any, features: set[Feature]) -> Any:
    if isinstance(value, re.Pattern):
        return _Watched(value, features)
    return tuple(_watched(one, features) for one in value) if isinstance(value, tuple) else value


class _Watched:
    """A pattern that notes which of its alternatives matched what it was asked of."""

    def __init__(self, pattern: re.Pattern[str], features: set[Feature]) -> None:
        self._pattern, self._features = pattern, features

    def _note(self, how: str, text: str) -> None:
        for number, variant in enumerate(_variants(self._pattern)):
            if getattr(variant, how)(text):
                self._features.add(("pattern", self._pattern.pattern, number))

    def match(self, text: str) -> re.Match[str] | None:
        found = self._pattern.match(text)
        if found:
            self._note("match", text)
        return found

    def search(self, text: str) -> re.Match[str] | None:
        found = self._pattern.search(text)
        if found:
            self._note("search", text)
        return found

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        if self._pattern.search(text):
            self._note("search", text)
        return self._pattern.finditer(text)


_KNOWN: dict[tuple[str, int], list[re.Pattern[str]]] = {}


def _variants(pattern: re.Pattern[str]) -> Sequence[re.Pattern[str]]:
    """The pattern with one alternative alone at each place that has several: one pattern for each of them."""
    key = (pattern.pattern, pattern.flags)
    if key not in _KNOWN:
        count = sum(1 for _ in _alternatives(_parser.parse(*key)))
        _KNOWN[key] = [pattern]
        for number in range(count):
            tree = _parser.parse(*key)
            branches, at = list(_alternatives(tree))[number]
            branches[:] = [branches[at]]
            _KNOWN[key].append(_compiler.compile(tree, pattern.flags))
    return _KNOWN[key]


def _alternatives(tree: Any) -> Iterator[tuple[list[Any], int]]:
    for operation, argument in tree:
        if operation is _constants.BRANCH:
            branches = argument[1]
            for at in range(len(branches)):
                yield branches, at
            inner = list(branches)
        else:
            inner = [part for part in (argument if isinstance(argument, tuple) else ()) if _is_tree(part)]
        for part in inner:
            yield from _alternatives(part)


def _is_tree(part: object) -> bool:
    return isinstance(part, _parser.SubPattern)


def main() -> None:
    names = [name for kind in KINDS for name in choose(reached(kind))]
    CHOSEN.write_text("".join(f"{name}\n" for name in names), "utf-8")
    print(f"{len(names)} of {len(list(SCREENS.glob('*.txt')))} screens")


if __name__ == "__main__":
    main()
