"""Verbs that are struck at a fault point, from the command line and in this process."""

import signal
from typing import Any

from tests.support import Root, Said

HANG: list[dict[str, Any]] = [{"started": {}}, {"hang": {}}]


def struck(root: Root, fault: str, *words: str) -> Said:
    return root.mam(*words, "--json", env={"MAM_FAULT": fault})


def dies(root: Root, fault: str, *words: str) -> None:
    assert struck(root, f"{fault}:crash", *words).code == -signal.SIGKILL, f"{fault} was not reached"


def is_refused(root: Root, fault: str, *words: str) -> None:
    said = struck(root, f"{fault}:ENOSPC", *words)
    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert "No space left" in said.err, "it was refused for another reason"
