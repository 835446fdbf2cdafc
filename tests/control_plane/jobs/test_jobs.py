"""Jobs from the command line to the registry and back, with scripted agents in headless panes and a real broker."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mam.broker import spool
from mam.broker.bus.protocol import Message
from mam.broker.envelope import keys, topics
from mam.broker.envelope.signing import USE_JOB, unseal, unverified_body
from mam.control_plane.jobs.reports import find_report
from mam.control_plane.registry.records import Attempt
from tests.support import FULL, MAM, Root, git, repository, run_mam, until

ODD_NAMES = ["plain", "with space", "quo'te\"s", "$HOME", "한국어", "line\nbreak", "-dash"]
HANG: list[dict[str, Any]] = [{"started": {}}, {"hang": {}}]


@pytest.mark.req("M13", "M14", "M15")
def test_every_path_and_command_that_an_agent_gets_is_absolute(root: Root) -> None:
    root.agent()
    job = root.delegate()
    root.mam("job", "wait", job)
    folder = root.path / ".mam" / "jobs" / job
    prompts = json.loads((root.path / ".mam" / "run" / "writer" / "memory.json").read_text("utf-8"))

    for text in (prompts[0], (folder / "brief.md").read_text("utf-8")):
        assert shlex.quote(str(folder / "brief.md")) in text
        assert shlex.quote(str(folder / "writer-reports" / "report-final.md")) in text
        for line in (line.strip() for line in text.splitlines() if " job " in line and "--registry-dir" in line):
            words = shlex.split(line)
            assert Path(words[0]).is_absolute()
            assert words[words.index("--registry-dir") + 1] == str(root.path / ".mam" / "jobs")


@pytest.mark.req("M16", "M18", "M20", "M33")
@pytest.mark.parametrize("name", ODD_NAMES if FULL else ["-all quo'te\"s of $HOME 한국어\nat once"])
def test_a_worktree_agent_works_whatever_its_directories_are_called(
    make_root: Callable[..., Root], tmp_path: Path, name: str
) -> None:
    root = make_root(f"main {name}")
    tree = tmp_path / f"tree {name}"
    git(root.path, "worktree", "add", "-q", "-b", "topic", str(tree))
    said = root.mam("agent", "create", "writer", "--agent", "scripted", "--workspace", str(tree), "--json", cwd=tree)
    assert said.code == 0, said.err

    job = root.delegate()
    done = root.mam("job", "wait", job, "--json", "--timeout", "30")

    assert done.code == 0, done.err
    assert root.session("writer").cwd == str(tree)
    started = next(e for e in root.events(f"jobs/{job}") if e["kind"] == "started")
    assert started["outcome"] == "accepted"
    assert not (tree / ".mam").exists()
    report = find_report(root.job(job))
    assert report is not None and str(report).startswith(str(root.path / ".mam" / "jobs"))


@pytest.mark.req("M17")
def test_a_relative_registry_dir_counts_from_the_callers_directory(root: Root) -> None:
    root.agent("writer", *HANG)
    job = root.delegate()
    until(lambda: root.job(job).state == "running")

    words = ["job", "progress", "--registry-dir", "jobs", "--job", job, "--attempt", "1", "--note", "from afar"]
    said = root.mam(*words, cwd=root.path / ".mam")

    assert said.code == 0, said.err
    assert root.mam(*words, "--json", cwd=root.path).error["code"] == "job_record_missing"
    until(lambda: any(e["kind"] == "progress" for e in root.events(f"jobs/{job}")))


@pytest.mark.req("M17", "M30", "M32")
def test_another_jobs_folder_is_honoured_everywhere(root: Root, tmp_path: Path) -> None:
    elsewhere = {"MAM_JOBS_DIR": str(tmp_path / "my jobs")}
    root.env |= elsewhere
    root.agent()

    job = root.delegate()
    done = root.mam("job", "wait", job, "--json", "--timeout", "30")

    assert done.code == 0, done.err
    assert done.json["report_path"].startswith(str(tmp_path / "my jobs"))
    assert list((root.path / ".mam" / "jobs").iterdir()) == []
    assert (root.path / ".mam" / "agent-sessions.yaml").exists()
    assert root.mam("verify", job).code == 0


@pytest.mark.req("M19", "M98")
def test_a_heartbeat_timer_started_from_a_worktree_reaches_the_central_registry(root: Root, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(root.path, "worktree", "add", "-q", "-b", "topic", str(tree))
    root.env["MAM_HEARTBEAT_S"] = "3600"  # the runner's own are out of the way
    root.agent("writer", {"hang": {}})
    job = root.delegate()
    until(lambda: (root.parts.layout.run_dir("writer") / "open.json").read_text() != "{}")
    words = ["--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
    beats: list[object] = []
    bus = root.viewer()
    bus.subscribe(topics.job(job), lambda m: beats.append(m) if _by_a_verb(m.payload, "heartbeat") else None)
    bus.wait_ready(60)

    assert root.mam("job", "started", "--heartbeat", "1", *words, cwd=tree).code == 0

    until(lambda: len(beats) >= 2, what="the timer's own heartbeats come over the bus")
    bus.close()
    attempt = until(lambda: _heard(root, job), what="the monitor notes that it heard the attempt")
    assert attempt.heartbeat_s == 1
    assert not (tree / ".mam").exists()


def _heard(root: Root, job: str) -> Attempt | None:
    with root.registry.view() as view:
        attempt = view.attempt(job, 1)
    return attempt if attempt is not None and attempt.last_heartbeat_at else None


def _by_a_verb(wire: bytes, kind: str) -> bool:
    body = unverified_body(wire)
    return body["kind"] == kind and str(body["producer"]).startswith("verb-")


@pytest.mark.req("M36")
def test_what_is_said_of_a_job_lies_on_the_wire_behind_its_topic_prefix(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"progress": {"note": "n"}}, {"report": {"text": "done"}})
    said: list[Message] = []
    bus = root.viewer(topics.job_prefix(root.parts.fingerprint))
    bus.subscribe("#", said.append)
    bus.wait_ready(60)

    job = root.job(root.delegate("writer", "do it", "--wait"))

    until(lambda: _kinds(said, job.id) >= {"started", "heartbeat", "progress", "report"}, what="the job's events")
    until(lambda: f"{job.id}/state" in {each.topic for each in said}, what="the job's card")
    bus.close()
    record = json.loads(Path(job.folder, "job.json").read_text("utf-8"))
    assert job.topic_prefix == record["topic_prefix"] == topics.job_prefix(root.parts.fingerprint)


def _kinds(said: list[Message], job: str) -> set[str]:
    return {str(unverified_body(each.payload)["kind"]) for each in said if each.topic == job}


def test_heartbeats_of_a_job_carry_its_own_key_also_while_the_next_one_waits_for_its_agent(root: Root) -> None:
    root.agent("writer", *HANG)
    first = root.delegate("writer", "do it", "--limit", "1")
    until(lambda: root.job(first).state == "timed_out")  # its agent still works
    second = root.delegate("writer")
    until(lambda: root.job(second).state == "dispatched", what="the runner has the next prompt, and cannot paste it")
    beats: list[Message] = []
    bus = root.viewer()
    bus.subscribe(topics.job(first), beats.append)

    until(lambda: len(beats) >= 2, what="heartbeats of the first job")

    bus.close()
    keyring = {"k1": keys.load(root.parts.layout.job_key(first))}
    for beat in beats:
        body = unseal(beat.payload, keyring=keyring, use=USE_JOB, scope=first, topic=topics.job(first))
        assert (body["kind"], body["job"]) == ("heartbeat", first)


@pytest.mark.req("M97")
def test_an_agent_that_never_begins_is_blocked_and_free_again(root: Root) -> None:
    root.agent("writer", {"hang": {}})

    job = root.delegate("writer", "do it", "--started-within", "1")

    done = root.mam("job", "wait", job, "--json", "--timeout", "30")
    assert (done.code, done.json["state"]) == (1, "agent_blocked")
    assert "no `started` within 1 s" in root.ok("why", job)["because"]


@pytest.mark.req("M98")
def test_a_long_silence_is_a_finding_and_not_the_end(root: Root) -> None:
    root.env["MAM_HEARTBEAT_S"] = "3600"
    gate = root.gate()
    root.agent("writer", {"started": {}}, gate.step, {"report": {"text": "late but done"}})
    root.env["MAM_HEARTBEAT_S"] = "1"
    root.mam("down")
    root.mam("up")  # the monitor now expects one a second

    job = root.delegate("writer", "do it", "--heartbeat-misses", "1")

    until(lambda: any(f["code"] == "silent" for f in root.ok("status")["findings"]))
    gate.open()
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0


@pytest.mark.req("M100")
def test_two_agents_work_at_once_and_one_agent_takes_one_job(root: Root) -> None:
    root.agent("one", *HANG)
    root.agent("two", *HANG)
    first, second = root.delegate("one"), root.delegate("two")
    until(lambda: {root.job(first).state, root.job(second).state} == {"running"})

    busy = root.mam("job", "delegate", "--to", "one", "--brief", "-", "--json", stdin="more")

    assert (busy.code, busy.error["code"]) == (5, "session_busy")
    assert len(list((root.path / ".mam" / "jobs").iterdir())) == 2


def test_many_delegates_at_once_give_one_job_and_no_leftovers(root: Root) -> None:
    root.agent("writer", *HANG)
    argv = [MAM, "job", "delegate", "--to", "writer", "--brief", "README"]
    environ = {**os.environ, **root.env}
    children = [subprocess.Popen(argv, cwd=root.path, env=environ, stdout=-3, stderr=-3) for _ in range(8)]

    codes = sorted(child.wait(120) for child in children)

    assert codes == [0] + [5] * 7
    assert len(list((root.path / ".mam" / "jobs").iterdir())) == 1
    assert len(list((root.path / ".mam" / "secrets").glob("job-*.key"))) == 1


def test_a_refused_review_ends_with_code_3_and_its_verdict(root: Root) -> None:
    root.agent(
        "critic", {"started": {}}, {"report": {"text": "a defect", "verdict": "not_pass"}}, role="planner,reviewer"
    )

    job = root.delegate("critic", "review it")
    done = root.mam("job", "wait", job, "--timeout", "30")

    assert done.code == 3
    assert "verdict: not_pass" in done.out
    assert root.session("critic").role == "planner,reviewer"


def test_waiting_in_vain_is_code_4_and_leaves_the_job_alone(root: Root) -> None:
    root.agent("writer", *HANG)
    job = root.delegate()

    said = root.mam("job", "wait", job, "--timeout", "0.3", "--json")

    assert (said.code, said.error["code"]) == (4, "wait_ended")
    assert root.job(job).state in ("queued", "dispatched", "running")


def test_a_cancelled_job_frees_its_agent_and_a_late_report_changes_nothing(root: Root) -> None:
    gate = root.gate()
    root.agent("writer", {"started": {}}, gate.step, {"report": {"text": "too late"}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")

    assert root.mam("job", "cancel", job, "--reason", "no longer wanted").code == 0
    assert root.mam("job", "cancel", job).code == 0
    gate.open()
    until(lambda: any(e["kind"] == "report" and e["outcome"] == "late" for e in root.events(f"jobs/{job}")))

    assert root.job(job).state == "cancelled"
    assert "no longer wanted" in root.ok("why", job)["because"]
    again = root.delegate()
    assert root.mam("job", "wait", again, "--timeout", "30").code == 0


def test_a_retried_job_is_done_anew_and_the_old_report_does_not_count(root: Root) -> None:
    root.agent()
    job = root.delegate()
    root.mam("job", "wait", job)
    first_sha = root.job(job).report_sha256

    assert root.ok("job", "retry", job)["attempt"] == 2
    done = root.mam("job", "wait", job, "--json", "--timeout", "30")

    assert done.code == 0 and root.job(job).attempt == 2
    reports = sorted(p.name for p in Path(root.job(job).report_path).parent.iterdir())
    assert reports == ["report-final.attempt-1.md", "report-final.md"]
    assert first_sha is not None


def test_archiving_keeps_the_events_and_destroys_the_key(root: Root) -> None:
    root.agent()
    job = root.delegate()
    root.mam("job", "wait", job)
    count = len(root.events(f"jobs/{job}"))

    assert root.ok("job", "archive", job)["archived"] == [job]
    assert root.ok("job", "archive", job)["archived"] == [job]

    lines = (root.path / ".mam" / "jobs" / job / "events.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == count == 3
    assert not (root.path / ".mam" / "secrets" / f"job-{job}.key").exists()
    assert root.ok("job", "list") == []


def test_free_text_reaches_an_agent_and_says_whether_it_was_submitted(root: Root) -> None:
    root.agent()

    said = root.ok("agent", "send", "writer", "hello; `$HOME` -x\nsecond line;")

    assert said["state"] == "submitted"
    memory = root.path / ".mam" / "run" / "writer" / "memory.json"
    assert until(lambda: json.loads(memory.read_text("utf-8"))) == ["hello; `$HOME` -x\nsecond line;"]


@pytest.mark.parametrize(
    ("brief", "why"),
    [(b"", "empty"), (b"  \n", "empty"), (b"\xff\xfe", "not UTF-8"), (b"a\0b", "NUL"), (b"x" * 1_048_577, "bytes")],
)
def test_a_brief_that_is_none_is_refused_and_leaves_nothing(root: Root, brief: bytes, why: str) -> None:
    path = root.path / "brief"
    path.write_bytes(brief)

    said = root.mam("job", "delegate", "--to", "writer", "--brief", str(path), "--json")

    assert (said.code, said.error["code"]) == (2, "brief_refused")
    assert why in said.error["message"]
    assert list((root.path / ".mam" / "jobs").iterdir()) == []


def test_unknown_things_are_typed_errors(root: Root) -> None:
    for words, code in (
        (["job", "show", "job-99999999"], "unknown_job"),
        (["agent", "show", "nobody"], "unknown_session"),
        (["why", "nobody"], "unknown_thing"),
        (["job", "delegate", "--to", "nobody", "--brief", "README"], "unknown_session"),
        (["agent", "create", "w", "--agent", "nothing"], "unknown_agent"),
        (["agent", "create", "w", "--agent", "command"], "usage"),
        (["agent", "create", "w", "--agent", "command", "--", "no-such-program"], "agent_program_missing"),
        (["agent", "create", "w", "--agent", "scripted", "--cwd", "/no/where"], "no_directory"),
        (["agent", "create", "w", "--agent", "scripted", "--mux", "screen"], "mux_missing"),
        (["job", "progress", "--note", "x"], "job_not_named"),
        (["frobnicate"], "usage"),
        (["job"], "usage"),
    ):
        said = root.mam(*words, "--json")
        assert said.error["code"] == code, words
        assert said.code in (1, 2) and said.error["message"] and "Traceback" not in said.err
    assert root.ok("agent", "list") == []


def test_events_kept_while_nothing_runs_are_recorded_later(root: Root) -> None:
    gate = root.gate()
    root.agent("writer", {"started": {}}, gate.step, {"report": {"text": "done without anybody listening"}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    root.kill_monitor()
    root.kill_broker()
    gate.open()
    outbox = root.parts.layout.run_dir("writer") / "outbox"
    until(lambda: any(spool.pending(outbox)), what="the report waits in the spool")
    assert root.job(job).state == "running"

    assert root.mam("up").code == 0

    until(lambda: root.job(job).state == "reported")
    until(lambda: not any(spool.pending(outbox)), what="the spool is settled")


def test_a_repository_beside_a_repository_has_topics_of_its_own(make_root: Callable[..., Root]) -> None:
    one, two = make_root("one"), make_root("two")

    assert one.parts.fingerprint != two.parts.fingerprint
    one.agent()
    assert two.ok("agent", "list") == []


def test_without_a_monitor_a_job_is_kept_and_sent_later(root: Root) -> None:
    root.agent()
    root.mam("down")

    said = root.mam(
        "job", "delegate", "--to", "writer", "--brief", "README", "--json", env={"MAM_NO_SUBSCRIBER_DAEMON": "1"}
    )

    assert said.code == 0 and "will be sent" in said.err
    job = said.json["id"]
    assert root.job(job).state == "queued"
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0


def test_a_plain_directory_is_no_control_root(tmp_path: Path) -> None:
    plain = repository(tmp_path / "plain")

    said = run_mam("status", "--json", cwd=plain)

    assert (said.code, said.error["code"]) == (2, "no_control_root")


def test_text_that_waits_for_the_agents_turn_gives_way_to_a_job(root: Root) -> None:
    script = root.path.parent / "script.json"
    done = {"report": {"text": "done"}}
    gate = root.gate()  # the turn goes on behind the report
    script.write_text(json.dumps([[{"started": {}}, done, gate.step], [{"started": {}}, done]]), "utf-8")
    made = root.mam("agent", "create", "writer", "--agent", "scripted", "--", "--script", str(script))
    assert made.code == 0, made.err
    first = root.delegate()
    until(lambda: root.job(first).state == "reported")
    words = [MAM, "agent", "send", "writer", "are you there?", "--json"]
    text = subprocess.Popen(words, cwd=root.path, env={**os.environ, **root.env}, stdout=subprocess.PIPE, text=True)

    def received() -> bool:
        said = [unverified_body(event["wire"]) for event in root.events("agents/writer/events")]
        return any(str(each["job"]).startswith("send-") for each in said)

    until(received)
    second = root.delegate()
    gate.open()

    until(lambda: root.job(second).state == "reported")
    out, _ = text.communicate(timeout=60)
    assert (json.loads(out)["state"], json.loads(out)["reason"]) == ("refused", "busy")
