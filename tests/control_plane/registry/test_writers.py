"""Scorecard 11: many processes that update one registry at once, as verbs do: each opens it, changes it, goes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.control_plane.control_root import monitor_process
from tests.support import Root, size

WRITERS, UPDATES = size(12, 50), size(50, 200)
HANG_S = 170

# Waits for the word to begin, then counts a common counter up and prints how long each update took.
WRITER = """
import json, sys, time
from dataclasses import replace
from pathlib import Path
from mam.control_plane.registry.transactions import Registry
folder, name, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
registry = Registry(folder / "registry.db", folder / "registry.lock", by=name)
print("ready", flush=True)
sys.stdin.readline()
took = []
for n in range(times):
    began = time.monotonic()
    with registry.transaction() as tx:
        tx.set_meta("counter", str(int(tx.meta("counter") or 0) + 1))
        tx.set_meta(name, str(n + 1))
    took.append(time.monotonic() - began)
print(json.dumps(took))
"""


def writer(folder: Path, name: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", WRITER, str(folder), name, str(UPDATES)]
    return subprocess.Popen(argv, stdin=-1, stdout=-1, text=True)


@pytest.mark.scorecard(11)
@pytest.mark.req("M89")
def test_many_writers_at_once_lose_no_update(root: Root, figure: Callable[[str, float], None]) -> None:
    assert root.mam("up").code == 0
    children = [writer(root.parts.layout.mam, f"w{n}") for n in range(WRITERS)]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"

    began = time.monotonic()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=HANG_S)[0] for child in children]
    took_s = time.monotonic() - began

    assert [child.returncode for child in children] == [0] * WRITERS
    with root.registry.view() as view:
        assert view.meta("counter") == str(WRITERS * UPDATES)
        assert [view.meta(f"w{n}") for n in range(WRITERS)] == [str(UPDATES)] * WRITERS
        audited = view.connection.execute("SELECT count(*) FROM audit WHERE key = 'counter'").fetchone()[0]
    assert audited == WRITERS * UPDATES
    assert monitor_process.look(root.parts.layout) is not None
    each = sorted(t for text in said for t in json.loads(text))
    figure("writers", WRITERS)
    figure("updates", WRITERS * UPDATES)
    figure("lost", WRITERS * UPDATES - audited)
    figure("seconds", took_s)
    figure("p50_ms", each[len(each) // 2] * 1000)
    figure("p99_ms", each[len(each) * 99 // 100] * 1000)
    figure("most_ms", each[-1] * 1000)
