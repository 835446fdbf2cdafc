"""
What every agent adapter must keep, as checks that run without its program: `mam agent check KIND`.

MAM's own adapters and a package's pass the same. Recorded screens are checked as well where there are any.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from mam.agents.border import Adapter
from mam.agents.protocol import Launch, Permissions, Screen, ScreenState, Seat
from mam.agents.samples import Sample
from mam.broker.errors import MamError

LONGEST_START_S = 600.0
LONGEST_PAUSE_S = 10.0
OWN_WORDS = ("own-program", "--own", "two words", "ü")
# What a pane may show that no adapter was written for.
ODD_SCREENS = (
    *("", "\n", " ", "\n" * 60, "x", "$", "❯", "›", "!", ">", "│", "─" * 200, "╭──╮", "╰──╯", "┃", "╹▀▀▀", "?"),
    "─" * 80 + "\n❯\n" + "─" * 80,
    "─" * 80 + "\n" + "─" * 80,
    "╭" + "─" * 10 + "╮\n╰" + "─" * 10 + "╯",
    "› \n\n\n",
    "  ┃\n  ╹▀▀▀▀",
    "\x1b[31mred\x1b[0m \x00\x07",
    "日本語 🎉 e\u0301 \ufffd \u2028",
    "a line\r\nanother\rone\ttab",
    "word " * 5000,
    "\n".join(f"line {number}" for number in range(3000)),
)


class CheckResult(NamedTuple):
    """What one check of the contract found."""

    check: str
    outcome: Literal["passed", "failed", "skipped"]
    why: str = ""


class _Broken(Exception):
    """The contract is not kept, and how."""


class _Skipped(Exception):
    """There is nothing to check, and why."""


class _Trial(NamedTuple):
    """One adapter, and a folder of its own in which it may look for whatever it likes."""

    adapter: Adapter
    folder: Path
    samples: Sequence[Sample]

    def seat(self, **changes: object) -> Seat:
        seat = Seat("writer", self.folder / "tree", self.folder / "home", "", args=OWN_WORDS)
        return seat._replace(run_dir=self.folder / "run", **changes)  # type: ignore[arg-type]

    def odd_screens(self) -> Iterator[Screen]:
        for text in ODD_SCREENS:
            for title in ("", "◐ Working", "⚠ Action Required"):
                yield Screen(text, title)


def run(adapter: Adapter, folder: Path, samples: Sequence[Sample] = ()) -> list[CheckResult]:
    """
    Try *adapter* in every way that MAM uses one; never raises for an adapter.

    Args:
        folder: An empty folder; the adapter gets a home, a working tree and a run folder in it.
        samples: Recorded screens, each with what must be read there.
    """
    for name in ("home", "tree", "run"):
        (folder / name).mkdir()
    trial = _Trial(adapter, folder, samples)
    return [_result(name, check, trial) for name, check in _CHECKS]


def _result(name: str, check: Callable[[_Trial], None], trial: _Trial) -> CheckResult:
    try:
        check(trial)
    except _Skipped as skipped:
        return CheckResult(name, "skipped", str(skipped))
    except (_Broken, MamError) as broken:
        return CheckResult(name, "failed", str(broken))
    return CheckResult(name, "passed")


def _insist(kept: bool, otherwise: str) -> None:
    if not kept:
        raise _Broken(otherwise)


def _says_what_it_is(trial: _Trial) -> None:
    adapter = trial.adapter
    _insist(adapter.name == adapter.kind, f"its name is {adapter.name!r}, and it is registered as {adapter.kind!r}")
    _insist(0 < adapter.ready_within_s <= LONGEST_START_S, f"ready_within_s is {adapter.ready_within_s:g}")
    _insist(adapter.submit_pause_s <= LONGEST_PAUSE_S, f"submit_pause_s is {adapter.submit_pause_s:g}")
    plain = adapter.instruction_file and Path(adapter.instruction_file).name == adapter.instruction_file
    _insist(bool(plain), f"instruction_file {adapter.instruction_file!r} is not the name of a file")


def _draws_each_conversation_anew(trial: _Trial) -> None:
    first, second = trial.adapter.new_conversation(), trial.adapter.new_conversation()
    if first is None:
        _insist(second is None, "it gives an id at one time and none at another")
        raise _Skipped("its agent draws the ids itself")
    _insist(first != "" and first != second, f"it gives {first!r} twice")


def _launches_with_the_users_words(trial: _Trial) -> None:
    conversation = trial.adapter.new_conversation()
    _check_words(trial.adapter.launch(trial.seat(conversation=conversation)))
    _check_words(trial.adapter.launch(trial.seat(conversation=conversation, program="/opt/agent")))


def _check_words(launch: Launch) -> None:
    own = list(OWN_WORDS)
    at = len(launch.argv) - len(own)
    _insist(at >= 0 and list(launch.argv[at:]) == own, f"the user's own words do not end the command {launch.argv}")
    texts = [*launch.argv, *launch.env, *launch.env.values(), *launch.defaults, *launch.defaults.values()]
    _insist(not any("\x00" in text for text in texts), "a word or a variable holds a zero byte, which no program takes")


def _resumes_nothing_that_was_not_kept(trial: _Trial) -> None:
    for conversation in (None, "no-such-conversation"):
        resumed = trial.adapter.resume(trial.seat(conversation=conversation))
        _insist(resumed is None, f"it would continue {conversation!r}, of which nothing is kept")


def _names_only_files_of_the_conversation(trial: _Trial) -> None:
    if not trial.adapter.keeps_conversations:
        raise _Skipped("it has no conversation_files")
    for conversation in (None, "no-such-conversation", "../..", ""):
        found = trial.adapter.conversation_files(trial.seat(conversation=conversation))
        _insist(not found, f"for {conversation!r}, of which nothing is kept, it names {found}")


def _takes_permissions(trial: _Trial) -> None:
    if not trial.adapter.takes_permissions:
        raise _Skipped("it has no grants")
    odd = [trial.folder / name for name in ("jobs", "two words", 'a "quoted" (name)', "*", "ü")]
    for permissions in (Permissions([]), Permissions(odd, odd, odd)):
        words = trial.adapter.grants(permissions)
        _insist(not any("\x00" in word for word in words), "a word holds a zero byte, which no program takes")


def _reads_any_screen(trial: _Trial) -> None:
    for screen in trial.odd_screens():
        first, second = trial.adapter.read(screen), trial.adapter.read(screen)
        _insist(first is second, f"it reads {screen.text[:40]!r} as {first.value} and as {second.value}")


def _takes_an_empty_screen_for_a_start(trial: _Trial) -> None:
    for text in ("", "\n\n", "   \n"):
        state = trial.adapter.read(Screen(text))
        _insist(state is ScreenState.STARTING, f"it reads the empty screen {text!r} as {state.value}")


def _sees_a_draft_or_none_on_any_screen(trial: _Trial) -> None:
    if not trial.adapter.sees_drafts:
        raise _Skipped("it has no draft: a prompt counts as taken when the screen has changed")
    for screen in trial.odd_screens():
        trial.adapter.draft(screen)
    _insist(not trial.adapter.draft(Screen("")), "it sees a draft on an empty screen")


def _reads_its_samples(trial: _Trial) -> None:
    if not trial.samples:
        raise _Skipped("no samples were given (--samples DIR)")
    wrong = []
    for sample in trial.samples:
        state, draft = trial.adapter.read(sample.screen), trial.adapter.draft(sample.screen)
        if (state, draft) != (sample.state, sample.draft and trial.adapter.sees_drafts):
            wrong.append(f"{sample.name} as {state.value}{' with a draft' if draft else ''}")
    count = f"{len(wrong)} of {len(trial.samples)}"
    _insist(not wrong, f"it reads {count} otherwise than their names say: {'; '.join(wrong)}")


def _changes_nothing(trial: _Trial) -> None:
    found = sorted(str(path.relative_to(trial.folder)) for path in trial.folder.rglob("*"))
    _insist(found == ["home", "run", "tree"], f"it wrote {', '.join(found)}")


_CHECKS: Sequence[tuple[str, Callable[[_Trial], None]]] = (
    ("says what it is", _says_what_it_is),
    ("draws each conversation anew", _draws_each_conversation_anew),
    ("launches with the user's words last", _launches_with_the_users_words),
    ("resumes nothing that was not kept", _resumes_nothing_that_was_not_kept),
    ("names only files of the conversation", _names_only_files_of_the_conversation),
    ("takes permissions", _takes_permissions),
    ("reads any screen", _reads_any_screen),
    ("takes an empty screen for a start", _takes_an_empty_screen_for_a_start),
    ("sees a draft or none on any screen", _sees_a_draft_or_none_on_any_screen),
    ("reads its samples as they are named", _reads_its_samples),
    ("changes nothing", _changes_nothing),  # last: it looks at what the others left
)
