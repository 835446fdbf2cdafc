"""What a mutation is, and how it is applied to a file's text."""

import ast
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]


class Stale(Exception):
    """A row of the table that no longer fits the code or the tests: its text says what to repair."""


class Mutant(NamedTuple):
    """
    One rule, and the smallest edit that breaks it.

    *rule* is what must hold, with its contract line where there is one. *tests* are the pytest ids of which at least
    one must fail once *old*, which stands exactly once in *file*, has become *new*. *reason* says why a survivor is
    accepted; a row with a reason that is killed all the same is an error.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    reason: str = ""

    def mutated(self, text: str) -> str:
        """Return *text* with the edit made. Raises Stale where it does not fit exactly once, or is no Python."""
        found = text.count(self.old)
        if found != 1:
            raise Stale(f"{self.name}: the old text stands {found} times in {self.file}; adapt the row, or drop it")
        after = text.replace(self.old, self.new)
        if self.file.endswith(".py"):
            try:
                ast.parse(after)
            except SyntaxError as error:
                raise Stale(f"{self.name}: the new text makes no Python of {self.file}: {error}") from error
        return after


def check(mutant: Mutant, repository: Path = REPOSITORY) -> None:
    """Raise Stale where the row's edit does not apply, or a test that it names does not exist."""
    path = repository / mutant.file
    if not path.is_file():
        raise Stale(f"{mutant.name}: there is no file {mutant.file}")
    mutant.mutated(path.read_text("utf-8"))
    for test in mutant.tests:
        file, *names = test.split("::")
        if not (repository / file).is_file():
            raise Stale(f"{mutant.name}: there is no file {file}")
        if names and not _defines((repository / file).read_text("utf-8"), names):
            raise Stale(f"{mutant.name}: {file} defines no {'::'.join(names)}")


def _defines(text: str, names: list[str]) -> bool:
    body: list[ast.stmt] = ast.parse(text).body
    for name in names:
        wanted = name.partition("[")[0]
        found = next(
            (node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == wanted), None
        )
        if found is None:
            return False
        body = found.body
    return True
