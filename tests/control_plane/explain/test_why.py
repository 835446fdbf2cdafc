"""`mam why`: what is going on with an agent or a job, and what to do."""

from pathlib import Path

from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.registry.records import Finding
from tests.support import MAM, Root, until


def test_why_names_the_question_that_an_agent_asks(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"ask": "delete everything?"}, {"report": {"text": "asked first"}})
    job = root.delegate()

    until(lambda: root.session("writer").screen == "asking")

    why = root.ok("why", job)
    assert "asking" in why["because"] and why["awaited"] == "a person"
    assert any("may I?" in line for line in why["evidence"])


def test_a_permission_that_was_given_at_once_is_no_question_that_stands(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"shell": f"{MAM} agent-signal permission"}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.session("writer").hook == "permission", what="its own hook tells of the question")

    until(lambda: root.session("writer").screen_at > root.session("writer").hook_at, what="its screen is told after it")

    assert root.session("writer").screen == "working"
    why = root.ok("why", job)
    assert why["state"].startswith("running ") and "permission" not in why["because"]


def test_why_knows_the_monitor_and_what_a_finding_is_about(root: Root) -> None:
    root.ok("up")
    assert root.ok("why", "monitor")["state"] == root.ok("why", "broker")["state"] == "running"
    root.agent()
    monitor_process.end(root.parts.layout)
    assert (root.ok("why", "monitor")["state"], root.ok("why", "broker")["next"]) == ("not running", "mam up")

    with root.registry.transaction() as tx:
        since = root.session("writer").created_at
        tx.put(Finding("mux_gone", "mam-repo-000000", since, "tmux is gone; mam agent resume a"))
    why = root.ok("why", "mam-repo-000000")

    assert why["state"].startswith("mux_gone") and (why["because"], why["next"]) == (
        "tmux is gone",
        "mam agent resume a",
    )
    assert root.mam("why", "nobody", "--json").error["code"] == "unknown_thing"


def test_why_of_a_job_that_no_monitor_moves_says_so(root: Root) -> None:
    root.agent()
    root.mam("down")
    closed = {"MAM_NO_SUBSCRIBER_DAEMON": "1"}
    said = root.mam("job", "delegate", "--to", "writer", "--brief", "README", "--json", env=closed)

    why = root.ok("why", said.json["id"])

    assert "no monitor runs" in why["because"] and why["next"] == "mam up"


def test_a_monitor_that_was_stopped_is_said_to_stand_still_with_what_wakes_it(root: Root) -> None:
    root.ok("up")
    known = monitor_process.look(root.parts.layout)
    assert known is not None
    wake = f"kill -CONT {known.process.pid}"

    with root.asleep(known.process.pid):
        why = [root.ok("why", name) for name in ("monitor", "broker")]
        status, doctor, up = root.ok("status"), root.mam("doctor", "--json").json, root.mam("up", "--json")

    assert {(each["state"], each["next"]) for each in why} == {("stopped", wake)}
    assert wake in status["monitor"]["problem"]
    broken = {each["what"]: each["remedy"] for each in doctor["findings"] if each["state"] == "broken"}
    assert (doctor["ok"], broken["monitor"]) == (False, wake)
    assert up.code == 1 and wake in up.json["problem"]
    assert root.ok("why", "monitor")["state"] == "running"


def test_a_broker_that_was_stopped_is_said_to_answer_nobody_before_anybody_misses_it(root: Root) -> None:
    root.ok("up")
    running = until(lambda: nats_server.running(root.parts.layout.broker))
    wake = f"kill -CONT {running.pid}"

    with root.asleep(running.pid):
        why, doctor = root.ok("why", "broker"), root.mam("doctor", "--json").json

    assert (why["state"], why["next"]) == ("stopped", wake)
    assert {each["what"]: each["remedy"] for each in doctor["findings"] if each["state"] == "broken"} == {
        "broker": wake
    }


def test_an_agent_that_forgets_to_report_is_a_finding_with_a_next_step(root: Root) -> None:
    gate = root.gate()
    root.agent("writer", {"started": {}}, gate.step)
    job = root.delegate()
    until(lambda: root.session("writer").screen == "working" and root.job(job).state == "running")
    gate.open()
    until(lambda: root.session("writer").screen == "ready", what="its turn ended without a report")
    with root.registry.transaction() as tx:  # as if a minute had gone by
        tx.connection.execute("UPDATE sessions SET screen_at = screen_at - 61000")
        tx.connection.execute(
            "UPDATE attempts SET started_at = started_at - 70000, delivered_at = delivered_at - 70000"
        )

    until(lambda: any(f["code"] == "idle_waiting" for f in root.ok("status")["findings"]))

    assert root.ok("why", job)["next"].startswith("mam agent send writer")
    assert root.job(job).state == "running"


def test_an_archived_job_says_so_everywhere_and_cannot_be_tried_again(root: Root) -> None:
    root.agent()
    job = root.delegate("writer", "x", "--wait")
    root.mam("job", "archive", job)

    assert root.mam("verify", job, "--json").error["code"] == "job_archived"
    assert root.mam("job", "retry", job, "--json").error["code"] == "job_archived"
    assert "archived" in root.ok("why", job)["because"]


def test_a_directory_that_was_removed_is_named_with_the_way_back(root: Root, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    assert root.mam("agent", "create", "writer", "--agent", "scripted", "--cwd", str(place)).code == 0
    root.mam("agent", "stop", "writer")
    place.rmdir()

    said = root.mam("agent", "resume", "writer", "--json")

    assert (said.code, said.error["code"]) == (2, "place_gone")
    assert root.ok("why", "writer")["next"].startswith(f"make {place} again")
