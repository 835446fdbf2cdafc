"""Jobs that wait, and those who wait for them, while monitors come and go."""

from mam.wrappers.git import command as git
from tests.support import Root, until
from tests.support.beside import HANG, begin, has_open

CLOSED = {"MAM_NO_SUBSCRIBER_DAEMON": "1"}


def test_the_report_of_an_old_attempt_never_replaces_the_new_one(root: Root) -> None:
    root.agent("slow", *HANG)
    root.agent("quick")
    job = root.delegate("slow", "do it", "--limit", "2")
    root.mam("job", "wait", job)
    root.ok("job", "retry", job, "--to", "quick")
    assert root.mam("job", "wait", job, "--timeout", "30").code == 0

    late = root.path / "late.md"
    late.write_text("from the first attempt")
    words = ["--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
    root.mam("job", "report", *words, "--result", "done", "--file", str(late))

    assert root.mam("verify", job).code == 0


def test_a_wait_outlives_its_monitor(root: Root) -> None:
    gate = root.gate()
    root.agent("writer", {"started": {}}, gate.step, {"report": {"text": "done"}})
    job = root.delegate()
    waiting = begin(root, "job", "wait", job)
    until(lambda: root.job(job).state == "running" and has_open(waiting, "registry.db"))

    root.kill_monitor()
    gate.open()

    assert waiting.wait(120) == 0


def test_waiting_for_no_time_at_all_is_a_look(root: Root) -> None:
    root.agent("writer", *HANG)
    job = root.delegate()

    assert root.mam("job", "wait", job, "--timeout", "0").code == 4


def test_a_job_that_waited_long_for_a_monitor_is_sent_all_the_same(root: Root) -> None:
    root.agent()
    root.mam("down")
    words = ["job", "delegate", "--to", "writer", "--brief", "README", "--deliver-within", "6", "--json"]
    job = root.mam(*words, env={"MAM_NO_SUBSCRIBER_DAEMON": "1"}).json["id"]
    with root.registry.transaction() as tx:  # as if it had lain there for longer than its limit and a half
        for table in ("jobs", "attempts", "outbox"):
            tx.connection.execute(f"UPDATE {table} SET created_at = created_at - 15000")

    assert root.mam("job", "wait", job, "--timeout", "30").code == 0


def test_a_job_that_is_kept_is_said_to_be_kept_where_no_monitor_starts(root: Root) -> None:
    root.agent()
    root.mam("down")
    lock = root.path / ".mam" / "monitor.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()

    said = root.mam("job", "delegate", "--to", "writer", "--brief", "README", "--json")

    lock.rmdir()
    assert said.code == 0, said.err
    assert root.job(said.json["id"]).state == "queued"
    assert "kept and will be sent" in said.err


def test_verbs_that_would_wait_for_ever_without_a_monitor_say_so_and_name_what_they_keep(root: Root) -> None:
    root.agent()
    root.agent("rev", role="reviewer")
    tree = root.path.parent / "work"
    git.act(root.path, "worktree", "add", "-q", "-b", "work", str(tree))
    (tree / "new").write_text("new")
    root.mam("down")
    job = root.mam("job", "delegate", "--to", "writer", "--brief", "README", "--json", env=CLOSED).json["id"]
    loop = ["loop", "run", "--task", "README", "--worktree", str(tree), "--review-only"]

    said = {
        job: root.mam("job", "wait", job, "--json", env=CLOSED),
        "send-": root.mam("agent", "send", "writer", "hello", "--json", env=CLOSED),
        "loop-12345678": root.mam(*loop, "--reviewers", "rev", "--id", "loop-12345678", "--json", env=CLOSED),
    }

    assert {kept: (each.code, each.error["code"]) for kept, each in said.items()} == dict.fromkeys(
        said, (4, "no_monitor")
    )
    assert all(kept in each.error["message"] for kept, each in said.items())
