"""The jobs of a loop: one for the creator and one for each reviewer a round, each with a name of its own."""

import hashlib
import re
import shutil
from pathlib import Path

from mam.broker.envelope.payloads import now_ms
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import reports
from mam.control_plane.jobs.delegate import LoopPart
from mam.control_plane.jobs.reports import file_sha256, find_report
from mam.control_plane.loops import briefs as loop_briefs
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import review_trees
from mam.control_plane.loops.briefs import Change, Remarks, WorkPlace
from mam.control_plane.loops.state import Ask, LoopState, Reviewed, Round, Work, WorkEnded
from mam.control_plane.registry.records import OPEN, Job, Loop, StepMark
from mam.wrappers.git import command as git
from mam.wrappers.git import snapshot
from mam.wrappers.git.snapshot import CapturedCommit

ID_CHARS = 64


def job_id(loop_id: str, number: int, reviewer: str | None = None) -> str:
    """The name of a loop's job, without *reviewer* the creator's: always the same, and never another one's."""
    whole = f"{loop_id}-w{number}" if reviewer is None else f"{loop_id}-r{number}-{reviewer}"
    if 8 <= len(whole) <= ID_CHARS:
        return whole
    return f"{loop_id[:20]}-r{number}-{hashlib.sha256(whole.encode()).hexdigest()[:24]}"


def step_of(order: Work | Ask) -> str:
    """The name under which an order's side effect is noted."""
    if isinstance(order, Ask):
        return f"r{order.round}/ask/{order.reviewer}/{order.attempt}"
    return f"r{order.round}/work/{order.attempt}"


def name_of(loop_id: str, order: Work | Ask) -> str:
    """The name of the job that carries *order* out."""
    return job_id(loop_id, order.round, order.reviewer if isinstance(order, Ask) else None)


def is_ambiguous(loop_id: str) -> bool:
    """Whether a job of this loop could have the name of another loop's."""
    return re.search(r"-[rw][0-9]+(-|$)", loop_id) is not None


def _is_done(job: Job) -> bool:
    """Whether a creator's job came to an end that counts, early or late."""
    return job.state == "reported" and job.detail != "report_altered"


class LoopJobs:
    """The jobs of one loop: which one carries out an order, how it is sent, and what has become of it."""

    def __init__(self, mam: Mam, loop: Loop, limits: delegation.Limits | None) -> None:
        self._mam, self._loop, self._limits = mam, loop, limits

    @property
    def _task(self) -> str:
        return (Path(self._loop.folder) / "task.md").read_text("utf-8", "surrogateescape")

    # -- asked ------------------------------------------------------------------------------

    def plan(self, order: Work | Ask) -> int:
        """
        Which attempt of its job carries *order* out; decided once and kept, so that a successor waits for the same.

        A job that is open all the same, since it was tried again, is taken over; so is work that was reported late.
        """
        reviewer = order.reviewer if isinstance(order, Ask) else None
        with self._mam.registry.transaction() as tx:
            known = tx.step(self._loop.id, step_of(order))
            if known is not None and known.detail:
                return int(known.detail)
            job = tx.job(job_id(self._loop.id, order.round, reviewer))
            late = isinstance(order, Work) and job is not None and _is_done(job)
            attempt = 1 if job is None else job.attempt if job.state in OPEN or late else job.attempt + 1
            tx.put(StepMark(self._loop.id, step_of(order), "begun", now_ms(), str(attempt)))
        return attempt

    def send(self, state: LoopState, order: Work | Ask, attempt: int) -> None:
        """
        Have that attempt on its way; done again after a crash it finds what was done.

        Raises BenchFailed, and what delegation.delegate and delegation.retry raise.
        """
        if isinstance(order, Work):
            self._work(state, order, attempt)
        else:
            self._ask(state, order, attempt)

    def _work(self, state: LoopState, order: Work, attempt: int) -> None:
        assert state.creator is not None
        task, head = self._task, state.rounds[-2].head if len(state.rounds) > 1 else None
        text = loop_briefs.work(task) if order.round == 1 else self._rework(task, state, order.round)
        place = WorkPlace(self._loop.worktree, self._loop.branch, self._loop.base_sha, head)
        part = LoopPart(self._loop.id, order.round, place.line())
        self._send(state.creator, None, attempt, text, self._loop.title, part)

    def _rework(self, task: str, state: LoopState, number: int) -> str:
        refused = next(each for each in reversed(state.rounds[:-1]) if not each.stale)
        findings = []
        for review in refused.reviews:
            job = self._job(refused.number, review.reviewer)
            path = find_report(job) if job is not None else None
            text = path.read_text("utf-8", "replace") if path is not None else ""
            findings.append(Remarks(f"{review.reviewer} ({review.verdict})", text))
        return loop_briefs.rework(task, number, findings)

    def _ask(self, state: LoopState, order: Ask, attempt: int) -> None:
        at = state.round
        if self._ended(at.number, order.reviewer, attempt) is not None:
            return  # it was answered: a bench made anew now would show nothing of what was done in the one that is gone
        place = WorkPlace(self._loop.worktree, self._loop.branch, at.base, at.head)
        change = self._change(at)
        if self._loop.remote is not None:
            pins = f"{snapshot.PINS}/{self._loop.id}/{at.number}"
            text = loop_briefs.remote_review(self._task, place, self._loop.remote, pins, change.stat)
            tree = None
        else:
            snap = CapturedCommit(at.head, at.tip, at.captured)
            bench = review_trees.open_review_tree(self._mam, self._loop, at.number, order.reviewer, attempt, snap)
            text = loop_briefs.review(self._task, place, bench, self._loop.test_command, change)
            tree = bench.tree
        tip = at.head if self._loop.isolation == "worktree" else at.tip
        part = LoopPart(self._loop.id, at.number, place.line(), at.base, at.head, tree, tip)
        title = f"review of {at.head[:12]}: {self._loop.title}"
        self._send(order.reviewer, order.reviewer, attempt, text, title, part)

    def _change(self, at: Round) -> Change:
        told = find_report(job) if (job := self._job(at.number)) is not None else None
        changes = loop_files.round_folder(self._loop, at.number) / "changes.diff"
        if not changes.exists():
            self.write_changes(at.number, at.base, at.head)  # the file was removed
        with changes.open(encoding="utf-8", errors="replace") as file:
            lines: list[str] = []
            for line in file:
                if not line.strip() or len(lines) >= 200:
                    break
                lines.append(line.rstrip())
        return Change("\n".join(lines), changes, told)

    def _job(self, number: int, reviewer: str | None = None) -> Job | None:
        with self._mam.registry.view() as view:
            return view.job(job_id(self._loop.id, number, reviewer))

    def _send(self, session: str, reviewer: str | None, attempt: int, text: str, title: str, part: LoopPart) -> None:
        name, job = job_id(self._loop.id, part.round, reviewer), self._job(part.round, reviewer)
        if job is None:
            # A folder without a record was left by a crash of this very job: the name is the loop's, and we hold it.
            shutil.rmtree(self._mam.layout.jobs / name, ignore_errors=True)
            job = delegation.delegate(
                self._mam, session, text, title=title, job_id=name, limits=self._limits, part=part
            )
        elif job.attempt < attempt:
            job = delegation.retry(self._mam, name)
        copy = loop_files.round_folder(self._loop, part.round) / (f"brief-{reviewer}.md" if reviewer else "brief.md")
        if not copy.exists():
            shutil.copyfile(job.brief_path, copy)

    # -- answered ---------------------------------------------------------------------------

    def worked(self, order: Work, attempt: int) -> WorkEnded | None:
        """How that attempt of the creator's job ended; None while it is open."""
        job = self._ended(order.round, None, attempt)
        if job is None:
            return None
        if _is_done(job):
            self._archive(job, order.round)
            return WorkEnded(job.result == "done", job.result == "failed")
        return WorkEnded(False, False, f"{job.id} is {job.state}: {job.detail or 'no reason given'}; mam why {job.id}")

    def reviewed(self, state: LoopState, order: Ask, attempt: int) -> Reviewed | None:
        """What a reviewer said, and why it does not count where it does not; None while it is at work."""
        job = self._ended(order.round, order.reviewer, attempt)
        if job is None:
            return None
        at = state.round
        why = self._why_not(job, at, order.reviewer)
        path = Path(job.report_path)
        verdict = job.verdict if not why else None
        loop_files.verdict(self._loop, at, order.reviewer, verdict, why, path)
        if path.is_file():
            self._archive(job, order.round)
        return Reviewed(order.reviewer, order.attempt, verdict, why)

    def _why_not(self, job: Job, at: Round, reviewer: str) -> str:
        if job.state != "reported":
            return f"{job.id} is {job.state}: {job.detail or 'no reason given'}"
        if job.session != reviewer:
            return f"{job.session} was asked in its place"
        if (job.loop, job.round, job.base_sha, job.head_sha) != (self._loop.id, at.number, at.base, at.head):
            return f"{job.id} is about {job.head_sha} (base {job.base_sha}), not about {at.head} (base {at.base})"
        if job.detail == "other_commit":
            return f"it reviewed {job.seen_sha or 'no commit that it named'}, not {at.head}"
        if job.verdict is None or job.result != "done":
            return job.detail or ("it reported that it failed" if job.result == "failed" else "it gave no verdict")
        report = Path(job.report_path)
        if not report.is_file() or file_sha256(report) != job.report_sha256:
            return "its report is not the file that was signed"
        if reports.of(report.read_text("utf-8", "replace")) != job.verdict:
            return "its report does not end with the verdict that was signed"
        snap = CapturedCommit(at.head, at.tip, at.captured)
        return review_trees.check(self._mam, self._loop, at.number, reviewer, snap)

    def _ended(self, number: int, reviewer: str | None, attempt: int) -> Job | None:
        job = self._job(number, reviewer)
        return job if job is not None and job.state not in OPEN and job.attempt >= attempt else None

    def _archive(self, job: Job, number: int) -> None:
        folder = self._mam.layout.mam
        loop_files.archive_report(self._loop, number, job.session, Path(job.report_path), self._mam.settings, folder)

    # -- what changed -------------------------------------------------------------------------

    def write_changes(self, number: int, base: str, head: str) -> bool:
        """Write the round's diff, its summary first, for people and reviewers; False where there is none."""
        path = loop_files.round_folder(self._loop, number) / "changes.diff"
        # Whatever a configuration may say about colours, prefixes and submodules: nothing that changed is left out.
        words = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"]
        words += ["--ignore-submodules=none", "--submodule=short", "--stat=110", "--patch", f"--output={path}"]
        git.ask(Path(self._loop.worktree), *words, f"{base}...{head}")
        return path.stat().st_size > 0

    def publish(self, number: int, base: str, head: str) -> None:
        """Push the round's two commits to where remote reviewers fetch them; asked for by --remote-review."""
        if self._loop.remote is not None:
            name = f"{self._loop.id}/{number}"
            snapshot.push(self._mam.layout.root, self._loop.remote, name, base, head)

    def withdraw(self) -> None:
        """Remove from the remote what `publish` put there."""
        if self._loop.remote is not None:
            snapshot.unpush(self._mam.layout.root, self._loop.remote, self._loop.id)
