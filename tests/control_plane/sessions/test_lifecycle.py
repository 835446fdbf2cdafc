"""Sessions through their whole life, from the command line, in headless panes with a real broker."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from mam.broker.host import process_identity
from mam.control_plane.sessions import runtime
from tests.support import MAM, Root, until


def test_a_stopped_agent_is_gone_keeps_its_memory_and_stopping_twice_is_harmless(root: Root) -> None:
    root.agent()
    root.mam("job", "wait", root.delegate())
    pids = (root.session("writer").pid, root.session("writer").agent_pid)

    assert [root.mam("agent", "stop", "writer").code for _ in range(2)] == [0, 0]

    assert [process_identity.start_time(pid) for pid in pids] == [None, None]
    assert root.session("writer").status == "stopped"
    assert root.mam("agent", "resume", "writer").code == 0
    job = root.delegate()
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0
    memory = root.path / ".mam" / "run" / "writer" / "memory.json"
    assert len(json.loads(memory.read_text())) == 2


def test_an_agent_with_a_job_is_not_stopped_by_accident(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")

    said = root.mam("agent", "stop", "writer", "--json")

    assert (said.code, said.error["code"]) == (5, "session_busy")
    assert root.session("writer").status == "running"
    assert root.mam("agent", "stop", "writer", "--force").code == 0
    assert root.mam("job", "wait", job, "--timeout", "20").code == 1
    assert root.job(job).state == "lost"


def test_a_killed_agent_is_noticed_with_its_code_and_its_job_is_lost(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")

    os.kill(root.session("writer").agent_pid, signal.SIGKILL)

    until(lambda: root.session("writer").status == "ended")
    until(lambda: root.job(job).state == "lost")
    assert root.session("writer").exit_code == -9
    assert root.ok("why", "writer")["next"] == "mam agent resume writer"


def test_a_killed_runner_takes_its_agent_along_and_is_noticed(root: Root) -> None:
    root.agent()
    row = root.session("writer")

    os.kill(row.pid, signal.SIGKILL)

    until(lambda: root.session("writer").status == "ended")
    until(lambda: process_identity.start_time(row.agent_pid) is None)
    assert "without a word" in root.session("writer").ended_reason


def test_a_command_that_ends_at_once_is_no_ready_agent(root: Root) -> None:
    said = root.mam("agent", "create", "brief", "--agent", "command", "--json", "--", "true")

    assert said.code == 4
    assert said.error["code"] == "agent_not_ready"
    assert said.error["data"]["waited_s"] < 30  # it did not wait for what had ended, and does not say that it did
    until(lambda: root.session("brief").status == "ended")


def test_a_name_is_taken_only_once(root: Root) -> None:
    root.agent()

    said = root.mam("agent", "create", "writer", "--agent", "scripted", "--json")

    assert (said.code, said.error["code"]) == (1, "session_exists")
    assert root.session("writer").status == "running"


def test_every_part_of_a_session_can_be_gone_before_it_is_stopped(root: Root) -> None:
    root.agent()
    row = root.session("writer")
    runtime.multiplexer(root.parts, row).close(row.pane, runtime.tag(root.parts, "writer"))
    root.mam("down")

    assert [root.mam("agent", "stop", "writer").code for _ in range(2)] == [0, 0]
    assert root.session("writer").status == "stopped"


def test_a_workspace_server_is_never_shared(make_root: Callable[..., Root], needs: Callable[[str], str]) -> None:
    needs("tmux")
    one, two = make_root("a/same", mux="tmux"), make_root("b/same", mux="tmux")
    one.agent()
    two.agent()

    assert one.session("writer").mux_server != two.session("writer").mux_server
    assert one.mam("agent", "stop", "writer").code == 0
    assert runtime.alive(two.session("writer"))


def test_attach_shows_the_agents_pane_in_a_terminal_until_its_person_leaves(
    make_root: Callable[..., Root], needs: Callable[[str], str]
) -> None:
    needs("tmux")
    root = make_root(mux="tmux")
    root.agent()
    master, slave = pty.openpty()
    words = [MAM, "agent", "attach", "writer"]
    env = {**os.environ, **root.env, "TERM": "xterm"}
    person = subprocess.Popen(
        words, cwd=root.path, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        shown = b""
        while b"scripted>" not in shown:
            assert select.select([master], [], [], 60)[0], shown[-2000:]
            shown += os.read(master, 65536)
        leave = ["tmux", "-L", root.session("writer").mux_server, "detach-client", "-s", "writer"]
        subprocess.run(leave, check=True)
        while person.poll() is None:  # its goodbye is read, or it could not end
            if select.select([master], [], [], 0.1)[0]:
                with suppress(OSError):
                    os.read(master, 65536)
    finally:
        person.kill()
        os.close(master)

    assert person.returncode == 0 and runtime.alive(root.session("writer"))


def test_a_pane_whose_number_another_agent_has_now_is_never_taken_for_the_old_ones(
    make_root: Callable[..., Root], needs: Callable[[str], str]
) -> None:
    needs("tmux")
    root = make_root(mux="tmux")
    root.agent()
    assert root.mam("agent", "stop", "writer").code == 0
    subprocess.run(["tmux", "-L", root.session("writer").mux_server, "kill-server"], capture_output=True)
    gone = root.mam("agent", "attach", "writer", "--json")
    root.agent("second")
    assert root.session("second").pane == root.session("writer").pane  # a new server counts from the beginning

    said = root.mam("agent", "attach", "writer", "--json")

    assert [(each.code, each.error["code"]) for each in (gone, said)] == [(2, "usage")] * 2
    assert root.session("second").pane in root.ok("agent", "attach", "second")["command"]
