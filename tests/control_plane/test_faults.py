"""Scorecard 12 and 13: a process dies, or the disk refuses, at each durable step; the second run converges."""

import os
from pathlib import Path

import pytest

from mam.control_plane.sessions import runtime
from tests.support import FULL, Root, until

DELEGATE = ["job.files", "key.fsync", "key.link", "json.fsync", "json.rename", "registry.commit", "registry.committed"]
CREATE = [
    "key.link",
    "registry.commit",
    "private.fsync",
    "private.rename",
    "pane.open",
    "spawn",
    "pane.opened",
    "projection.rename",
]
CREATE += ["registry.committed"]
RETRY = ["json.fsync", "json.rename", "report.aside", "registry.commit", "registry.committed"]
MONITOR = ["registry.commit", "registry.committed", "bus.publish", "audit.append", "projection.rename", "json.rename"]
RUNNER = [
    "key.link",
    "delivery.paste",
    "delivery.enter",
    "delivery.fsync",
    "delivery.conclude",
    "bus.publish",
    "spool.rename",
]
VERB = ["spool.fsync", "spool.rename", "folder.sync"]


def refusals(points: list[str]) -> list[tuple[str, str]]:
    """What the disk says at each point: ENOSPC and EIO, of which everyday runs take one by turns."""
    actions = ("ENOSPC", "EIO")
    if FULL:
        return [(point, action) for point in points for action in actions]
    return [(point, actions[n % 2]) for n, point in enumerate(points)]


def delegate(root: Root, fault: str = "") -> int:
    env = {"MAM_FAULT": f"cli@{fault}"} if fault else {}
    return root.mam("job", "delegate", "--to", "writer", "--brief", "README", "--json", env=env).code


def all_done(root: Root) -> bool:
    with root.registry.view() as view:
        return all(job.state == "reported" for job in view.jobs())


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", DELEGATE)
def test_a_delegate_that_dies_leaves_a_whole_job_or_none(root: Root, point: str) -> None:
    root.agent()

    assert delegate(root, f"{point}:1:crash") == -9

    until(lambda: all_done(root), what="a job that was committed is done")
    for folder in (root.path / ".mam" / "jobs").iterdir():
        os.utime(folder, (1, 1))
    root.mam("doctor", "--fix")
    assert root.mam("doctor").code == 0
    assert delegate(root) == 0
    until(lambda: all_done(root))
    with root.registry.view() as view:
        assert len(view.jobs()) == (2 if point == "registry.committed" else 1)


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals([p for p in DELEGATE if p != "registry.committed"]))
def test_a_delegate_that_the_disk_refuses_is_a_typed_error_and_leaves_nothing(
    root: Root, point: str, action: str
) -> None:
    root.agent()

    said = root.mam(
        "job", "delegate", "--to", "writer", "--brief", "README", "--json", env={"MAM_FAULT": f"cli@{point}:1:{action}"}
    )

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert list((root.path / ".mam" / "jobs").iterdir()) == []
    assert not list((root.path / ".mam" / "secrets").glob("*job-*"))
    assert delegate(root) == 0
    until(lambda: all_done(root))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", RETRY)
def test_a_retry_that_dies_leaves_the_reported_job_or_a_new_attempt(root: Root, point: str) -> None:
    root.agent()
    job = root.delegate("writer", "do it", "--wait")

    assert root.mam("job", "retry", job, env={"MAM_FAULT": f"cli@{point}:1:crash"}).code == -9

    if point == "registry.committed":
        until(lambda: all_done(root), what="the new attempt is done")
    assert root.mam("verify", job).code == 0
    assert root.mam("job", "retry", job).code == 0
    until(lambda: all_done(root))
    assert root.job(job).attempt == (3 if point == "registry.committed" else 2)
    assert root.mam("verify", job).code == 0


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(RETRY[:-1]))
def test_a_retry_that_the_disk_refuses_leaves_job_and_report_as_they_were(root: Root, point: str, action: str) -> None:
    root.agent()
    job = root.delegate("writer", "do it", "--wait")
    folder = Path(root.job(job).folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    said = root.mam("job", "retry", job, "--json", env={"MAM_FAULT": f"cli@{point}:1:{action}"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert {path: path.read_bytes() for path in before if path.is_file()} == before
    assert root.job(job).attempt == 1 and root.mam("verify", job).code == 0
    assert root.mam("job", "retry", job).code == 0
    until(lambda: all_done(root))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", CREATE)
def test_a_create_that_dies_can_be_finished_by_create_or_resume(root: Root, point: str) -> None:
    words = ["agent", "create", "writer", "--agent", "scripted"]
    assert root.mam("up").code == 0

    assert root.mam(*words, env={"MAM_FAULT": f"cli@{point}:1:crash"}).code == -9

    known = root.session("writer")
    again = root.mam("agent", "resume", "writer") if known is not None else root.mam(*words)
    assert again.code == 0, again.err
    session = root.session("writer")
    panes = [p for p in runtime.multiplexer(root.parts, session).panes() if not p.dead]
    assert [p.id for p in panes] == [session.pane]
    assert delegate(root) == 0
    until(lambda: all_done(root))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize(("verb", "left"), [("resume --no-wait", 1), ("stop", 0)])
def test_a_pane_that_a_dying_create_could_note_nowhere_does_not_stay(root: Root, verb: str, left: int) -> None:
    root.env["MAM_NO_SUBSCRIBER_DAEMON"] = "1"  # nobody hears its runner either
    words = ["agent", "create", "writer", "--agent", "scripted", "--no-wait"]
    assert root.mam(*words, env={"MAM_FAULT": "cli@pane.opened:1:crash"}).code == -9

    assert root.mam("agent", *verb.split(), "writer").code == 0

    session = root.session("writer")
    panes = [p for p in runtime.multiplexer(root.parts, session).panes() if not p.dead]
    assert [p.id for p in panes] == [session.pane][:left]


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals([p for p in CREATE if p != "registry.committed"]))
def test_a_create_that_the_disk_refuses_is_a_typed_error_and_can_be_said_again(
    root: Root, point: str, action: str
) -> None:
    words = ["agent", "create", "writer", "--agent", "scripted", "--json"]
    assert root.mam("up").code == 0

    said = root.mam(*words, env={"MAM_FAULT": f"cli@{point}:1:{action}"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    again = root.mam("agent", "resume", "writer") if root.session("writer") is not None else root.mam(*words)
    assert again.code == 0, again.err
    session = root.session("writer")
    assert [p.id for p in runtime.multiplexer(root.parts, session).panes() if not p.dead] == [session.pane]
    assert delegate(root) == 0
    until(lambda: all_done(root))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", MONITOR)
def test_a_monitor_that_dies_anywhere_is_replaced_and_the_job_is_done_once(root: Root, point: str, nth: int) -> None:
    root.agent()
    root.mam("down")
    root.mam("up", env={"MAM_FAULT": f"monitor@{point}:{nth}:crash"})

    job = root.delegate()
    done = root.mam("job", "wait", job, "--timeout", "60", "--json")

    assert done.code == 0, done.err
    kinds = [event["kind"] for event in root.events(f"jobs/{job}")]
    assert sorted(kinds) == ["progress", "report", "started"]


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(MONITOR))
def test_a_monitor_whose_disk_refuses_once_goes_on(root: Root, point: str, action: str) -> None:
    root.agent()
    root.mam("down")
    root.mam("up", env={"MAM_FAULT": f"monitor@{point}:2:{action}"})

    job = root.delegate()

    assert root.mam("job", "wait", job, "--timeout", "60").code == 0


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", RUNNER)
def test_a_runner_that_dies_anywhere_never_pastes_twice_and_why_leads_on(root: Root, point: str) -> None:
    root.env["MAM_FAULT"] = f"runner@{point}:1:crash"
    root.mam("agent", "create", "writer", "--agent", "scripted", "--no-wait")
    del root.env["MAM_FAULT"]
    until(lambda: root.session("writer").status == "ended" or root.session("writer").screen == "ready")
    if root.session("writer").status == "ended":
        assert root.mam("agent", "resume", "writer").code == 0
    job = root.delegate("writer", "do it", "--started-within", "3")

    for _ in range(4):  # what `why` says, step by step, as a person would do it
        state = until(lambda: _settled(root, job))
        if state == "reported":
            break
        why = root.ok("why", job)["next"]
        if root.session("writer").status == "ended":
            assert "mam agent resume writer" in why
            assert root.mam("agent", "resume", "writer").code == 0
        if root.job(job).state in ("lost", "agent_blocked"):
            assert f"mam job retry {job}" in root.ok("why", job)["next"]
            assert root.mam("job", "retry", job).code == 0

    assert root.job(job).state == "reported"
    memory = Path(root.path / ".mam" / "run" / "writer" / "memory.json").read_text("utf-8")
    for attempt in range(1, root.job(job).attempt + 1):
        assert memory.count(f"[MAM job {job}, attempt {attempt}]") <= 1


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(RUNNER))
def test_a_runner_whose_disk_refuses_once_goes_on(root: Root, point: str, action: str) -> None:
    root.env["MAM_FAULT"] = f"runner@{point}:1:{action}"
    assert root.mam("agent", "create", "writer", "--agent", "scripted").code == 0
    del root.env["MAM_FAULT"]
    job = root.delegate("writer", "do it", "--started-within", "3")

    until(lambda: _settled(root, job))

    assert root.session("writer").status == "running"
    if root.job(job).state != "reported":
        assert root.mam("job", "retry", job).code == 0
        until(lambda: root.job(job).state == "reported")


def _settled(root: Root, job: str) -> str:
    """The job's state once it has ended, or once its agent is gone."""
    state: str = root.job(job).state
    if state in ("reported", "lost", "agent_blocked", "timed_out"):
        return state
    return "agent gone" if root.session("writer").status == "ended" else ""


@pytest.mark.scorecard(12)
def test_an_agent_that_dies_while_it_notes_a_prompt_can_be_resumed(root: Root) -> None:
    root.env["MAM_FAULT"] = "cli@memory.rename:1:crash"
    root.agent()
    del root.env["MAM_FAULT"]
    job = root.delegate("writer", "do it", "--started-within", "2")
    until(lambda: root.session("writer").status == "ended")

    assert root.mam("agent", "resume", "writer").code == 0
    until(lambda: root.job(job).state in ("agent_blocked", "lost"))
    assert root.mam("job", "retry", job).code == 0

    until(lambda: all_done(root))


@pytest.mark.scorecard(12)
@pytest.mark.parametrize("point", VERB)
def test_a_verb_that_dies_was_said_or_not_and_the_job_goes_on(root: Root, point: str) -> None:
    root.env["MAM_FAULT"] = f"verb@{point}:1:crash"
    root.agent("writer", {"started": {}}, {"shell": "true"})
    del root.env["MAM_FAULT"]
    job = root.delegate("writer", "do it", "--started-within", "2")

    until(lambda: root.job(job).state in ("running", "agent_blocked"))
    outbox = root.parts.layout.run_dir("writer") / "outbox"
    assert (root.job(job).state == "running") == (point == "folder.sync")  # it was on disk, or it was not
    until(lambda: not list(outbox.glob("*.event")))


@pytest.mark.scorecard(13)
@pytest.mark.parametrize(("point", "action"), refusals(VERB))
def test_a_verb_that_the_disk_refuses_is_a_typed_error_and_can_be_said_again(
    root: Root, point: str, action: str
) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    until(lambda: root.job(job).state == "running")
    where = ["--registry-dir", str(root.parts.layout.jobs), "--job", job, "--attempt", "1"]
    words = ["job", "progress", *where, "--note", "half way", "--json"]

    said = root.mam(*words, env={"MAM_FAULT": f"verb@{point}:1:{action}"})

    assert said.code == 1 and said.error["code"] != "internal", said.err
    assert root.mam(*words).code == 0
    noted = 2 if point == "folder.sync" else 1  # there the first one was on disk already
    until(lambda: [event["kind"] for event in root.events(f"jobs/{job}")] == ["started", *["progress"] * noted])
    assert root.mam("job", "cancel", job).code == 0
