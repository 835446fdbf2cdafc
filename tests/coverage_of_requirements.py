"""
Which contract lines have a test that claims to prove them.

Usage: python -m tests.coverage_of_requirements [--summary] [ID …]: lists the tests of each id; exit 1 where one of
the ids that this version promises has none.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent

# The contract has four parts; these are the lines that what exists so far must prove.
# M34 names a multiplexer that is not built yet.
PROMISED = [f"M{n}" for n in range(1, 110) if n != 34]
ALL = [f"{part}{n}" for part, last in (("M", 109), ("R", 47), ("C", 45), ("P", 23)) for n in range(1, last + 1)]


def marks() -> dict[str, list[str]]:
    """Test names by the ids in their ``req`` marks."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.req":
                    for argument in mark.args:
                        found[ast.literal_eval(argument)].append(f"{path.relative_to(TESTS)}::{node.name}")
    return found


def main(words: list[str]) -> int:
    found = marks()
    unknown = sorted(set(found) - set(ALL))
    missing = [name for name in PROMISED if not found.get(name)]
    asked = [word for word in words if not word.startswith("-")] or PROMISED
    if "--summary" not in words:
        for name in asked:
            print(f"{name}: {', '.join(found.get(name, ['NO TEST']))}")
    print(f"{len(PROMISED) - len(missing)} of {len(PROMISED)} promised lines are proven; no test: {missing or 'none'}")
    if unknown:
        print(f"marks that name no contract line: {unknown}")
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
