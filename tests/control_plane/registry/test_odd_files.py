"""Files that a crash tore or that are none: never a crash, and nothing else is held up."""

import json
import os
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from mam.broker import spool
from mam.broker.envelope import topics
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root import monitor_process
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import monitor
from mam.control_plane.registry import audit
from mam.control_plane.registry.audit import AuditLog
from mam.wrappers.runner.ledger import Ledger
from tests.support import Root, until
from tests.support.bystander import HOSTILE, JOB, export, mam
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile


JUNK = ["", "[]", "null", "5", '"text"', "{}", '{"pid": "x"}', "{\x00", '{"job": 5, "attempt": "x"}', "[" * 5000]


def is_reported(root: Root, job: str) -> bool:
    return bool(root.job(job).state == "reported")


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
            until(partial(is_reported, root, job))

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
