"""`mam doctor`: what is broken, what is not yet, what is fine; and what --fix does about it."""

import os
import signal
from pathlib import Path

import pytest

from tests.support import Root


def states(root: Root, *words: str) -> dict[str, str]:
    said = root.mam("doctor", *words, "--json")
    return {finding["what"]: finding["state"] for finding in said.json["findings"]}


def test_a_healthy_control_root_is_all_fine(root: Root) -> None:
    root.agent()

    found = states(root)

    assert root.mam("doctor").code == 0
    assert {"broker as control", "broker as runner", "broker as viewer", "agent writer", "monitor"} <= found.keys()
    assert "broken" not in found.values()


def test_what_is_not_yet_is_no_fault_and_fix_starts_it(root: Root) -> None:
    root.mam("down")

    assert states(root)["monitor"] == "not yet"
    assert root.mam("doctor").code == 0
    assert states(root, "--fix")["monitor"] == "fine"


def test_a_secret_that_others_may_read_is_broken_and_fix_repairs_it(root: Root) -> None:
    key = root.path / ".mam" / "secrets" / "control.key"
    key.chmod(0o644)

    assert states(root)["secrets"] == "broken"
    assert root.mam("doctor").code == 1
    assert states(root, "--fix")["secrets"] == "fine"
    assert key.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system lists no locks")
def test_who_keeps_the_registry_locked_is_named(root: Root) -> None:
    root.mam("down")
    with root.registry.locked():
        found = root.mam("doctor", "--json").json["findings"]

    kept = next(finding for finding in found if finding["what"] == "registry")
    assert kept["state"] == "broken" and f"pid {os.getpid()}" in kept["detail"]
    assert states(root)["registry"] == "fine"


def test_a_dead_agent_is_broken_and_the_remedy_is_the_next_command(root: Root) -> None:
    root.agent()
    os.kill(root.session("writer").pid, signal.SIGKILL)
    root.kill_monitor()

    found = root.mam("doctor", "--json").json["findings"]

    assert ("broken", "mam agent resume writer") in [(f["state"], f["remedy"]) for f in found]


def test_leftovers_of_a_crash_are_set_aside_not_deleted(root: Root) -> None:
    folder = root.path / ".mam" / "jobs" / "job-halfmade"
    folder.mkdir()
    (folder / "job.json").write_text("{}")
    os.utime(folder, (1, 1))

    assert states(root)["jobs"] == "broken"
    assert states(root, "--fix")["leftovers"] == "fine"
    assert (root.path / ".mam" / "lost-and-found" / "job-halfmade" / "job.json").exists()


def test_a_registry_of_garbage_is_one_finding(root: Root) -> None:
    root.mam("down")
    (root.path / ".mam" / "registry.db").write_bytes(b"garbage" * 1000)

    said = root.mam("doctor", "--json")

    assert said.code == 1
    assert [f["what"] for f in said.json["findings"] if f["state"] == "broken"] == ["registry"]
