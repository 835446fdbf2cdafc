"""mam loop run · list · show · resume · cancel · archive"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mam.broker.envelope.payloads import now_ms
from mam.broker.errors import Usage
from mam.broker.host.text import clean_lines
from mam.control_plane.cli.base import Parser, add_older, add_root, check_seconds, choose, emit, ended_before, say, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.control_root.context import Mam
from mam.control_plane.explain import tables
from mam.control_plane.registry.records import Loop

if TYPE_CHECKING:
    from mam.control_plane.loops.start import LoopRequest


def run(words: list[str]) -> int:
    table = {"run": _run, "list": _list, "show": _show, "resume": _resume, "cancel": _cancel, "archive": _archive}
    return choose(words, table, "review loops: a change lands only when all reviewers passed the same commit")


def _run(words: list[str]) -> int:
    from mam.control_plane.loops import run as loop_run

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("--task", required=True, metavar="FILE", help="what is to be done, or - for standard input")
        parser.add_argument("--worktree", metavar="PATH", help="a worktree's name or path (else MAM_LOOP_WORKTREE)")
        parser.add_argument("--creator", metavar="AGENT", help="who works, and answers the findings")
        parser.add_argument("--review-only", action="store_true", help="no creator: review what is there")
        who = parser.add_mutually_exclusive_group(required=True)
        who.add_argument("--reviewers", metavar="A,B")
        who.add_argument("--all-reviewers", action="store_true", help="all agents of the pool that are free")
        who.add_argument("--pick", type=int, metavar="N", help="any N of the pool, in the order of the queue")
        parser.add_argument("--pool", default="reviewer", metavar="ROLE", help="agents with this role (reviewer)")
        parser.add_argument("--priority", type=int, default=0, metavar="N", help="who waits with more goes first (0)")
        parser.add_argument("--base", metavar="REV", help="(default: where the branch left the main checkout's)")
        parser.add_argument("--rounds", type=int, default=3, metavar="N", help="at most so many rounds of work (3)")
        parser.add_argument("--review-isolation", choices=("worktree", "in-place"), default="worktree")
        parser.add_argument("--remote-review", metavar="REMOTE", help="reviewers fetch the commit from this remote")
        parser.add_argument("--promote", choices=("none", "branch", "merge", "pr-body"), default="none")
        parser.add_argument("--test", metavar="CMD", help="how reviewers run the tests (default: pytest)")
        _limit(parser)
        parser.add_argument("--id", metavar="ID", help="a loop id of your own")

    example = "mam loop run --task task.md --creator writer --reviewers a,b --worktree issue-20"
    args = verb(words, 2, example, "work, review by all, rework, until all reviewers passed one commit", build)
    mam = Mam.open(root=args.root)
    limits = _limits(mam, args.limit)
    return _told(args, mam, loop_run.begin(mam, _request(mam, args), say=say, limits=limits))


def _request(mam: Mam, args: argparse.Namespace) -> "LoopRequest":
    from mam.control_plane.cli.job import read_brief
    from mam.control_plane.jobs.delegate import check_brief
    from mam.control_plane.loops import reviewers
    from mam.control_plane.loops import start as loop_start
    from mam.control_plane.worktrees import prepare as worktrees

    if bool(args.creator) == args.review_only:
        raise Usage(what="a loop has a creator, or is --review-only", hint="--creator AGENT, or --review-only")
    loop_id = loop_start.check_id(args.id) if args.id else loop_start.new_id()
    task = check_brief(*read_brief(args.task, mam.settings.cwd))
    wanted = args.worktree or mam.settings.text("MAM_LOOP_WORKTREE")
    if not wanted:
        raise Usage(what="--worktree is missing", hint="name one of `mam worktree list`, or set MAM_LOOP_WORKTREE")
    if args.reviewers is not None:  # an empty list is a mistake, and never means all of them
        names = [name.strip() for name in args.reviewers.split(",") if name.strip()]
    else:
        pool = reviewers.PoolChoice(args.pool, args.pick)
        names = reviewers.choose(mam, loop_id, pool, without=args.creator, priority=args.priority, say=say)
    return loop_start.LoopRequest(
        task=task,
        worktree=worktrees.path_of(mam, wanted),
        creator=args.creator,
        reviewers=names,
        base=args.base,
        rounds=args.rounds,
        isolation=args.review_isolation,
        promote=args.promote,
        remote=args.remote_review,
        test_command=args.test,
        loop_id=loop_id,
        priority=args.priority,
    )


def _limit(parser: Parser) -> None:
    parser.add_argument("--limit", type=float, metavar="S", help="the most that one job may take")


def _limits(mam: Mam, limit_s: float | None) -> Any:
    from mam.control_plane.jobs import delegate as delegation

    limits = delegation.default_limits(mam)
    if limit_s is None:
        return limits
    check_seconds("--limit", limit_s, 3600)
    return limits._replace(limit_s=limit_s)


def _resume(words: list[str]) -> int:
    from mam.control_plane.loops import run as loop_run

    def build(parser: Parser) -> None:
        _one(parser)
        _limit(parser)

    args = verb(words, 2, "mam loop resume loop-1a2b3c4d", "go on with a loop that was killed or is stuck", build)
    mam = Mam.open(root=args.root)
    return _told(args, mam, loop_run.resume(mam, args.loop, say=say, limits=_limits(mam, args.limit)))


def _cancel(words: list[str]) -> int:
    from mam.control_plane.loops import run as loop_run

    args = verb(words, 2, "mam loop cancel loop-1a2b3c4d", "end a loop, its jobs and its review trees", _one)
    loop = loop_run.cancel(Mam.open(root=args.root), args.loop, say=say)
    emit(args, _data(loop), f"{loop.id}: {loop.outcome or loop.state}")
    return 0


def _one(parser: Parser) -> None:
    add_root(parser)
    parser.add_argument("loop")


def _data(loop: Loop) -> dict[str, Any]:
    hidden = ("checkpoint", "reviewers", "cancel_at")
    shown = {name: getattr(loop, name) for name in Loop.columns() if name not in hidden}
    state = json.loads(loop.checkpoint)
    return {**shown, "reviewers": json.loads(loop.reviewers), "rounds": state["rounds"], "promoted": state["promoted"]}


def _told(args: argparse.Namespace, mam: Mam, loop: Loop) -> int:
    from mam.control_plane.explain import endings
    from mam.control_plane.loops import files as loop_files
    from mam.control_plane.loops import store as loop_store

    state = loop_store.state_of(loop)
    code = loop_store.exit_code(loop, state)
    lines = [f"{loop.id}: {loop.outcome or loop.state}" + (f": {loop.detail}" if loop.detail else "")]
    lines += ["", shown_table(loop_files.ROUNDS_HEADER, loop_files.rounds_table(state)), ""]
    if loop.outcome == "passed" and loop.head_sha:
        lines.append(f"passed by {', '.join(state.reviewers)}: {loop.head_sha} (base {loop.base_sha})")
    if state.promoted:
        lines.append(f"{'next' if loop.promote in ('none', 'pr-body') else 'done'}: {state.promoted}")
    lines += endings.remark_lines(loop, state) if loop.outcome != "passed" else []
    if landing := endings.landing(mam, loop, state):
        lines.append(f"next: {landing}")
    if loop.state == "stuck":
        lines.append(f"next: mam why {loop.id}, then mam loop resume {loop.id}")
    lines.append(f"files: {loop.folder}")
    emit(args, {**_data(loop), "exit_code": code}, "\n".join(lines))
    return code


def _list(words: list[str]) -> int:
    from mam.control_plane.loops import locks as loop_locks

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("--open", action="store_true", help="only loops that have not ended")

    args = verb(words, 2, "mam loop list --open", "loops, newest first", build)
    mam = Mam.open(root=args.root)
    with mam.registry.view() as view:
        found = view.loops(only_open=args.open)
    now = now_ms()
    rows = [tables.loop_row(loop, now, runs=loop_locks.runs(mam, loop.id)) for loop in found]
    emit(args, [_data(loop) for loop in found], shown_table(tables.LOOP_HEADER, rows) if rows else "no loops")
    return 0


def _show(words: list[str]) -> int:
    from mam.control_plane.loops import store as loop_store

    args = verb(words, 2, "mam loop show loop-1a2b3c4d", "a loop's rounds and timeline", _one)
    mam = Mam.open(root=args.root)
    with mam.registry.view() as view:
        loop = loop_store.need(view, args.loop)
    if args.json:
        emit(args, _data(loop), "")
        return 0
    _told(args, mam, loop)
    timeline = Path(loop.folder) / "timeline.md"
    if timeline.exists():
        print("\n" + "\n".join(clean_lines(timeline.read_text("utf-8", "replace"), lines=10_000)))
    return 0


def _archive(words: list[str]) -> int:
    from mam.control_plane.loops import store as loop_store

    def build(parser: Parser) -> None:
        add_root(parser)
        parser.add_argument("loop", nargs="?")
        add_older(parser, "loops")

    describe = "let go of the commits that ended loops pin; `loop list` shows such loops no longer, `loop show` does"
    args = verb(words, 2, "mam loop archive --older 30d", describe, build)
    mam = Mam.open(root=args.root)
    before = ended_before(mam, args.older)
    with mam.registry.view() as view:
        old = [loop.id for loop in view.loops() if loop.ended_at is not None and loop.ended_at < before]
    chosen = [args.loop] if args.loop else old
    freed = sum(loop_store.archive(mam, loop_id) for loop_id in chosen)
    emit(args, {"archived": chosen, "pins": freed}, f"archived {len(chosen)} loops, {freed} pins let go")
    return 0
