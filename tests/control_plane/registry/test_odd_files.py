"""
Files that somebody edited or a crash tore, locks and pids of the dead, other paths to one place, times that jump.

Writers at once, and the database itself: test_transactions.py, test_rebuild.py. A disk that refuses at
each step of delegate, create and the monitor: tests/control_plane/test_faults.py.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from mam.broker import spool
from mam.broker.envelope import keys, topics
from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import BadName
from mam.broker.host import process_identity, rotated_log
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.messaging.published_state import PublishedState
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import monitor
from mam.control_plane.registry import audit
from mam.control_plane.registry.audit import AuditLog
from mam.control_plane.sessions import lifecycle, sessions_yaml
from mam.control_plane.sessions.lookup import UnknownSession
from mam.wrappers.runner.delivery import Ledger
from tests.support import MAM, Root, git, repository, run_mam, until
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile

JOB = "job-00000001"
SURROGATES = b"\xed\xa0\x80"
HOSTILE = b"\xff\xfe\x00 " + SURROGATES + b" \x1b[2J\x1b]0;owned\x07 \xe2\x80\xae desrever\n"
JUNK = ["", "[]", "null", "5", '"text"', "{}", '{"pid": "x"}', "{\x00", '{"job": 5, "attempt": "x"}', "[" * 5000]


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process, to be left alone."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    yield child
    child.kill()
    child.wait()


class TestReusedPids:
    """Each record names a pid that is somebody else's now: another start time, or another machine's boot."""

    def identities(self, pid: int) -> list[dict[str, str]]:
        mine = process_identity.of(pid)
        assert mine is not None
        return [{"start": "1", "boot": mine.boot}, {"start": mine.start, "boot": "another-machine"}]

    @pytest.mark.parametrize("which", [0, 1], ids=["start time", "boot"])
    def test_of_a_monitor(self, root: Root, other: subprocess.Popen[bytes], which: int) -> None:
        root.mam("down")
        state = {"pid": other.pid, "root": str(root.path), "ready": True, **self.identities(other.pid)[which]}
        root.parts.layout.monitor_state.write_text(json.dumps(state))

        assert root.mam("down").code == 0
        assert root.mam("up").code == 0

        assert other.poll() is None
        known = monitor_process.look(root.parts.layout)
        assert known is not None and known.process.pid != other.pid

    @pytest.mark.parametrize("which", [0, 1], ids=["start time", "boot"])
    def test_of_a_runner_and_its_agent(self, desk: Desk, other: subprocess.Popen[bytes], which: int) -> None:
        found = self.identities(other.pid)[which]
        desk.session(pid=other.pid, pid_start=found["start"], agent_pid=other.pid, agent_start=found["start"])
        with desk.mam.registry.transaction() as tx:
            row = tx.session("writer")
            assert row is not None
            tx.put(replace(row, boot_id=found["boot"]))

        for _ in range(2):
            assert lifecycle.stop(desk.mam, "writer").status == "stopped"

        assert other.poll() is None

    def test_of_whoever_left_a_lock_file(self, root: Root, other: subprocess.Popen[bytes]) -> None:
        """Locks are held by descriptors: what stands in their files, and how old they are, says nothing."""
        root.mam("down")
        layout = root.parts.layout
        for path in (layout.monitor_lock, layout.registry_lock, layout.broker / "lock", layout.run / "x.lock"):
            path.write_text(f"{other.pid}\nother-host\n")
            path.chmod(0o600)
        (layout.run_dir("writer")).mkdir(exist_ok=True)
        (layout.run_dir("writer") / "life.lock").write_text(str(other.pid))

        root.agent()

        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0


class TestTornFiles:
    @pytest.mark.parametrize("junk", JUNK)
    def test_a_record_of_a_job_that_is_none_is_a_typed_error(self, desk: Desk, junk: str) -> None:
        desk.session()
        job = desk.job()
        (Path(job.folder) / "job.json").write_text(junk)
        words = ["--registry-dir", str(desk.mam.layout.jobs), "--job", job.id, "--attempt", "1"]

        said = mam(desk, "job", "started", *words)

        assert said.returncode == 2, said.stderr
        assert json.loads(said.stderr)["error"]["code"] == "job_record_missing"

    @pytest.mark.parametrize("junk", JUNK)
    def test_a_note_of_the_open_job_that_is_none_still_gives_an_answer(self, desk: Desk, junk: str) -> None:
        desk.session()
        (desk.mam.layout.run_dir("writer") / "open.json").write_text(junk)

        said = mam(desk, "job", "progress", "--note", "x", MAM_SPOOL=str(desk.mam.layout.run_dir("writer") / "outbox"))

        assert json.loads(said.stderr)["error"]["code"] == "job_not_named"

    @pytest.mark.parametrize("junk", [*JUNK, '{"state": 5, "reason": [], "evidence": null}'])
    def test_a_result_of_a_delivery_that_is_none_is_unknown_and_not_new(self, tmp_path: Path, junk: str) -> None:
        ledger = Ledger(tmp_path)
        ledger.path(JOB, 1).write_text(junk)

        found = ledger.result(JOB, 1)

        assert found is not None and (found.state, found.reason) == ("unknown", "restarted")

    def test_files_of_the_running_parts_may_be_torn_while_a_job_is_delegated(self, root: Root) -> None:
        root.agent()
        run = root.parts.layout.run
        for junk in ("[]", "{\x00"):
            for path in (run / "monitor.json", run / "writer" / "open.json", run / "writer" / "runner.json",
                         run / "gaps.json"):  # fmt: skip
                path.write_text(junk)
            job = root.delegate()
            until(lambda job=job: root.job(job).state == "reported")

        (run / "monitor.json").write_text("{")
        root.ok("down")
        assert monitor_process.look(root.parts.layout) is None and nats_server.running(root.parts.layout.broker) is None

    @pytest.mark.parametrize("junk", ["5", "[]", "null", '"text"', "{", ""])
    def test_a_line_of_the_audit_log_that_is_no_entry_does_not_end_the_monitor(
        self, desk: Desk, tmp_path: Path, junk: str
    ) -> None:
        log = tmp_path / "audit.jsonl"
        export(desk, log)
        whole = log.read_bytes()
        log.write_bytes(whole + b"0" * 64 + b" " + junk.encode() + b"\n")

        export(desk, log)

        assert log.read_bytes() == whole
        assert len(list(tmp_path.glob("audit.jsonl.damaged-*"))) == 1

    @pytest.mark.parametrize(
        "junk", [*JUNK, '{"a": 1, "e": 0, "chain": "x", "end": 5}', '{"a": 9, "e": 9, "chain": "x", "end": -1}']
    )
    def test_a_noted_position_that_does_not_fit_is_not_believed(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, junk: str
    ) -> None:
        monkeypatch.setattr(audit, "NOTE_EVERY_BYTES", 0)
        log = tmp_path / "audit.jsonl"
        export(desk, log)
        audit.position_file(log).write_text(junk)
        before = log.read_bytes()

        export(desk, log)

        assert log.read_bytes() == before

    def test_a_monitor_that_is_one_too_many_never_touches_the_audit_log(self, desk: Desk) -> None:
        log = desk.mam.layout.audit
        with desk.mam.registry.view() as view:
            AuditLog(log).export(view)
        log.write_bytes(log.read_bytes() + b"a line that the first one is just wri")
        before = log.read_bytes()

        with FileLock(desk.mam.layout.monitor_lock), pytest.raises(monitor.MonitorRuns):
            monitor.Monitor(desk.mam).run()

        assert log.read_bytes() == before and not list(log.parent.glob("audit.jsonl.damaged-*"))

    def test_a_log_goes_on_from_its_noted_position_unless_it_was_cut_or_edited_there(
        self, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit, "NOTE_EVERY_BYTES", 0)
        log = tmp_path / "audit.jsonl"
        desk.session()
        export(desk, log)
        first, rest = log.read_bytes().split(b"\n", 1)
        whole = log.read_bytes()

        log.write_bytes(b"#" * len(first) + b"\n" + rest)  # only a reader from the beginning sees this
        export(desk, log)
        assert log.read_bytes().endswith(rest)

        log.write_bytes(whole[:-1])
        export(desk, log)
        assert log.read_bytes() == whole

    @pytest.mark.parametrize("content", [b"", b"\n", b"jobs/" + JOB.encode(), HOSTILE, b"x" * 12_000_000])
    def test_a_torn_or_foreign_event_in_a_spool_holds_up_no_other(self, desk: Desk, content: bytes) -> None:
        desk.session()
        desk.job()
        outbox = desk.mam.layout.run_dir("writer") / "outbox"
        (outbox / f"{1:013d}-{'a' * 32}.event").write_bytes(content)
        spool.write(outbox, "b" * 32, topics.job(JOB), desk.wire(JOB, "started"))

        SpoolSweep(desk.mam.layout.run, desk.inbox).once(live=set())

        assert desk.row(JOB).state == "running"
        assert [entry.id for entry in spool.entries(outbox)] == ["a" * 32]

    def test_what_is_no_file_in_a_spool_holds_up_nobody(self, desk: Desk) -> None:
        desk.session()
        desk.job()
        outbox = desk.mam.layout.run_dir("writer") / "outbox"
        os.mkfifo(outbox / f"{1:013d}-{'a' * 32}.event")
        (outbox / f"{1:013d}-{'c' * 32}.event").mkdir()
        (outbox / f"{1:013d}-{'d' * 32}.event").symlink_to("/dev/zero")
        (outbox / f"{1:013d}-{'e' * 32}.event").symlink_to(outbox / "nowhere")
        spool.write(outbox, "b" * 32, topics.job(JOB), desk.wire(JOB, "started"))

        SpoolSweep(desk.mam.layout.run, desk.inbox).once(live=set())

        assert desk.row(JOB).state == "running"


def mam(desk: Desk, *words: str, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [MAM, *words, "--json"], cwd=desk.mam.layout.root, env={**os.environ, **environ}, capture_output=True
    )


def export(desk: Desk, log: Path) -> None:
    with desk.mam.registry.view() as view:
        AuditLog(log).export(view)


class TestPaths:
    @pytest.fixture
    def link(self, root: Root, tmp_path: Path) -> Path:
        """Another path to the same control root."""
        link = tmp_path / "link"
        link.symlink_to(root.path)
        return link

    def test_one_control_root_by_two_paths_has_one_monitor(self, root: Root, link: Path) -> None:
        assert root.mam("up").code == 0
        known = monitor_process.look(root.parts.layout)
        assert known is not None

        up = root.mam("up", "--root", str(link), "--json")

        assert (up.code, up.json["monitor_pid"]) == (0, known.process.pid)
        down = root.mam("down", "--root", str(link), "--json")
        assert (down.code, down.json["monitor"]) == (0, True)
        assert not process_identity.alive(known.process)

    def test_an_agent_that_was_made_by_one_path_is_served_by_the_other(self, root: Root, link: Path) -> None:
        root.agent()
        by_link = {"WORKSPACE_ROOT": str(link)}

        job = root.mam("job", "delegate", "--to", "writer", "--brief", "README", "--json", env=by_link).json["id"]
        assert root.mam("job", "wait", job, "--timeout", "30", env=by_link).code == 0
        for verb in ("stop", "resume", "stop"):
            said = root.mam("agent", verb, "writer", env=by_link)
            assert said.code == 0, said.err

    def test_a_mam_folder_may_be_a_link_and_git_leaves_it_alone(self, make_root: Callable[..., Root]) -> None:
        root = make_root()
        root.mam("down")
        elsewhere = root.path.parent / "big disk"
        (root.path / ".mam").rename(elsewhere)
        (root.path / ".mam").symlink_to(elsewhere)
        assert root.mam("init").code == 0

        root.agent()
        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0
        assert git(root.path, "status", "--porcelain") == ""
        git(root.path, "clean", "-fd")
        assert (root.path / ".mam" / "registry.db").exists()

    def test_a_path_that_is_too_deep_for_the_database_is_refused_before_anything_is_made(self, tmp_path: Path) -> None:
        deep = repository(tmp_path / "/".join(["d" * 200] * 3))

        said = run_mam("init", "--json", cwd=deep)

        assert (said.code, said.error["code"]) == (1, "file_refused")
        assert not (deep / ".mam").exists()

    def test_jobs_and_logs_may_lie_on_links(self, root: Root, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        (tmp_path / "jobs").symlink_to(tmp_path / "there")
        root.env["MAM_JOBS_DIR"] = str(tmp_path / "jobs")
        root.agent()

        job = root.delegate()

        assert root.mam("job", "wait", job, "--timeout", "30").code == 0
        assert (tmp_path / "there" / job / "writer-reports" / "report-final.md").exists()
        assert root.mam("agent", "stop", "writer", env={"MAM_JOBS_DIR": str(tmp_path / "there")}).code == 0

    def test_a_job_id_that_is_taken_leaves_the_first_job_whole(self, root: Root) -> None:
        root.agent()
        root.delegate("writer", "first", "--id", JOB, "--wait")
        folder = root.path / ".mam" / "jobs" / JOB
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

        said = root.mam("job", "delegate", "--to", "writer", "--id", JOB, "--brief", "README", "--json")

        assert (said.code, said.error["code"]) == (1, "job_exists")
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
        assert root.mam("verify", JOB).code == 0

    def test_a_key_that_a_crash_left_behind_does_not_take_a_job_id_for_ever(self, desk: Desk) -> None:
        desk.session()
        keys.create(desk.mam.layout.job_key(JOB))

        job = desk.job(job_id=JOB)

        assert desk.take(JOB, desk.report(job)) == ["accepted"]


class TestTimes:
    def test_a_card_changes_also_after_the_clock_was_set_back(self, desk: Desk) -> None:
        desk.session()
        job = desk.job()
        shown: list[str] = []

        class Paper:
            def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
                shown.append(topic)
                return True

        cards = PublishedState(b"k" * 32, desk.keyring, "fp")
        with desk.mam.registry.transaction() as tx:
            tx.put(replace(job, updated_at=now_ms() + 600_000))  # written while the clock was ahead
        with desk.mam.registry.view() as view:
            cards.refresh(Paper(), view)  # type: ignore[arg-type]
        shown.clear()

        desk.take(JOB, desk.wire(JOB, "started"))
        with desk.mam.registry.view() as view:
            cards.refresh(Paper(), view)  # type: ignore[arg-type]

        assert shown == [topics.job_state(JOB)]

    @pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns", "No/Where"])
    def test_another_time_zone_at_every_step_changes_no_age_and_no_limit(self, root: Root, zone: str) -> None:
        root.mam("down")
        root.mam("up", env={"TZ": zone})
        root.agent()

        job = root.mam(
            *("job", "delegate", "--to", "writer", "--brief", "README", "--json", "--limit", "60"),
            env={"TZ": "Asia/Seoul"},
        ).json["id"]

        assert root.mam("job", "wait", job, "--timeout", "30", env={"TZ": "UTC"}).code == 0
        why = root.mam("why", job, env={"TZ": zone}).out
        assert " s ago)" in why.splitlines()[0]


class TestForeignText:
    def test_a_report_of_any_bytes_is_kept_as_it_is_and_shown_safely(self, root: Root) -> None:
        root.agent("writer", {"started": {}}, {"hang": {}})
        job = root.delegate()
        until(lambda: root.job(job).state == "running")
        path = root.path / "report.md"
        path.write_bytes(HOSTILE)
        words = ["--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]

        summary = "\x1b[2J\u202e\u2028 12\x07"
        said = root.mam("job", "report", *words, "--result", "done", "--file", str(path), "--summary", summary)

        assert said.code == 0, said.err
        until(lambda: root.job(job).state == "reported")
        assert Path(root.job(job).report_path).read_bytes() == HOSTILE
        assert root.mam("verify", job).code == 0
        for verb in (["tail", job, "--no-follow"], ["why", job], ["job", "show", job], ["job", "list"]):
            shown = root.mam(*verb).out
            assert not {"\x1b", "\u202e", "\x07"} & set(shown), verb

    def test_a_line_of_12_mb_in_a_report_is_refused_by_name_and_one_of_5_mb_is_not(self, root: Root) -> None:
        root.agent("writer", {"started": {}}, {"hang": {}})
        job = root.delegate()
        until(lambda: root.job(job).state == "running")
        path = root.path / "report.md"
        words = ["job", "report", "--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
        words += ["--result", "done", "--file", str(path), "--json"]

        path.write_bytes(b"x" * 12_000_000)
        long = root.mam(*words)
        path.write_bytes(b"x" * 5_000_000)

        assert (long.code, long.error["code"]) == (1, "file_refused") and "5 MiB" in long.error["message"]
        assert root.mam(*words).code == 0
        until(lambda: root.job(job).state == "reported")
        assert root.job(job).result == "done"

    def test_words_that_are_no_utf8_are_refused_and_leave_nothing(self, root: Root) -> None:
        odd = os.fsdecode(b"caf\xe9")
        root.agent("writer", {"started": {}}, {"hang": {}})
        for words in (
            ["job", "delegate", "--to", "writer", "--brief", "README", "--title", odd],
            ["job", "cancel", JOB, "--reason", odd],
            ["agent", "send", "writer", odd],
            ["agent", "create", "second", "--agent", "scripted", "--role", odd],
            ["agent", "create", "second", "--agent", "command", "--", "echo", odd],
        ):
            said = root.mam(*words, "--json")
            assert (said.code, said.error["code"]) == (2, "usage"), words
        assert root.ok("job", "list") == [] and len(root.ok("agent", "list")) == 1

    def test_a_title_shows_what_it_says_and_nothing_else(self, root: Root) -> None:
        root.agent("writer", {"hang": {}})
        job = root.delegate("writer", "x", "--title", "\u202egnp.exe\u2066 \x1b]0;owned\x07 \u200f" + "long " * 9000)

        assert root.job(job).title.startswith("\u202egnp.exe")
        assert len(root.job(job).title) <= 120
        for verb in (["status"], ["job", "list"], ["why", job], ["job", "show", job]):
            assert not {"\x1b", "\u202e", "\u2066", "\u200f", "\x07"} & set(root.mam(*verb).out), verb


HEAD = 'generation: {generation}\nfingerprint: "{fingerprint}"\nsessions:\n'
ENTRY = """- name: {name}
  agent: "scripted"
  role: {role}
  status: "running"
  conversation: {conversation}
  pane: {{"mux": "headless", "server": {server}, "id": "p1", "cwd": {cwd}}}
"""


class TestHandEditedSessions:
    """agent-sessions.yaml as people write it: YAML reads `no` as false and 0123 as 83."""

    def text(self, desk: Desk, *, head: str = HEAD, entry: str = ENTRY, **changes: str) -> str:
        with desk.mam.registry.view() as view:
            row, generation = view.session("writer"), sessions_yaml.generation(view)
        assert row is not None
        quoted = {"server": json.dumps(row.mux_server), "cwd": json.dumps(row.cwd)}
        fields = {"name": '"writer"', "role": '"creator"', "conversation": "null", **quoted, **changes}
        facts = {"generation": generation, "fingerprint": desk.mam.fingerprint}
        return head.format(**{**facts, **changes}) + entry.format(**fields)

    def take(self, desk: Desk, text: str) -> list[str]:
        path = desk.mam.layout.root / "edited.yaml"
        path.write_text(text, "utf-8")
        return sessions_yaml.take(desk.mam, path)

    def test_an_edited_role_is_taken(self, desk: Desk) -> None:
        desk.session()

        assert self.take(desk, self.text(desk, role="planner")) == ["writer"]

    @pytest.mark.parametrize("value", ["no", "0123", "1e3", "~", "2026-11-30", "12:30:45", "[a]", "0x1F", ".inf"])
    @pytest.mark.parametrize("member", ["name", "role", "conversation"])
    def test_what_yaml_reads_as_another_thing_is_refused(self, desk: Desk, member: str, value: str) -> None:
        before = desk.session(conversation="0123" if member == "conversation" else None)
        if (member, value) == ("conversation", "~"):
            value = "!!null"

        with pytest.raises((sessions_yaml.ImportRefused, UnknownSession, BadName)):
            self.take(desk, self.text(desk, **{member: value}))

        with desk.mam.registry.view() as view:
            assert view.session("writer") == before

    @pytest.mark.parametrize("identity", ["no", "0123", "1e3", "~", "null", "2026-11-30", " ", "a: b", "#", "%"])
    def test_an_id_that_looks_like_another_thing_is_printed_and_read_back_as_itself(
        self, desk: Desk, identity: str
    ) -> None:
        desk.session("no", conversation=identity)
        sessions_yaml.write(desk.mam)

        assert sessions_yaml.take(desk.mam, desk.mam.layout.sessions_yaml) == []
        text = desk.mam.layout.sessions_yaml.read_text("utf-8").replace('"creator"', '"planner"')
        assert self.take(desk, text) == ["no"]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda text: text.replace("  role:", "  role: x\n  role:"),
            lambda text: text.replace('"mux":', '"id": "p9", "mux":'),
            lambda text: text + text[text.index("sessions:") :],
            lambda text: text.replace('"creator"', '"creator"\n  extra: 1'),
            lambda text: "x: &a [z]\n" + text,
            lambda text: text.replace('role: "creator"', "<<: {role: planner}"),
            lambda text: text.replace('"creator"', "!!python/object/apply:os.system ['true']"),
            lambda text: text.replace('"creator"', "&a [*a]"),
            lambda text: text.replace('"creator"', '"pla\\0nner"'),
            lambda text: text.replace("creator", "pla\x00nner"),
            lambda text: text[: len(text) // 2],
            lambda text: text.replace("generation: ", "generation: -"),
            lambda text: text.replace("generation: ", "generation: 1_"),
            lambda text: f"---\n{text}---\n{text}",
            lambda text: "\t" + text,
            lambda _: "",
            lambda _: "- - - -",
            lambda _: "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nsessions: *c",
            lambda _: "{" * 3000,
        ],
    )
    def test_what_is_not_plainly_the_file_with_another_role_is_refused(
        self, desk: Desk, spoil: Callable[[str], str]
    ) -> None:
        before = desk.session()

        with pytest.raises((sessions_yaml.ImportRefused, sessions_yaml.StaleImport, BadName)):
            self.take(desk, spoil(self.text(desk)))

        with desk.mam.registry.view() as view:
            assert view.session("writer") == before

    def test_a_session_that_stands_twice_is_refused(self, desk: Desk) -> None:
        before = desk.session()
        text = self.text(desk, role="planner")

        with pytest.raises(sessions_yaml.ImportRefused):
            self.take(desk, text + text[text.index("- name") :].replace("planner", "reviewer"))

        with desk.mam.registry.view() as view:
            assert view.session("writer") == before


class TestLogs:
    def test_the_monitors_own_log_begins_anew_when_it_is_large(self, root: Root) -> None:
        root.mam("down")
        log = root.path / ".mam" / "logs" / "monitor.log"
        log.parent.mkdir(exist_ok=True)
        log.write_bytes(b"x" * (rotated_log.LIMIT_BYTES + 1))
        with log.open("ab") as file:  # as of a monitor that has run for long
            child = subprocess.Popen(
                [MAM, "monitor", "run"], cwd=root.path, env={**os.environ, **root.env}, stdout=file, stderr=file
            )
        try:
            until(lambda: log.with_name("monitor.log.1").exists() and log.exists(), what="the log was set aside")
            known = until(lambda: monitor_process.look(root.parts.layout))
            assert known.process.pid == child.pid
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(120)
        assert b"ending" in log.read_bytes()

    def test_what_is_started_finds_no_large_log_of_its_predecessors(self, root: Root) -> None:
        root.mam("down")
        layout = root.parts.layout
        for log in (layout.logs / "monitor.log", layout.broker / "nats.log"):
            log.parent.mkdir(exist_ok=True)
            log.write_bytes(b"x" * (rotated_log.LIMIT_BYTES + 1))

        assert root.mam("up").code == 0

        for log in (layout.logs / "monitor.log", layout.broker / "nats.log"):
            assert log.stat().st_size < rotated_log.LIMIT_BYTES and log.with_name(f"{log.name}.1").exists()

    def test_output_that_goes_elsewhere_is_left_alone(self, tmp_path: Path) -> None:
        log = tmp_path / "monitor.log"
        log.write_bytes(b"x" * 100)
        program = (
            "import sys; from pathlib import Path; from mam.broker.host import rotated_log as logs;"
            "logs.renew_own_output(Path(sys.argv[1]), limit_bytes=10); print('still here')"
        )

        done = subprocess.run([sys.executable, "-c", program, str(log)], capture_output=True, text=True)

        assert done.stdout == "still here\n" and log.read_bytes() == b"x" * 100


def mounted(*words: str) -> None:
    """Mount a disk of the test's own. A folder in which something is being opened is busy for a moment."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")

    def tried() -> bool:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        if done.returncode != 0:
            subprocess.run(["umount", "-l", words[-1]], stderr=-3)  # what a bind without its `ro` left
            if "busy" not in done.stderr:
                pytest.skip(f"no disk may be mounted here: {done.stderr}")
        return done.returncode == 0

    until(tried, what="the disk is mounted")


class TestDisks:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Root]:
        """A control root whose .mam is a disk of 32 MB."""
        root = Root(tmp_path / "repo", mux="headless")
        disk = repository(root.path) / ".mam"
        disk.mkdir(mode=0o700)
        mounted("-t", "tmpfs", "-o", "size=32m,mode=700", "tmpfs", str(disk))
        try:
            assert root.mam("init").code == 0
            yield root
        finally:
            (disk / "fill").unlink(missing_ok=True)
            root.clean()
            subprocess.run(["umount", "-l", str(disk)], check=True)

    @pytest.fixture
    def read_only(self, root: Root) -> Iterator[Root]:
        """A control root with a running job, on a disk that was just mounted read-only."""
        root.agent("writer", {"started": {}}, {"hang": {}})
        job = root.delegate("writer", "x", "--id", JOB)
        until(lambda: root.job(job).state == "running")
        disk = str(root.path / ".mam")
        mounted("-o", "bind,ro", disk, disk)
        yield root
        subprocess.run(["umount", "-l", disk], check=True)

    def fill(self, root: Root) -> Path:
        path = root.path / ".mam" / "fill"
        with path.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue
        return path

    def report(self, root: Root, job: str) -> list[str]:
        path = root.path.parent / "report.md"
        path.write_text("done all the same\n")
        words = ["job", "report", "--registry-dir", str(root.path / ".mam" / "jobs"), "--job", job, "--attempt", "1"]
        return [*words, "--result", "done", "--file", str(path), "--json"]

    def test_a_full_disk_is_said_leaves_nothing_half_done_and_all_goes_on_when_there_is_room(self, small: Root) -> None:
        small.agent("writer", {"started": {}}, {"hang": {}})
        small.agent("second")
        job = small.delegate()
        until(lambda: small.job(job).state == "running")
        outbox = small.parts.layout.run_dir("writer") / "outbox"
        until(lambda: not any(outbox.iterdir()), what="the spool is settled")
        monitor = monitor_process.look(small.parts.layout)
        before = names(small.parts.layout.jobs), names(small.parts.layout.secrets)

        filler = self.fill(small)
        told = small.mam(*self.report(small, job))
        new = small.mam("job", "delegate", "--to", "second", "--brief", "README", "--json")

        assert (told.code, told.error["code"]) in ((1, "spool_unwritable"), (1, "file_refused"))
        assert new.code == 1 and "No space left" in new.error["message"] + str(new.error["data"])
        assert (names(small.parts.layout.jobs), names(small.parts.layout.secrets)) == before
        assert names(outbox) == []
        assert small.mam("why", job).code == 0 and small.mam("status").code == 0
        filler.unlink()
        assert small.mam(*self.report(small, job)).code == 0
        until(lambda: small.job(job).state == "reported")
        assert small.mam("job", "wait", small.delegate("second"), "--timeout", "90", timeout_s=100).code == 0
        assert monitor_process.look(small.parts.layout) == monitor
        assert "Traceback" not in small.ok("agent", "show", "writer")

    def test_a_disk_that_is_full_when_an_agent_ends_does_not_hide_its_end(self, small: Root) -> None:
        small.agent("writer", {"started": {}}, {"hang": {}})
        job = small.delegate()
        until(lambda: small.job(job).state == "running")

        filler = self.fill(small)
        os.kill(small.session("writer").agent_pid, signal.SIGKILL)
        until(lambda: not process_identity.alive(process_identity.ProcessId(small.session("writer").pid, "", "")))
        until(lambda: process_identity.start_time(small.session("writer").pid) is None, what="the runner ended")
        filler.unlink()

        until(lambda: small.session("writer").status == "ended")
        until(lambda: small.job(job).state == "lost")

    @pytest.mark.parametrize("action", ["ENOSPC", "EIO"])
    @pytest.mark.parametrize("point", ["spool.fsync", "spool.rename"])
    def test_a_verb_that_the_disk_refuses_says_so_leaves_nothing_and_works_the_next_time(
        self, desk: Desk, point: str, action: str
    ) -> None:
        desk.session()
        job = desk.job()
        outbox = desk.mam.layout.run_dir("writer") / "outbox"
        words = ["job", "started", "--registry-dir", str(desk.mam.layout.jobs), "--job", job.id, "--attempt", "1"]

        said = mam(desk, *words, MAM_FAULT=f"verb@{point}:1:{action}")

        assert said.returncode == 1
        assert json.loads(said.stderr)["error"]["code"] == "spool_unwritable"
        assert names(outbox) == []
        assert mam(desk, *words).returncode == 0 and len(names(outbox)) == 1

    @pytest.mark.parametrize("point", ["spool.fsync", "spool.rename", "bus.publish", "delivery.conclude"])
    def test_a_runner_whose_disk_refuses_once_goes_on(self, root: Root, point: str) -> None:
        root.env["MAM_FAULT"] = f"runner@{point}:1:ENOSPC,runner@{point}:3:EIO"
        root.agent()
        del root.env["MAM_FAULT"]

        assert root.mam("job", "wait", root.delegate(), "--timeout", "60").code == 0

    def test_on_a_read_only_disk_everybody_says_so_and_what_can_be_read_is_shown(self, read_only: Root) -> None:
        for line in ("status", "agent list", "job list", f"job show {JOB}", f"why {JOB}", f"verify {JOB}"):
            assert read_only.mam(*line.split()).code == 0, line
        for words in (
            ["init"],
            ["agent", "create", "second", "--agent", "scripted"],
            ["agent", "stop", "writer", "--force"],
            ["agent", "send", "writer", "x"],
            ["job", "cancel", JOB],
            ["registry", "export"],
            self.report(read_only, JOB)[:-1],
        ):
            said = read_only.mam(*words, "--json")
            assert said.code == 1, words
            assert said.error["code"] != "internal"
            assert "ead-only" in said.error["message"], said.error

        found = read_only.mam("doctor", "--json").json["findings"]
        assert any(f["what"] == "control root" and "read-only" in f["detail"] for f in found)

    def test_after_a_read_only_spell_the_same_processes_finish_the_job(self, root: Root, read_only: Root) -> None:
        monitor = monitor_process.look(root.parts.layout)
        assert root.mam(*self.report(root, JOB)).code == 1

        subprocess.run(["mount", "-o", "remount,rw,bind", str(root.path / ".mam")], check=True)

        assert root.mam(*self.report(root, JOB)).code == 0
        until(lambda: root.job(JOB).state == "reported")
        assert monitor_process.look(root.parts.layout) == monitor


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
