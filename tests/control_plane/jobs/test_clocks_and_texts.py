"""Clocks that jump, and reports and titles of any bytes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mam.broker.envelope import topics
from mam.broker.envelope.payloads import now_ms
from mam.control_plane.messaging.published_state import PublishedState
from tests.support import Root, until
from tests.support.bystander import HOSTILE, JOB
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile


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
