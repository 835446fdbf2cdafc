"""What the monitor looks at by itself, every second: compare first, then act on what is proven, note the rest."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from mam.agents.border import UNREADABLE
from mam.broker.errors import MamError
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import liveness, questions
from mam.control_plane.jobs import state as job_state
from mam.control_plane.jobs.unobserved import UnobservedTime
from mam.control_plane.leases import leases
from mam.control_plane.messaging.inbox import Inbox
from mam.control_plane.messaging.spool_sweep import SpoolSweep
from mam.control_plane.monitor import job_checks, reconcile, repository_checks
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import LIVE, PRESUMED, Attempt, Finding, Job, Session
from mam.control_plane.registry.transactions import Registry
from mam.control_plane.sessions import sessions_yaml
from mam.control_plane.sessions.activity import Activity

_log = logging.getLogger("mam.monitor")

RECONCILE_S = 10.0
PROCESSES_S = 5.0
FILES_S = 60.0
DARK_S = 60.0  # until a multiplexer that did not answer is asked again: it may keep everything waiting for ten seconds
RETRY_REFUSED_S = 60.0  # until a job that cannot be tried again now is looked at once more


class MonitorChecks:
    """One pass of *tick* is complete in itself: what it remembers only makes the next one cheaper, or more patient."""

    def __init__(self, mam: Mam, registry: Registry, sweep: SpoolSweep, inbox: Inbox, clock: Callable[[], int]) -> None:
        self._mam, self._registry, self._sweep, self._inbox, self._clock = mam, registry, sweep, inbox, clock
        self._began = clock()
        self._gaps = UnobservedTime(mam.layout.run / "gaps.json")
        self._expiry = leases.Expiry(time.monotonic)
        self._signs = Activity(mam)
        self._reconcile_at = self._thorough_at = self._files_at = 0.0
        self._dark: dict[reconcile.MuxServer, float] = {}  # multiplexers that did not answer, and since when
        self._failed: dict[reconcile.MuxServer, str] = {}  # of those, the ones whose own code failed, and how
        self._refused: dict[str, tuple[float, Finding]] = {}  # job -> not before, and why it is not tried again
        self._drifts: list[reconcile.Drift] = []
        self._missing: list[reconcile.Drift] = []
        self._untold: dict[str, str] = {}  # sessions whose adapter could not name their conversation's files, and why
        self._dead: list[Path] = []
        self._version, self._sessions = -1, list[Session]()
        self._once: set[tuple[str, str]] = set()  # differences of the last pass: the second sight counts

    def deliverable_ms(self, job: Job, attempt: Attempt) -> float:
        """How long a prompt is still worth being typed: after that its job is given up."""
        return job_state.left_ms(job, attempt, now=self._clock(), began=self._began, gaps=self._gaps.found)

    def tick(self, view: View, problem: str, cards: Iterable[str]) -> list[Finding]:
        """
        Look at everything once; the findings that are new.

        Args:
            problem: What is wrong with the broker.
            cards: Topics of the cards that the broker keeps.
        """
        now = self._clock()
        gap = self._gaps.look(now)
        if gap is not None:
            _log.warning("no look was possible for %d s: limits do not count them", (gap[1] - gap[0]) // 1000)
        self._end_sessions(view)
        found = [*self._jobs(view, now), *self._adapters(now)]
        self._leases(view)
        found += self._retry(view)
        found += self._differences(view, cards)
        found += repository_checks.findings(self._mam, view)
        found += [
            Finding("dead_letter", path.parent.parent.name, now, f"an event that could not be authenticated: {path}")
            for path in self._dead
        ]
        if problem:
            found.append(Finding("broker", "broker", now, problem))
        return job_checks.note_findings(self._registry, view, found)

    def _end_sessions(self, view: View) -> None:
        version = view.data_version()
        if version != self._version:  # nothing was written since: the rows of the last look are those of now
            self._version, self._sessions = version, view.sessions()
        # Of those that the broker holds a connection of, its Last Will tells sooner than a look at each process.
        thorough = time.monotonic() >= self._thorough_at
        if thorough:
            self._thorough_at = time.monotonic() + PROCESSES_S
        doubted = [session for session in self._sessions if thorough or session.presence != "online"]
        ended = job_checks.ended_sessions(self._mam, doubted, dark := set(self._dark), self._failed)
        self._went_dark(dark)
        if not ended:
            return
        job_checks.act(self._registry, ended, [])
        for item in ended:
            _log.warning("agent %s: %s", item.session, item.reason)
        sessions_yaml.write(self._mam)

    def _ask_one_again(self) -> None:
        """One at a time: several that do not answer must not add up to a gap in which no limit counts."""
        oldest = min(self._dark, key=lambda place: self._dark[place], default=None)
        if oldest is not None and time.monotonic() - self._dark[oldest] > DARK_S:
            del self._dark[oldest]

    def _went_dark(self, places: Iterable[reconcile.MuxServer]) -> None:
        for place in places:
            self._dark.setdefault(place, time.monotonic())

    def _jobs(self, view: View, now: int) -> list[Finding]:
        questions.tend(self._mam, view, now, self._gaps.found)
        seen = job_checks.Watched(self._sweep, self._heard, self._signs, self._began, now, self._gaps.found)
        verdicts, findings = job_checks.jobs_now(view, seen, patience(self._mam))
        job_checks.act(self._registry, [], verdicts)
        for verdict in verdicts:
            _log.warning("job %s is presumed %s: %s", verdict.job, verdict.state, verdict.detail)
        return findings

    def _adapters(self, now: int) -> list[Finding]:
        """Agents whose adapter failed in the runner or here, and multiplexers whose own code did."""
        agents = {session.name: session for session in self._sessions if session.status in LIVE}
        trouble = {name: agent.screen_text or "" for name, agent in agents.items() if agent.screen == UNREADABLE}
        trouble |= {name: why for name, why in (self._untold | self._signs.trouble).items() if name in agents}
        self._failed = {place: why for place, why in self._failed.items() if place in self._dark}
        found = [Finding("mux_failed", place[1], now, f"{why}; mam doctor") for place, why in self._failed.items()]
        for name, why in trouble.items():
            found.append(Finding("adapter_failed", name, now, f"{why}; mam agent check {agents[name].agent}"))
        return found

    def _heard(self, job: str, attempt: int) -> int:
        return max(self._began, self._inbox.heard.get((job, attempt), 0))

    def _leases(self, view: View) -> None:
        over = self._expiry.look(view)
        if over.leases or over.tickets:
            for words in leases.expire(self._registry, over):
                _log.warning("%s ended: no sign of its holder", words)

    def _retry(self, view: View) -> list[Finding]:
        """Make the next attempt of jobs whose policy allows it, as soon as their agent is there. Why some have none."""
        marks = ",".join("?" * len(PRESUMED))
        where = f"WHERE state IN ({marks}) AND attempt <= retries AND archived_at IS NULL"
        wanted = view.rows(Job, where, PRESUMED)
        self._refused = {job.id: self._refused[job.id] for job in wanted if job.id in self._refused}
        for job in wanted:
            session = view.session(job.session)
            if session is None or session.status not in LIVE or view.open_job(job.session) is not None:
                continue
            if time.monotonic() < self._refused.get(job.id, (0.0,))[0]:
                continue
            try:
                again = delegation.retry(self._mam, job.id)
                _log.warning("job %s: attempt %d of at most %d", job.id, again.attempt, again.retries + 1)
            except (MamError, OSError) as error:  # a folder that cannot be written must not end the look at all others
                remedy = error.remedy if isinstance(error, MamError) else f"see {job.folder}"
                text = f"it cannot be tried again: {error}; {remedy}"
                finding = Finding("retry_refused", job.id, self._clock(), text)
                self._refused[job.id] = (time.monotonic() + RETRY_REFUSED_S, finding)
        return [finding for _, finding in self._refused.values()]

    def _differences(self, view: View, cards: Iterable[str]) -> list[Finding]:
        """Where rows and world disagree, from the second sight on: what is just being changed does not count."""
        if time.monotonic() >= self._reconcile_at:
            self._ask_one_again()
            world = reconcile.look(self._mam, view, cards, self._dark)
            self._reconcile_at = time.monotonic() + RECONCILE_S
            self._went_dark(world.dark)
            self._failed |= world.failed
            self._adopt(view, world)
            if time.monotonic() >= self._files_at:
                self._files_at = time.monotonic() + FILES_S
                self._untold.clear()
                self._missing = reconcile.conversations(self._mam, self._sessions, view, self._untold)
            seen = reconcile.compare(self._mam, view, world, self._missing)
            before, self._once = self._once, {(drift.code, drift.subject) for drift in seen}
            self._drifts = [drift for drift in seen if (drift.code, drift.subject) in before]
            self._dead = self._sweep.dead()
        own = {"worktree_gone", "main_moved"}  # noted by repo_watch itself, at once
        return [
            Finding(drift.code, drift.subject, self._clock(), f"{drift.text}; {drift.next}")
            for drift in self._drifts
            if drift.code not in own
        ]

    def cards_left(self) -> list[str]:
        """Topics of cards that two looks in a row knew nothing of: the monitor clears them."""
        return [drift.subject for drift in self._drifts if drift.code == "card_left"]

    def _adopt(self, view: View, world: reconcile.World) -> None:
        for session, pane in reconcile.adoptable(self._mam, view, world):
            with self._registry.transaction() as tx:
                current = tx.session(session.name)
                if current is None or current.status not in LIVE or current.pane:
                    continue
                if current.incarnation == session.incarnation:
                    tx.put(replace(current, pane=pane, updated_at=self._clock()))
                    _log.warning("agent %s: its pane %s was not noted, and is now", session.name, pane)


def patience(mam: Mam) -> liveness.Patience:
    settings = mam.settings
    stuck_s, stalled_s = settings.seconds("MAM_STUCK_AFTER_S", 60), settings.seconds("MAM_STALLED_AFTER_S", 900)
    return liveness.Patience(round(stuck_s * 1000), round(stalled_s * 1000), settings.heartbeat_s)
