"""Agents whose adapter comes from a package of a stranger's: a good one, an older one, and one that fails."""

from pathlib import Path

import pytest

from mam.control_plane.control_root import monitor_process
from mam.control_plane.sessions import runtime
from tests.support import Root, until


@pytest.fixture
def strange(root: Root, monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support" / "newcomer"))
    return root


@pytest.mark.parametrize("kind", ["parrot", "early-bird"])
def test_a_newcomers_adapter_needs_one_file_of_its_own_with_and_without_capabilities(strange: Root, kind: str) -> None:
    strange.agent("stranger", agent=kind)
    job = strange.delegate("stranger")

    assert strange.mam("job", "wait", job, "--timeout", "30").code == 0
    assert strange.session("stranger").agent == kind
    assert strange.mam("agent", "stop", "stranger", "--purge").code == 0


def test_an_adapter_that_fails_is_a_finding_and_ends_neither_runner_nor_monitor(strange: Root) -> None:
    said = strange.mam("agent", "create", "odd", "--agent", "broken-parrot", "--json")
    assert said.code == 0 and "`mam agent check broken-parrot`" in said.err
    until(lambda: _found(strange, "odd"), what="the monitor tells of it")

    refused = strange.mam("agent", "send", "odd", "hello", "--json", env={"MAM_DELIVER_WITHIN_S": "4"})
    assert (refused.code, refused.json["state"], refused.json["reason"]) == (5, "refused", "unsubmitted")
    assert "failed in read: IndexError" in refused.json["evidence"]
    why = strange.ok("why", "odd")
    assert (why["awaited"], why["next"]) == ("an adapter that can read it", "mam agent check broken-parrot")
    strange.agent("writer")
    job = strange.delegate("writer")
    assert strange.mam("job", "wait", job, "--timeout", "30").code == 0
    assert runtime.alive(strange.session("odd")) and strange.session("odd").screen == "unreadable"


def test_an_adapter_that_cannot_tell_its_files_does_not_end_the_monitor_of_an_open_job(strange: Root) -> None:
    strange.mam("agent", "create", "odd", "--agent", "broken-parrot", "--no-wait")
    before = monitor_process.look(strange.parts.layout)
    job = strange.delegate("odd")
    until(lambda: _found(strange, "odd"), what="the monitor tells of it")

    after = monitor_process.look(strange.parts.layout)
    assert before is not None and after is not None and before.process == after.process
    assert strange.mam("job", "cancel", job).code == 0


def _found(root: Root, name: str) -> bool:
    with root.registry.view() as view:
        found = [finding for finding in view.findings(name) if finding.code == "adapter_failed"]
    return bool(found) and found[0].text.endswith("; mam agent check broken-parrot")
