"""What the verbs share: a parser that raises instead of exiting, and output as text or JSON."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import Usage
from mam.broker.host import terminal
from mam.broker.host.text import fold

if TYPE_CHECKING:
    from mam.control_plane.control_root.context import Mam


class Parser(argparse.ArgumentParser):
    """Usage errors are errors like all others: typed, with a remedy, as JSON where that was asked for."""

    def __init__(self, prog: str, example: str = "", **more: Any) -> None:
        epilog = f"example: {example}" if example else None
        super().__init__(prog=prog, epilog=epilog, allow_abbrev=False, **more)

    def error(self, message: str) -> NoReturn:
        raise Usage(what=message, hint=f"`{self.prog} --help`")


def verb(
    words: list[str], count: int, example: str, describe: str, build: Callable[[Parser], None]
) -> argparse.Namespace:
    """Parse the words behind a verb of *count* words. Raises Described where its noun's help asks what it is for."""
    if words[count:] == [DESCRIBE]:
        raise Described(describe)
    parser = Parser("mam " + " ".join(words[:count]), example, description=describe)
    build(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(words[count:])
    _check_given(parser, args)
    return args


def _check_given(parser: Parser, args: argparse.Namespace) -> None:
    """
    Raise Usage for an empty value, mostly a variable that was unset: it must not count as an option that is left out.

    An option whose default is the empty text takes it as an answer.
    """
    for action in parser._actions:
        value = getattr(args, action.dest, None)
        if isinstance(value, str) and not value.strip() and action.default != "" and action.option_strings:
            option = action.option_strings[0]
            raise Usage(what=f"{option} was given nothing", hint=f"leave {option} out, or give it a value")


def add_root(parser: Parser) -> None:
    parser.add_argument("--root", metavar="DIR", help="the control root (else WORKSPACE_ROOT, else this repository's)")


def say(text: str) -> None:
    """Progress, for the person who waits; never part of the result."""
    print(f"… {text}", file=sys.stderr, flush=True)


def emit(args: argparse.Namespace, data: object, text: str) -> None:
    """The result, once, on standard output."""
    print(json.dumps(data, default=str, ensure_ascii=False) if args.json else text, flush=True)


DESCRIBE = "\0describe"  # a word that no person can type


class Described(Exception):
    """What a verb is for, as its own parser says it."""


def _described(run: Callable[[list[str]], int], noun: str, name: str) -> str:
    try:
        run([noun, name, DESCRIBE])
    except Described as said:
        return str(said)
    return ""


def choose(words: list[str], table: Mapping[str, Callable[[list[str]], int]], describe: str, others: str = "") -> int:
    """Run the verb of a noun; *others* are named in its help as well. Raises Usage for one that is not there."""
    noun = words[0]
    if len(words) > 1 and words[1] in table:
        return table[words[1]](words)
    listed = ", ".join(table)
    if len(words) > 1 and words[1] in ("-h", "--help"):
        lines = [f"usage: mam {noun} VERB …   (each has --help and --json)", "", describe, ""]
        columns = terminal.columns(sys.stdout)
        told = (f"  {name:<10} {_described(run, noun, name)}" for name, run in table.items())
        lines += [fold(line, columns, indent=" " * 13) for line in told]
        print("\n".join([*lines, *(["", fold(others, columns)] if others else [])]))
        return 0
    what = f"there is no verb {words[1]!r} of `mam {noun}`" if len(words) > 1 else f"`mam {noun}` needs a verb"
    from mam.control_plane.cli.spelling import meant

    near = meant(words[1], table) if len(words) > 1 else ""
    raise Usage(what=what, hint=f"{near}one of: {listed}")


def check_seconds(option: str, value: float, usual: float) -> None:
    """Raise Usage where *value* is not a time (zero, less, nan, infinite); *usual* is an example of one."""
    if not 0 < value < 1e9:
        raise Usage(what=f"{option} must be above zero", hint=f"{option} {usual:g}, or leave it out")


def add_older(parser: Parser, things: str) -> None:
    """The option whose word `ended_before` reads."""
    many = f"all {things} that ended longer ago than so many days or hours (default: MAM_KEEP_DAYS, else 30d)"
    parser.add_argument("--older", metavar="30d", help=many)


def ended_before(mam: "Mam", age: str | None) -> int:
    """The moment (ms since 1970) that lies *age* (30d, 12h; default MAM_KEEP_DAYS) ago. Raises Usage."""
    found = re.fullmatch(r"(\d{1,5})([dh])", age or f"{mam.settings.number('MAM_KEEP_DAYS', 30)}d")
    if not found:
        raise Usage(what=f"--older {age!r} is not an age", hint="write 30d or 12h")
    return now_ms() - int(found[1]) * (24 if found[2] == "d" else 1) * 3_600_000
