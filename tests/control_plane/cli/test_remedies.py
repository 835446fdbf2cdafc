"""Commands that texts name in backticks: the real parsers know them, without carrying them out."""

import argparse
import ast
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mam.broker.errors import Usage
from mam.control_plane import cli
from mam.control_plane.cli.base import Parser
from tests.control_plane.cli.test_errors import ROOMS

NAMED = re.compile(r"`((?:mam|git) [^`]*)`")
# A text that is itself a command, as the next step that `mam why` names; maybe with another one behind it.
WHOLE = re.compile(r"^(mam [a-z].*?)(?:, .*| && .*|; .*)?$")
# What stands in a command for several words, or for one of several verbs.
MEANINGS = {
    "{noun}": "status",
    "{place}": "NAME --agent KIND --cwd DIR",
    "{shlex.join(words)}": "--branch BRANCH --path DIR",
}
VERBS = {"mam agent {verb}": ("stop", "resume"), "mam worktree {verb}": ("prepare", "remove")}
# A command that stands for a kind of call. A bare verb, and one that ends with an ellipsis or an option, do so too.
PARTS = ("mam loop run --test CMD",)


def texts(path: Path) -> list[str]:
    """All string literals of a module but its own docstring; what an f-string fills in stays in braces."""
    tree = ast.parse(path.read_text("utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    found = ["".join(_shown(part) for part in node.values) for node in joined if id(node) not in parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            found.append(node.value)
    own = ast.get_docstring(tree, clean=False)
    return [text for text in found if text != own]


def _shown(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return "{" + ast.unparse(part.value) + "}"
    return str(part.value) if isinstance(part, ast.Constant) else ""


def commands() -> list[str]:
    """Every command that an error, a finding, an explanation or a docstring names."""
    said = [text for room in ROOMS for path in Path(room.__path__[0]).rglob("*.py") for text in texts(path)]
    found = {command for text in said for command in (*NAMED.findall(text), *WHOLE.findall(text))}
    for start, verbs in VERBS.items():
        for command in [each for each in found if each.startswith(start)]:
            found.remove(command)
            found |= {command.replace("{verb}", verb) for verb in verbs}
    return sorted(found)


class Parsed(Exception):
    """The parser took all words; nothing was carried out."""


def parse(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give *words* to the parser of their verb. Raises Parsed where it takes them, else Usage."""
    own = Parser.parse_args

    def parse_only(parser: Parser, given: Sequence[str]) -> argparse.Namespace:
        own(parser, given)
        raise Parsed

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "parse_args", parse_only)
        cli._run(list(words))


def words_of(command: str) -> list[str]:
    for name, meaning in MEANINGS.items():
        command = command.replace(name, meaning)
    return shlex.split(re.sub(r"\{[^}]*\}", "7", command))[1:]


@pytest.mark.parametrize("command", [each for each in commands() if each.startswith("mam ")])
def test_a_named_command_of_mam_is_one_that_its_parser_takes(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_of(command)
    is_part = words[-1].startswith(("…", "-")) or len(words) <= 2 or command in PARTS
    if words[-1] == "…" and not words[-2].startswith("-"):
        words.pop()
    try:
        parse(words, monkeypatch)
    except Parsed:
        return
    except SystemExit as end:  # --help
        assert end.code == 0
    except Usage as error:
        lacks = "arguments are required" in error.what or "expected one argument" in error.what
        assert is_part and lacks, error.what
        with pytest.raises(SystemExit):
            parse([*(word for word in words[:2] if word[0] != "-"), "--help"], monkeypatch)
        help_text = capsys.readouterr().out
        assert all(word in help_text for word in words if word.startswith("-"))


@pytest.mark.parametrize("wrong", ["mam agent continue writer", "mam agent resume writer --now", "mam continue"])
def test_a_command_that_does_not_exist_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Usage):
        parse(words_of(wrong), monkeypatch)


@pytest.mark.parametrize("command", [each for each in commands() if each.startswith("git ")])
def test_a_named_command_of_git_exists_and_has_these_options(command: str) -> None:
    words = words_of(command)
    if words[0] == "-C":
        words = words[2:]
    verb, *rest = words

    said = subprocess.run(["git", verb, "-h"], capture_output=True, text=True)

    usage = said.stdout + said.stderr
    assert usage.startswith("usage: "), usage
    known = rest[:1] if verb in ("worktree", "submodule") else []
    options = [each for each in rest if each.startswith("--")]
    options += [f"-{letter}" for each in rest if re.fullmatch("-[a-z]+", each) for letter in each[1:]]
    assert all(word in usage.replace("[no-]", "") for word in [*known, *options])
