"""`mam verify`: check every stored event of a job again, from the exact bytes that came over the wire."""

import hashlib
import json
from typing import NamedTuple

from mam.broker.envelope import events as ev
from mam.broker.envelope import topics
from mam.broker.envelope.signing import USE_JOB, EventRefused, unseal
from mam.control_plane.config.layout import Layout
from mam.control_plane.control_root.keyring import Keyring
from mam.control_plane.jobs.jobs import JobArchived, need
from mam.control_plane.jobs.reports import file_sha256, find_report
from mam.control_plane.registry.queries import View, pages
from mam.control_plane.registry.records import Job


class Check(NamedTuple):
    what: str
    ok: bool
    detail: str


class Verified(NamedTuple):
    checks: list[Check]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


def verify(layout: Layout, view: View, job_id: str) -> Verified:
    """
    Re-check signatures, bindings and the report of one job.

    Raises UnknownJob, and JobArchived for one whose key is destroyed.
    """
    job = need(view, job_id)
    if job.archived_at is not None:
        raise JobArchived(job=job_id, folder=job.folder)
    keyring = Keyring(layout).job(job_id)
    topic = topics.job(job_id)
    checks = []
    reports = []
    for event in pages(view, topic):
        try:
            if hashlib.sha256(event["wire"]).hexdigest() != event["wire_sha256"]:
                raise EventRefused(outcome="altered", detail="the stored bytes are not those that arrived")
            body = unseal(event["wire"], keyring=keyring, use=USE_JOB, scope=job_id, topic=topic)
            frame, data = ev.check(ev.JobEvent, ev.JOB_DATA, body)
            slot = (frame.id, frame.kind, frame.attempt, frame.producer, frame.seq)
            if slot != tuple(event[name] for name in ("id", "kind", "attempt", "producer", "slot")):
                raise EventRefused(outcome="altered", detail="the row does not say what the event says")
            if isinstance(data, ev.Report) and frame.attempt == job.attempt and event["outcome"] == "accepted":
                reports.append(data)
            checks.append(Check(f"{event['seq']} {frame.kind}", True, event["outcome"]))
        except EventRefused as error:
            checks.append(Check(f"{event['seq']} {event['kind']}", False, str(error)))
    if job.state == "reported":
        checks.append(_report_check(job, reports))
    if not checks:
        checks.append(Check("events", True, "none yet"))
    return Verified(checks)


def verify_loop(layout: Layout, view: View, loop_id: str) -> Verified:
    """
    Re-check every job of a loop, and that each verdict of a round was given for the round's own commit.

    Raises JobArchived where a key is destroyed: what is left would be no proof of the loop.
    """
    loop = view.loop(loop_id)
    assert loop is not None
    heads = {each["number"]: each["head"] for each in json.loads(loop.checkpoint)["rounds"]}
    checks = []
    for job in view.rows(Job, "WHERE loop = ? ORDER BY created_at", (loop_id,)):
        bad = [check for check in verify(layout, view, job.id).checks if not check.ok]
        checks.append(Check(job.id, not bad, "; ".join(check.detail for check in bad) or job.state))
        if job.verdict is not None:
            fits = job.seen_sha == job.head_sha == heads.get(job.round or 0)
            checks.append(Check(f"{job.id} {job.verdict}", fits, f"given for {job.seen_sha}"))
    return Verified(checks or [Check("jobs", True, "none yet")])


def _report_check(job: Job, reports: list[ev.Report]) -> Check:
    if job.detail == "report_altered":
        return Check("report", False, "it was altered after it was signed")
    if not reports:
        return Check("report", False, "no signed report of the current attempt is stored")
    signed = reports[0]
    if (signed.result, signed.verdict, signed.report_sha256) != (job.result, job.verdict, job.report_sha256):
        return Check("report", False, "the job's row does not say what the report says")
    path = find_report(job)
    if path is None:
        return Check("report", False, f"{job.report_path} is missing")
    if file_sha256(path) != signed.report_sha256:
        return Check("report", False, f"{path} is not the file that was signed")
    return Check("report", True, f"sha256 {signed.report_sha256[:12]}…")
