"""The documents say what worktrees are and are not."""

import pytest

from tests.support.worktree_verbs import text_of

DOCUMENTED = {
    "M10": [
        "share refs",
        "configuration",
        "`.venv` where somebody linked one",
        "caches",
        "services",
        "credentials",
        "not complete isolation",
        "makes them read-only",
        "supported in parts only",
        "estimates",
    ],
    "M11": ["| A |", "| B |", "| C |", "| D |", "| E |", "C with D", "one loop at a time", "recipe first"],
    "M12": ["not a security boundary", "can read the same keys"],
}


@pytest.mark.req("M10", "M11", "M12")
@pytest.mark.parametrize("line", DOCUMENTED)
def test_the_documents_say_what_worktrees_are_and_are_not(line: str) -> None:
    missing = [words for words in DOCUMENTED[line] if words not in text_of("loops.md")]

    assert missing == []
