"""The orchestrator of a soak: hands out jobs, and does after each strike what `mam why` names, as a person would."""

import itertools
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.control_plane.control_root import monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import agents_and_jobs
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs import jobs
from mam.control_plane.registry.records import LIVE, OPEN, PRESUMED, Job, Session
from mam.control_plane.sessions import lifecycle, runtime
from mam.control_plane.sessions.lookup import need_session
from tests.support import MAM, run_mam
from tests.support.soaking.scripts import Planned, plan
from tests.support.soaking.strikes import SPARED, Striker

BY_CLI = 0.06  # how much of what is done goes through the command line
TRIES = 15
LATE_WITHIN_S = 30.0
STUCK_S = 60.0  # beyond the limit that ends an attempt in any case

_RETRY = re.compile(r"mam job retry (\S+?)(?: --to OTHER)?(?:$|[ ,;])")
_RESUME = re.compile(r"mam agent resume (\S+?)(?:$|[ ,;])")


class Under(NamedTuple):
    """A job that has been handed out and has not come to its end."""

    planned: Planned
    since: float  # of its last attempt
    tries: int = 1


class Orchestra:
    def __init__(self, mam: Mam, env: dict[str, str], agents: list[str], seed: int, folder: Path) -> None:
        self._mam, self._env, self._agents = mam, env, agents
        self._seed, self._folder = seed, folder
        self._dice = random.Random(f"{seed}/orchestra")
        self._names = itertools.count()
        self.striker: Striker | None = None
        self.handed_out = 0
        self.under: dict[str, Under] = {}
        self.ended: dict[str, Planned] = {}
        self.did: Counter[str] = Counter()
        self.problems: list[str] = []

    # -- one turn -----------------------------------------------------------------------

    def turn(self, due: int) -> None:
        """Look at everything once and do what is to be done; hand out new jobs until *due* have been."""
        self._try("up", lambda: monitor_process.ensure(self._mam))
        with self._mam.registry.view() as view:
            rows = {name: need_session(view, name) for name in self._agents}
            states = {job_id: jobs.need(view, job_id) for job_id in self.under}
            busy = {job.session for job in view.open_jobs()}
        for name, row in rows.items():
            if row.status not in LIVE:
                self._bring_back(name)
        for job_id, job in states.items():
            self._attend(job_id, job, rows, busy)
        for name in self._dice.sample(self._agents, len(self._agents)):
            planned = plan(self._seed, self.handed_out, self._folder)
            if self.handed_out < due and self._may_take(name, planned, rows, busy):
                busy.add(name)
                self._hand_out(name, planned)

    def _may_take(self, name: str, planned: Planned, rows: dict[str, Session], busy: set[str]) -> bool:
        deadly = planned.kind.deadly and name in self._agents[:SPARED]
        return rows[name].status in LIVE and name not in busy and not deadly

    def _attend(self, job_id: str, job: Job, rows: dict[str, Session], busy: set[str]) -> None:
        under = self.under[job_id]
        if under.planned.kind.ends(job):
            self.ended[job_id] = under.planned
            del self.under[job_id]
            if under.planned.kind.name == "hang" and rows[job.session].status in LIVE:
                self._restart(job.session)  # who wrote the script knows that it never comes back
        elif job.state not in OPEN:
            self._follow(job, rows, busy)
        elif under.planned.kind.name == "cancelled" and job.state == "running":
            self._do("cancel", job_id, lambda: jobs.cancel(self._mam, job_id, "not needed"), "--reason", "not needed")
        elif time.monotonic() - under.since > job.limit_s + STUCK_S:
            self._stuck(job_id, "stuck")

    # -- after a strike -----------------------------------------------------------------

    def explain(self, name: str) -> agents_and_jobs.Explanation:
        """What `mam why NAME` says."""
        known = monitor_process.look(self._mam.layout)
        with self._mam.registry.view() as view:
            job = view.job(name)
            session = view.session(job.session if job else name)
        screen, signal = runtime.look_now(self._mam, session) if session else (None, "")
        now = agents_and_jobs.Observed(now_ms(), known is not None, known.problem if known else "", screen, signal)
        with self._mam.registry.view() as view:
            job = view.job(name)
            if job is not None:
                return agents_and_jobs.job(view, job, now)
            return agents_and_jobs.session(view, need_session(view, name), now)

    def _bring_back(self, name: str) -> None:
        said = self.explain(name)
        found = _RESUME.search(said.next)
        if found is not None:
            self._resume(found.group(1))
        elif said.state not in LIVE:  # it may have come back by itself in between
            self._problem(f"{name} is gone, and why names no way back:\n{said.text()}")

    def _resume(self, name: str) -> None:
        if self._dice.random() < BY_CLI:
            self._cli("agent", "resume", name)
        else:
            self._try("resume", lambda: lifecycle.resume(self._mam, name))

    def _restart(self, name: str) -> None:
        self._try("stop", lambda: lifecycle.stop(self._mam, name, force=True))
        self._resume(name)

    def _follow(self, job: Job, rows: dict[str, Session], busy: set[str]) -> None:
        """Another end than the script's: somebody struck. Do what `why` names."""
        said = self.explain(job.id)
        step = said.next
        waited_s = time.monotonic() - self.under[job.id].since
        promised = self.under[job.id].planned.kind.name == "late" and waited_s < LATE_WITHIN_S
        if said.state.split()[0] not in PRESUMED or (promised and "wait for its late report" in step):
            return  # it has just reported, or it may yet
        if "mam agent stop" in step:
            self._restart(job.session)
            return
        found = _RETRY.search(step)
        if found is None or found.group(1) != job.id:
            self._stuck(job.id, "why names no way on")
            return
        if "--to OTHER" in step:
            planned = self.under[job.id].planned
            others = [name for name in self._agents if name != job.session]
            target = next((name for name in others if self._may_take(name, planned, rows, busy)), None)
        else:
            target = job.session if rows[job.session].status in LIVE and job.session not in busy else None
        if target is not None:
            busy.add(target)
            self._retry(job, target)

    def _retry(self, job: Job, target: str) -> None:
        before = self.under[job.id]
        if before.tries >= TRIES:
            self._stuck(job.id, f"not as its script says after {TRIES} tries")
            return
        to = () if target == job.session else ("--to", target)
        if self._do("retry", job.id, lambda: delegation.retry(self._mam, job.id, target), *to):
            self.under[job.id] = Under(before.planned, time.monotonic(), before.tries + 1)

    def _stuck(self, job_id: str, what: str) -> None:
        self._problem(f"{job_id} ({self.under[job_id].planned.kind.name}), {what}:\n{self.explain(job_id).text()}")
        del self.under[job_id]
        self._try("cancel", lambda: jobs.cancel(self._mam, job_id, "soak: given up"))

    # -- handing out --------------------------------------------------------------------

    def _hand_out(self, name: str, planned: Planned) -> None:
        job_id = f"soak-{planned.number:05d}-{next(self._names)}"
        dies_after_s = self.striker.producer_dies_after_s if self.striker else []
        if dies_after_s:
            made = self._killed_delegate(name, planned, job_id, dies_after_s.pop(0))
        elif self._dice.random() < BY_CLI:
            made = self._cli(*self._words(name, planned, job_id), stdin=planned.brief)
        else:
            made = self._try(
                "delegate",
                lambda: delegation.delegate(self._mam, name, planned.brief, job_id=job_id, limits=planned.kind.limits),
            )
        if made:
            self.under[job_id] = Under(planned, time.monotonic())
            self.handed_out += 1

    def _words(self, name: str, planned: Planned, job_id: str) -> list[str]:
        limits = planned.kind.limits
        words = ["job", "delegate", "--to", name, "--brief", "-", "--id", job_id, "--limit", f"{limits.limit_s}"]
        return [
            *words,
            "--started-within",
            f"{limits.started_within_s}",
            "--deliver-within",
            f"{limits.deliver_within_s}",
        ]

    def _killed_delegate(self, name: str, planned: Planned, job_id: str, dies_after_s: float) -> bool:
        """A `mam job delegate` that dies on its way: there is a whole job afterwards, or none."""
        argv = [MAM, *self._words(name, planned, job_id)]
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(
            argv, cwd=self._mam.layout.root, env=self._env, stdin=pipe, stdout=none, stderr=none
        ) as child:
            assert child.stdin is not None
            child.stdin.write(planned.brief.encode())
            child.stdin.close()
            try:
                child.wait(dies_after_s)
            except subprocess.TimeoutExpired:
                child.kill()
        self.did["delegate killed" if child.returncode == -9 else "cli delegate"] += 1
        with self._mam.registry.view() as view:
            return view.job(job_id) is not None

    # -- how things are done ------------------------------------------------------------

    def _do(self, verb: str, job_id: str, work: Callable[[], object], *flags: str) -> bool:
        """A job verb, mostly in this process and sometimes as the real command."""
        if self._dice.random() < BY_CLI:
            return self._cli("job", verb, job_id, *flags)
        return self._try(verb, work)

    def _cli(self, *words: str, stdin: str = "") -> bool:
        said = run_mam(*words, "--json", cwd=self._mam.layout.root, env=self._env, stdin=stdin, timeout_s=120)
        self.did[f"cli {words[1]}"] += 1
        if said.code:
            self.did[f"refused {said.error['code']}"] += 1
            if said.error["code"] == "internal":
                self._problem(f"mam {' '.join(words)}: {said.err}")
        return said.code == 0

    def _try(self, what: str, work: Callable[[], object]) -> bool:
        """A typed refusal is an answer (the next turn looks anew); anything else is a defect, and comes through."""
        try:
            work()
        except MamError as error:
            self.did[f"refused {error.code}"] += 1
            return False
        if what != "up":
            self.did[what] += 1
        return True

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.note({"problem": text})

    def note(self, what: dict[str, object]) -> None:
        if self.striker:
            self.striker.note(what)
