"""mam status · mam why · mam tail · mam verify"""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import MamError
from mam.broker.host.text import clean
from mam.control_plane.cli.base import Parser, add_root, emit, verb
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import tables as views
from mam.control_plane.registry.queries import View
from mam.control_plane.registry.records import OPEN, Finding, Job, Session

if TYPE_CHECKING:
    from mam.control_plane.control_root.monitor_process import Known
    from mam.control_plane.explain.agents_and_jobs import Explanation


LOOPS_SHOWN = 10
MONITOR_AWAY = "monitor does not run (mam up)"


class UnknownThing(MamError):
    code = "unknown_thing"
    exit_code = 2
    message = "there is no job, agent, loop or worktree called {name!r}"
    remedy_text = "`mam status` shows what there is"


def run(words: list[str]) -> int:
    return {"status": _status, "why": _why, "tail": _tail, "verify": _verify}[words[0]](words)


class _Glance(NamedTuple):
    """What `mam status` shows, as it was at one moment."""

    at: int
    root: str
    fingerprint: str
    monitor: "Known | None"
    sessions: Sequence[Session]
    agents: Sequence[Sequence[object]]  # rows of a table, as trees and loops
    open_jobs: Sequence[Job]
    counts: Mapping[str, int]
    trees: Sequence[Sequence[object]]
    loops: Sequence[Sequence[object]]
    findings: Sequence[Finding]


def _status(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process as daemon
    from mam.control_plane.loops import locks as loop_locks
    from mam.control_plane.worktrees import state as tree_states

    args = verb(words, 1, "mam status", "agents, open jobs and findings at a glance", add_root)
    mam, now = Mam.open(root=args.root), now_ms()
    monitor = daemon.look(mam.layout)
    with mam.registry.view() as view:
        sessions, agents = view.sessions(), views.session_rows(view, now)
        trees = [[t.name, tree_states.now(mam.layout.root, t), t.branch, t.path] for t in view.worktrees()]
        jobs, counts, findings, loops = view.jobs(states=OPEN), view.count_jobs(), view.findings(), view.loops()
    loop_rows = views.loop_rows(loops, now, lambda loop: loop_locks.runs(mam, loop.id))
    place = (str(mam.layout.root), mam.fingerprint)
    seen = _Glance(now, *place, monitor, sessions, agents, jobs, counts, trees, loop_rows, findings)
    emit(args, _glance_data(seen), "\n".join(_glance_lines(seen)))
    return 0


def _glance_data(seen: _Glance) -> dict[str, object]:
    known = seen.monitor
    return {
        "root": seen.root,
        "fingerprint": seen.fingerprint,
        "monitor": {"pid": known.process.pid, "broker": known.broker, "problem": known.problem} if known else None,
        "sessions": [views.session_data(session) for session in seen.sessions],
        "open_jobs": [views.job_data(job) for job in seen.open_jobs],
        "jobs": seen.counts,
        "worktrees": [dict(zip(("name", "state", "branch", "path"), row, strict=True)) for row in seen.trees],
        "loops": [dict(zip(("id", "state", "round", "head"), row, strict=False)) for row in seen.loops],
        "findings": [{"code": f.code, "subject": f.subject, "since": f.since, "text": f.text} for f in seen.findings],
    }


def _glance_lines(seen: _Glance) -> list[str]:
    known = seen.monitor
    lines = [f"control root {seen.root}"]
    lines.append(f"monitor pid {known.process.pid}, broker {known.broker}" if known else MONITOR_AWAY)
    if known and known.problem:
        lines.append(f"problem: {known.problem}")
    lines += ["", views.table(views.SESSION_HEADER, seen.agents)] if seen.agents else ["", "no agents"]
    if seen.open_jobs:
        lines += ["", views.table(views.JOB_HEADER, views.job_rows(seen.open_jobs, seen.at))]
    if seen.trees:
        lines += ["", views.table(views.TREE_HEADER, seen.trees)]
    if seen.loops:
        lines += ["", views.table(views.LOOP_HEADER, seen.loops[:LOOPS_SHOWN])]
    if len(seen.loops) > LOOPS_SHOWN:
        lines.append(f"… and {len(seen.loops) - LOOPS_SHOWN} more (mam loop list; mam loop archive --older 7d)")
    lines += ["", "jobs: " + (", ".join(f"{n} {state}" for state, n in sorted(seen.counts.items())) or "none")]
    return lines + [
        f"! {f.code} {f.subject}: {clean(f.text)} (since {views.ago(f.since, seen.at)})" for f in seen.findings
    ]


def _thing(parser: Parser) -> None:
    add_root(parser)
    parser.add_argument(
        "name", help="a job, an agent, a loop, a worktree, monitor, broker, or what `queue` or a finding names"
    )


def _why(words: list[str]) -> int:
    from mam.control_plane.control_root import monitor_process as daemon
    from mam.control_plane.explain import agents_and_jobs as why
    from mam.control_plane.explain import loops as loop_why
    from mam.control_plane.sessions import runtime as seats

    args = verb(words, 1, "mam why writer", "what is going on, on what evidence, and what to do", _thing)
    mam = Mam.open(root=args.root)
    known = daemon.look(mam.layout)
    with mam.registry.view() as view:
        job = view.job(args.name)
        session = view.session(job.session if job is not None else args.name)
        screen, signal = seats.look_now(mam, session) if session is not None else (None, "")
        now = why.Now(now_ms(), known is not None, known.problem if known else "", screen, signal)
        if job is not None:
            said = why.job(view, job, now)
        elif session is not None:
            said = loop_why.with_loops(view, session, why.session(view, session, now))
        else:
            said = _why_of_others(mam, view, args.name, known, now.ms)
    emit(args, said._asdict(), said.text())
    return 0


def _why_of_others(mam: Mam, view: View, name: str, known: "Known | None", now: int) -> "Explanation":
    from mam.control_plane.explain import loops as loop_why
    from mam.control_plane.explain import parts as why_place
    from mam.control_plane.loops import locks as loop_locks
    from mam.control_plane.sessions import occupancy as tree_owners
    from mam.control_plane.sessions import runtime as seats
    from mam.control_plane.worktrees import state as tree_states

    loop, tree = view.loop(name), view.worktree(name)
    if loop is not None:
        return loop_why.loop(view, loop, runs=loop_locks.runs(mam, loop.id), now=now)
    if tree is not None:
        state = tree_states.now(mam.layout.root, tree)
        return loop_why.worktree(view, tree, state, tree_owners.residents(view, tree.path), now)
    found = [finding for finding in view.findings() if finding.subject == name]
    if name in why_place.NAMES:
        embedded = not seats.broker_ref(mam).url
        return why_place.place(mam.layout, known, name, found, now, embedded=embedded)
    if found:
        return why_place.findings(name, found, now)
    lease = view.lease(name)
    if lease is not None:
        return loop_why.lease(view, lease, runs=loop_locks.runs(mam, lease.holder or ""), now=now)
    raise UnknownThing(name=name)


def _tail(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("name", nargs="?", help="a job id or an agent's name; everything without")
        parser.add_argument("--since", type=float, default=None, metavar="S", help="also the last S seconds")
        parser.add_argument("--no-follow", action="store_true", help="print what there is and end")
        parser.add_argument("--timeout", type=float, default=None, metavar="S", help="end after S seconds")

    args = verb(words, 1, "mam tail job-0123456789ab", "events as they are recorded", build)
    mam = Mam.open(root=args.root)
    watch = mam.registry.watch()
    deadline = time.monotonic() + args.timeout if args.timeout else None
    try:
        scope = _scope(watch, args.name)
        after = _start(watch, args, scope)
        version = -1
        while True:
            if (seen := watch.data_version()) != version:
                version = seen
                after = _print_events(args, watch, scope, after)
            if args.no_follow or (deadline is not None and time.monotonic() > deadline):
                return 0
            time.sleep(0.05)
    finally:
        watch.connection.close()


def _scope(view: View, name: str | None) -> str | None:
    if name is None:
        return None
    if view.job(name) is not None:
        return f"jobs/{name}"
    if view.session(name) is not None:
        return f"agents/{name}/events"
    raise UnknownThing(name=name)


def _start(view: View, args: argparse.Namespace, scope: str | None) -> int:
    """The event to begin behind: all of one thing, or for everything only what is new."""
    if args.since is None and (scope is not None or args.no_follow):
        return 0
    before = now_ms() - int((args.since or 0) * 1000)
    row = view.connection.execute("SELECT coalesce(max(seq), 0) FROM events WHERE arrived_at < ?", (before,)).fetchone()
    return int(row[0])


def _print_events(args: argparse.Namespace, view: View, scope: str | None, after: int) -> int:
    from mam.wrappers.runner.relay import body_of

    while batch := view.events(scope=scope, after=after):
        for event in batch:
            body = body_of(event["wire"])
            shown = {**{k: v for k, v in event.items() if k != "wire"}, "data": body.get("data")}
            emit(args, shown, views.event_line(event, body, now_ms()))
        after = batch[-1]["seq"]
    return after


def _verify(words: list[str]) -> int:
    from mam.control_plane.jobs import verify

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("name", metavar="job", help="a job, or a loop with all of its jobs")

    args = verb(words, 1, "mam verify job-0123456789ab", "check every signature of a job again", build)
    mam = Mam.open(root=args.root)
    with mam.registry.view() as view:
        if view.loop(args.name) is not None:
            result = verify.verify_loop(mam.layout, view, args.name)
        else:
            result = verify.verify(mam.layout, view, args.name)
    data = {"job": args.name, "ok": result.ok, "checks": [check._asdict() for check in result.checks]}
    lines = [f"{'ok ' if check.ok else 'BAD'}  {check.what:<16} {clean(check.detail)}" for check in result.checks]
    emit(args, data, "\n".join([*lines, f"{args.name}: {'all verified' if result.ok else 'NOT verified'}"]))
    return 0 if result.ok else 1
