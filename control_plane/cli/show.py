"""mam status · mam why · mam tail · mam verify"""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from mam.broker.envelope.payloads import now_ms
from mam.broker.host import terminal
from mam.broker.host.text import clean, fold
from mam.control_plane.cli.base import Parser, add_root, emit, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import tables
from mam.control_plane.registry.queries import View

if TYPE_CHECKING:
    from mam.control_plane.explain.status import Snapshot


LOOPS_SHOWN = 10
LAST_EVENTS = 10
MONITOR_AWAY = "monitor does not run (mam up)"


def run(words: list[str]) -> int:
    return {"status": _status, "why": _why, "tail": _tail, "verify": _verify}[words[0]](words)


def _status(words: list[str]) -> int:
    from mam.control_plane.explain import status

    args = verb(words, 1, "mam status", "agents, open jobs and findings at a glance", add_root)
    mam = Mam.open(root=args.root)
    seen = status.take(mam)
    wanted = _wanted_lines(seen, colour=terminal.may_colour(sys.stdout, mam.settings.environ))
    emit(args, seen.to_json(), "\n".join(_lines(seen) + wanted))
    return 0


def _lines(seen: "Snapshot") -> list[str]:
    known = seen.monitor
    lines = [f"control root {seen.root}"]
    lines.append(f"monitor pid {known.process.pid}, broker {known.broker}" if known else MONITOR_AWAY)
    if known and known.problem:
        lines.append(f"problem: {known.problem}")
    lines.append(f"served by {seen.runtime}" if seen.runtime else "served by the mam of the next `mam up`")
    agents = [tables.agent_row(session, seen.job_of(session.name), seen.root) for session in seen.sessions]
    lines += ["", shown_table(tables.SESSION_HEADER, agents)] if agents else ["", "no agents"]
    if seen.open_jobs:
        lines += ["", shown_table(tables.JOB_HEADER, tables.job_rows(seen.open_jobs, seen.at))]
    if seen.worktrees:
        lines += [
            "",
            shown_table(
                tables.TREE_HEADER, [[*tree[:3], tables.near(tree.path, seen.root)] for tree in seen.worktrees]
            ),
        ]
    if seen.loops:
        rows = [tables.loop_row(each.loop, seen.at, runs=each.runs) for each in seen.loops[:LOOPS_SHOWN]]
        lines += ["", shown_table(tables.LOOP_HEADER, rows)]
    if len(seen.loops) > LOOPS_SHOWN:
        lines.append(f"… and {len(seen.loops) - LOOPS_SHOWN} more (mam loop list; mam loop archive --older 7d)")
    counts = ", ".join(f"{n} {state}" for state, n in sorted(seen.job_counts.items()))
    lines += ["", f"jobs: {counts or 'none'}"]
    return lines


def _wanted_lines(seen: "Snapshot", *, colour: bool) -> list[str]:
    """What needs a person: questions with what answers them, and findings."""
    columns, lines = terminal.columns(sys.stdout), []
    for want in seen.wants:
        lines.append(f"{terminal.alarming('?', colour=colour)} {want.text(columns - 2 if columns else None)}")
    told = {want.job for want in seen.wants}  # its finding says the same once more
    for found in seen.findings:
        if found.code != "blocked" or found.subject not in told:
            since = f"(since {tables.ago(found.since, seen.at)})"
            text = fold(f"! {found.code} {found.subject}: {clean(found.text)} {since}", columns, indent="  ")
            lines.append(terminal.alarming("!", colour=colour) + text[1:])
    return lines


def _thing(parser: Parser) -> None:
    add_root(parser)
    parser.add_argument(
        "name", help="a job, an agent, a loop, a worktree, monitor, broker, or what `queue` or a finding names"
    )


def _why(words: list[str]) -> int:
    from mam.control_plane.explain import why

    args = verb(words, 1, "mam why writer", "what is going on, on what evidence, and what to do", _thing)
    said = why.explain(Mam.open(root=args.root), args.name)
    emit(args, said._asdict(), said.text(terminal.columns(sys.stdout)))
    return 0


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
    from mam.control_plane.explain.why import UnknownThing

    raise UnknownThing(name=name)


def _start(view: View, args: argparse.Namespace, scope: str | None) -> int:
    """The event to begin behind: all of one thing, or for everything the last ones and what is new."""
    if args.since is None and (scope is not None or args.no_follow):
        return 0
    if args.since is None:
        last = "SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?"
        row = view.connection.execute(last, (LAST_EVENTS,)).fetchone()
        return int(row[0]) if row else 0
    before = now_ms() - int((args.since or 0) * 1000)
    row = view.connection.execute("SELECT coalesce(max(seq), 0) FROM events WHERE arrived_at < ?", (before,)).fetchone()
    return int(row[0])


def _print_events(args: argparse.Namespace, view: View, scope: str | None, after: int) -> int:
    from mam.broker.envelope.signing import unverified_body

    while batch := view.events(scope=scope, after=after):
        for event in batch:
            body = unverified_body(event["wire"])
            shown = {**{k: v for k, v in event.items() if k != "wire"}, "data": body.get("data")}
            emit(args, shown, tables.event_line(event, body, now_ms()))
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
