"""Keys in memory follow the files, and passwords are written once and whole."""

from mam.broker.envelope import keys
from mam.control_plane.jobs import jobs
from tests.support.desk import Desk
from tests.support.paper_bus import EVENTS


def test_a_key_that_was_destroyed_or_made_anew_is_not_remembered(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    extra = desk.wire(job.id, "progress", {"note": "x"})
    desk.take(job.id, desk.wire(job.id, "started"), desk.report(job))
    desk.settle([(EVENTS, desk.runtime("writer", "signal", {"name": "turn_ended"}))])

    jobs.archive(desk.mam, job.id)
    path = desk.mam.layout.session_key("writer")
    path.unlink()
    keys.create(path)

    assert desk.take(job.id, extra) == ["unknown_job"]
    again = desk.settle([(EVENTS, desk.runtime("writer", "signal", {"name": "turn_ended"}))])
    assert again[0].outcome == "accepted"
