"""doctor, why, tail, status, verify: what a person sees at 2 a.m."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from mam.broker.bus.mqtt import MqttBus
from mam.broker.envelope import topics
from mam.broker.host import process_identity
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.registry.records import Finding
from mam.wrappers.runner.relay import body_of
from tests.support import MAM, Root, until


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


def test_a_probe_proves_that_an_agent_takes_a_turn(root: Root) -> None:
    root.agent()

    assert root.ok("doctor", "--probe", "writer")["ok"]


def test_a_probe_of_an_agent_that_does_not_answer_fails_and_leaves_it_free(root: Root) -> None:
    root.agent("writer", {"hang": {}})

    said = root.mam("doctor", "--probe", "writer", "--timeout", "1", "--json")

    assert (said.code, said.error["code"]) == (1, "probe_failed")
    with root.registry.view() as view:
        assert view.open_job("writer") is None


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


def test_who_waits_for_an_answer_is_told_that_the_job_ended(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    words = [str(MAM), "job", "ask", "--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
    asking = subprocess.Popen([*words, "which one?", "--json"], cwd=root.path, stderr=subprocess.PIPE, text=True)
    until(lambda: root.ok("why", job)["awaited"] == "an answer")

    root.ok("job", "cancel", job)

    _, err = asking.communicate(timeout=60)
    assert (asking.returncode, json.loads(err)["error"]["code"]) == (4, "job_over")


def test_an_answer_that_waits_for_its_turn_is_not_typed_after_the_job(root: Root) -> None:
    ask = "mam job ask --registry-dir $MAM_JOBS_DIR --job job-00000001 --attempt 1 --no-wait which"
    go, end = root.gate(), root.gate()
    steps = [{"started": {}}, {"shell": f"PATH={Path(MAM).parent}:$PATH {ask}"}]
    steps += [go.step, {"report": {"text": "decided myself"}}, end.step]
    root.agent("writer", *steps)
    root.delegate("writer", "do it", "--id", "job-00000001")
    until(lambda: root.ok("why", "job-00000001")["awaited"] == "an answer")
    root.ok("job", "answer", "job-00000001", "the blue one")

    go.open()
    until(lambda: root.job("job-00000001").state == "reported")
    end.open()
    until(lambda: root.session("writer").screen == "ready")

    said = [body_of(event["wire"]) for event in root.events("agents/writer/events")]
    ends = [each["data"]["state"] for each in said if each["kind"] == "delivery" and each["job"].startswith("answer-")]
    assert ends == ["received", "refused"]


def test_a_card_of_a_job_that_nobody_knows_is_cleared_from_the_broker(root: Root) -> None:
    root.ok("up")
    layout, topic = root.parts.layout, "jobs/job-99999999/state"
    running = until(lambda: nats_server.running(layout.broker))
    bus = MqttBus(nats_config.endpoint(layout.secrets, running.port, "control"), topics.root(root.parts.fingerprint))
    seen: list[bytes] = []
    try:
        bus.subscribe("jobs/+/state", lambda message: seen.append(message.payload) if message.topic == topic else None)
        bus.wait_ready(60)
        bus.publish(topic, b"left of somebody", retain=True)

        until(lambda: seen == [b"left of somebody", b""])
    finally:
        bus.close()


def test_why_knows_the_monitor_and_what_a_finding_is_about(root: Root) -> None:
    root.ok("up")
    assert root.ok("why", "monitor")["state"] == root.ok("why", "broker")["state"] == "running"
    root.agent()
    monitor_process.end(root.parts.layout)
    assert (root.ok("why", "monitor")["state"], root.ok("why", "broker")["next"]) == ("not running", "mam up")

    with root.registry.transaction() as tx:
        tx.put(
            Finding("mux_gone", "mam-repo-000000", tx.session("writer").created_at, "tmux is gone; mam agent resume a")
        )
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


def test_tail_shows_a_job_from_its_first_event_and_only_that_job(root: Root) -> None:
    root.agent()
    first = root.delegate("writer", "one", "--wait")
    second = root.delegate("writer", "two", "--wait")

    said = root.mam("tail", second, "--no-follow", "--json")

    events = [json.loads(line) for line in said.out.splitlines()]
    assert [e["kind"] for e in events] == ["started", "progress", "report"]
    assert {e["scope"] for e in events} == {f"jobs/{second}"} != {f"jobs/{first}"}


def test_foreign_text_cannot_move_the_cursor_of_whoever_looks(root: Root) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202eevil"
    root.agent("writer", {"started": {}}, {"progress": evil}, {"report": {"text": evil}})
    job = root.delegate("writer", f"title {evil}")
    root.mam("job", "wait", job)

    for words in (["status"], ["tail", job, "--no-follow"], ["why", job], ["why", "writer"], ["job", "list"],
                  ["job", "show", job], ["agent", "show", "writer"], ["job", "wait", job]):  # fmt: skip
        said = root.mam(*words)
        assert "\x1b" not in said.out + said.err, words
        assert "\u202e" not in said.out + said.err, words


def test_verify_finds_a_byte_that_was_changed_in_the_database(root: Root) -> None:
    root.agent()
    job = root.delegate("writer", "x", "--wait")
    assert root.mam("verify", job).code == 0
    with root.registry.transaction() as tx:
        tx.connection.execute(
            "UPDATE events SET wire = CAST(replace(CAST(wire AS TEXT), 'v1,', 'v1,A') AS BLOB) WHERE kind = 'report'"
        )

    said = root.mam("verify", job, "--json")

    assert said.code == 1 and not said.json["ok"]


def test_verify_finds_a_report_that_was_changed_afterwards(root: Root) -> None:
    root.agent()
    job = root.delegate("writer", "x", "--wait")
    path = Path(root.job(job).report_path)
    path.write_text(path.read_text("utf-8") + "and more\n", "utf-8")

    said = root.mam("verify", job, "--json")

    assert said.code == 1
    assert [c["what"] for c in said.json["checks"] if not c["ok"]] == ["report"]


def test_a_service_file_is_printed_installed_and_removed(root: Root) -> None:
    printed = root.ok("monitor", "install", "--print")
    assert str(root.path) in printed["text"] and not Path(printed["path"]).exists()

    assert root.mam("monitor", "install", "--no-start").code == 0
    assert Path(printed["path"]).read_text("utf-8") == printed["text"]

    assert root.ok("monitor", "uninstall")["removed"] is True
    assert root.ok("monitor", "uninstall")["removed"] is False


def test_a_completion_script_knows_verbs_agents_and_jobs(root: Root) -> None:
    root.agent()
    script = root.mam("completion", "bash").out
    ask = 'COMP_WORDS=({words}); COMP_CWORD={at}; _mam; echo "${{COMPREPLY[@]}}"'

    def completed(words: str, at: int) -> str:
        program = f"{script}\n{ask.format(words=words, at=at)}"
        environ = {**os.environ, **root.env}
        return subprocess.run(
            ["bash", "-c", program], cwd=root.path, env=environ, capture_output=True, text=True
        ).stdout

    assert "doctor" in completed("mam do", 1)
    assert "resume" in completed("mam agent re", 2)
    assert "writer" in completed("mam why wr", 2)
    assert {shell: root.mam("completion", shell).code for shell in ("zsh", "fish")} == {"zsh": 0, "fish": 0}


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


def test_a_shell_that_took_the_agents_place_gets_no_prompt(root: Root) -> None:
    words = ["agent", "create", "shell", "--agent", "command", "--no-wait", "--", "sh", "-c", "exec sh -i"]
    assert root.mam(*words).code == 0
    until(lambda: root.session("shell").screen == "ready")
    canary = root.path / "canary"

    job = root.delegate("shell", f"x; touch {canary}", "--deliver-within", "1")
    done = root.mam("job", "wait", job, "--timeout", "30", "--json")

    assert (done.code, done.json["state"]) == (1, "agent_blocked")
    assert "not_foreground" in done.json["detail"]
    assert "a shell has the pane" in root.ok("why", job)["next"]


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


def test_a_monitor_whose_registry_was_removed_ends(root: Root) -> None:
    root.mam("up")
    known = monitor_process.look(root.parts.layout)
    assert known is not None

    shutil.rmtree(root.path / ".mam")

    until(lambda: not process_identity.alive(known.process), what="the monitor ended")
    for pid in pids_below(root.path):
        os.kill(pid, signal.SIGKILL)


def pids_below(folder: Path) -> list[int]:
    """Processes that work below *folder*: what nobody's files name any more."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(f"{folder}/"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
