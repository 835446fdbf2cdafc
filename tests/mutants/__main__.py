"""
Tries every mutation of the table: its tests must fail, or nothing holds its rule.

Usage: python -m tests.mutants [--workers N] [NAME …]: a NAME is a row, or how rows begin. Exit code 1 where a mutant
survives without a reason, is killed in spite of one, or could not be decided; 2 where the tests fail unmutated.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import mutant, table
from tests.mutants.mutant import Mutant
from tests.mutants.trees import Tree, Verdict

BASELINE_LIMIT_S = 600.0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--unproven", action="store_true", help="do not run the tests unmutated first")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args(words)
    rows = [row for row in table.ROWS if not asked.names or row.name.startswith(tuple(asked.names))]
    for row in rows:
        mutant.check(row)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mm-", ignore_cleanup_errors=True) as folder:
        made = [Tree(Path(folder, str(number))) for number in range(asked.workers)]
        for each in made:
            each.make()
            if not each.imports_itself():
                raise SystemExit(f"the copy in {each.path} imports the code of another tree")
        if not asked.unproven and not _pass_unmutated(made, rows):
            return 2
        found = _attempt_all(made, rows)
    return _tell(rows, found, time.monotonic() - began)


def _pass_unmutated(made: list[Tree], rows: list[Mutant]) -> bool:
    """Whether all tests pass as the code stands: one that fails anyway would kill every mutant."""
    tests = sorted({test for row in rows for test in row.tests})
    shares = [tuple(tests[number :: len(made)]) for number in range(len(made))]
    with ThreadPoolExecutor(len(made)) as pool:
        said = pool.map(lambda pair: pair[0].run(pair[1], limit_s=BASELINE_LIMIT_S), zip(made, shares, strict=True))
        failed = [words for verdict, words in said if verdict != "survived"]
    for words in failed:
        print(f"without any mutation:\n{words}", file=sys.stderr)
    return not failed


def _attempt_all(made: list[Tree], rows: list[Mutant]) -> dict[str, tuple[Verdict, str]]:
    free: SimpleQueue[Tree] = SimpleQueue()
    for each in made:
        free.put(each)

    def attempt(row: Mutant) -> tuple[Verdict, str]:
        tree = free.get()
        began = time.monotonic()
        try:
            verdict, words = tree.attempt(row)
        finally:
            free.put(tree)
        print(f"{verdict:9} {time.monotonic() - began:5.1f} s  {row.name}: {row.rule}", flush=True)
        return verdict, words

    with ThreadPoolExecutor(len(made)) as pool:
        return dict(zip([row.name for row in rows], pool.map(attempt, rows), strict=True))


def _tell(rows: list[Mutant], found: dict[str, tuple[Verdict, str]], took_s: float) -> int:
    bad = 0
    print()
    for row in rows:
        verdict, words = found[row.name]
        match verdict, row.reason:
            case "killed", "":
                continue
            case "survived", reason if reason:
                print(f"{row.name} survives: {reason}")
                continue
            case "killed", _:
                why = "it is killed, so its reason is to be taken out"
            case "survived", _:
                why = f"it SURVIVES: {', '.join(row.tests)} hold with the rule broken"
            case _:
                why = f"undecided: {words}"
        bad += 1
        print(f"{row.name}: {why}")
    killed = sum(verdict == "killed" for verdict, _ in found.values())
    print(f"{killed} of {len(rows)} mutants killed in {took_s:.0f} s; {bad} to look at")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
