"""Scorecard 12 and 13: `agent create` dies, or the disk refuses, at each durable step; the next verb finishes it."""

import pytest

from mam.control_plane.sessions import runtime
from mam.wrappers.mux import catalog as mux_catalog
from tests.support import Root, until
from tests.support.faults import all_done, delegate, refusals

CREATE = [
    "key.link",
    "registry.commit",
    "private.fsync",
    "private.rename",
    "pane.open",
    "spawn",
    "pane.opened",
    "projection.rename",
    "registry.committed",
]


def panes_of(root: Root, agent_name: str) -> list[str]:
    """The living panes that are this agent's by their tag, whatever the rows say, and also where there is no row."""
    mam = root.parts
    panes = mux_catalog.make("headless", mam.mux_server("headless"), mam.settings.environ, mam.command).panes()
    return [pane.id for pane in panes if not pane.dead and pane.tag == runtime.tag(root.parts, agent_name)]


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", CREATE)
def test_a_create_that_dies_can_be_finished_by_create_or_resume(shared_root: Root, agent_name: str, point: str) -> None:
    words = ["agent", "create", agent_name, "--agent", "scripted"]

    assert shared_root.mam(*words, env={"MAM_FAULT": f"cli@{point}:1:crash"}).code == -9

    known = shared_root.session(agent_name)
    again = shared_root.mam("agent", "resume", agent_name) if known is not None else shared_root.mam(*words)
    assert again.code == 0, again.err
    assert panes_of(shared_root, agent_name) == [shared_root.session(agent_name).pane]
    assert delegate(shared_root, agent_name) == 0
    until(lambda: all_done(shared_root, agent_name))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize(("verb", "left"), [("resume --no-wait", 1), ("stop", 0)])
def test_a_pane_that_a_dying_create_could_note_nowhere_does_not_stay(root: Root, verb: str, left: int) -> None:
    root.env["MAM_NO_SUBSCRIBER_DAEMON"] = "1"  # no monitor hears its runner either
    words = ["agent", "create", "writer", "--agent", "scripted", "--no-wait"]
    assert root.mam(*words, env={"MAM_FAULT": "cli@pane.opened:1:crash"}).code == -9

    assert root.mam("agent", *verb.split(), "writer").code == 0

    session = root.session("writer")
    panes = [pane for pane in runtime.multiplexer(root.parts, session).panes() if not pane.dead]
    assert [pane.id for pane in panes] == [session.pane][:left]


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals([p for p in CREATE if p != "registry.committed"]))
def test_a_create_that_the_disk_refuses_is_a_typed_error_and_can_be_said_again(
    shared_root: Root, agent_name: str, point: str, action: str
) -> None:
    words = ["agent", "create", agent_name, "--agent", "scripted", "--json"]

    said = shared_root.mam(*words, env={"MAM_FAULT": f"cli@{point}:1:{action}"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert panes_of(shared_root, agent_name) == []
    known = shared_root.session(agent_name)
    again = shared_root.mam("agent", "resume", agent_name) if known is not None else shared_root.mam(*words)
    assert again.code == 0, again.err
    assert panes_of(shared_root, agent_name) == [shared_root.session(agent_name).pane]
    assert delegate(shared_root, agent_name) == 0
    until(lambda: all_done(shared_root, agent_name))


@pytest.mark.scorecard(12)
def test_an_agent_that_dies_while_it_notes_a_prompt_can_be_resumed(shared_root: Root, agent_name: str) -> None:
    root = shared_root
    root.env["MAM_FAULT"] = "cli@memory.rename:1:crash"
    root.agent(agent_name)
    del root.env["MAM_FAULT"]
    job = root.delegate(agent_name, "do it", "--started-within", "2")
    until(lambda: root.session(agent_name).status == "ended")

    assert root.mam("agent", "resume", agent_name).code == 0
    until(lambda: root.job(job).state in ("agent_blocked", "lost"))
    assert root.mam("job", "retry", job).code == 0

    until(lambda: all_done(root, agent_name))
