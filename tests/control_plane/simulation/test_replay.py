"""Recorded events, played in any order and any number of times, end as they were recorded."""

from pathlib import Path

import pytest

from mam.broker.errors import FileRefused
from mam.control_plane.jobs import jobs
from mam.control_plane.simulation import replay
from tests.support.desk import Desk


@pytest.fixture
def recorded(desk: Desk, tmp_path: Path) -> Path:
    for number, verdict in ((1, "pass"), (2, "not_pass"), (3, None)):
        name, job_id = f"agent-{number}", f"job-0000000{number}"
        desk.session(name)
        job = desk.job(name, job_id)
        events = [desk.wire(job.id, "started"), desk.wire(job.id, "progress", {"note": "at it"})]
        if verdict is not None:
            events.append(desk.report(job, verdict=verdict))
        desk.take(job.id, *events)
    jobs.cancel(desk.mam, "job-00000003")
    path = tmp_path / "events.jsonl"
    with desk.mam.registry.view() as view:
        lines = replay.export(view, ["job-00000001", "job-00000002", "job-00000003"])
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize("seed", range(20))
def test_every_order_ends_as_it_was_recorded(desk: Desk, recorded: Path, seed: int) -> None:
    played = replay.play(desk.mam.layout, replay.read(recorded), seed=seed, duplicate=0.5, delay=0.5)

    assert [each.same for each in played] == [True, True, True]
    assert [each.counted for each in played] == [3, 3, 2]
    assert sum(each.delivered for each in played) > 8


def test_jobs_that_one_agent_did_one_after_the_other_are_played_again_and_a_cancelled_one_stays_so(
    desk: Desk, tmp_path: Path
) -> None:
    desk.session("writer")
    names = ["job-00000001", "job-00000002", "job-00000003"]
    for name in names:
        job = desk.job("writer", name)
        desk.take(name, desk.wire(name, "started"))
        if name == names[1]:
            jobs.cancel(desk.mam, name)
        assert desk.take(name, desk.report(job, verdict="pass")) == ["late" if name == names[1] else "accepted"]
    path = tmp_path / "events.jsonl"
    with desk.mam.registry.view() as view:
        path.write_text("".join(f"{line}\n" for line in replay.export(view, names)), "utf-8")

    for seed in range(10):
        played = replay.play(desk.mam.layout, replay.read(path), seed=seed, duplicate=0.5, delay=0.5)
        assert [each.same for each in played] == [True, True, True]
    assert [each.recorded.split()[0] for each in played] == ["reported", "not", "reported"]


def test_a_replay_touches_nothing_of_the_control_root(desk: Desk, recorded: Path) -> None:
    before = sorted((str(path), path.stat().st_mtime_ns) for path in desk.mam.layout.mam.rglob("*") if path.is_file())

    replay.play(desk.mam.layout, replay.read(recorded), seed=1, duplicate=0.3, delay=0.3)

    after = sorted((str(path), path.stat().st_mtime_ns) for path in desk.mam.layout.mam.rglob("*") if path.is_file())
    assert after == before


def test_a_difference_is_seen(desk: Desk, recorded: Path) -> None:
    text = recorded.read_text("utf-8").replace('"verdict": "pass"', '"verdict": "not_pass"')
    recorded.write_text(text, "utf-8")

    played = replay.play(desk.mam.layout, replay.read(recorded), seed=1, duplicate=0.0, delay=0.0)

    assert [each.same for each in played] == [False, True, True]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        '{"format": "mam-events/1"}\n',
        "[]\n",
        "no json\n",
        '{"format": "other"}\n',
        '{"format": "mam-events/1"}\n{"of": "x"}\n',
    ],
)
def test_a_file_that_is_no_export_is_named_with_its_line(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(bad, "utf-8")
    with pytest.raises(FileRefused, match=r"bad\.jsonl:\d"):
        replay.read(path)
