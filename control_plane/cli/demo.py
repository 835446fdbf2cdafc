"""mam demo: the whole story with real parts, in a repository that is thrown away afterwards."""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from mam.agents import catalog
from mam.broker.host.text import clean
from mam.broker.nats import process as nats_server
from mam.control_plane.cli.base import Parser, emit, say, verb
from mam.control_plane.cli.output import shown_table
from mam.control_plane.config import layout as layouts
from mam.control_plane.config import settings as config
from mam.control_plane.control_root import create, monitor_process
from mam.control_plane.control_root.context import Mam
from mam.control_plane.jobs import verify
from mam.control_plane.loops import files as loop_files
from mam.control_plane.loops import run as loop_run
from mam.control_plane.loops import store as loop_store
from mam.control_plane.loops.start import LoopRequest
from mam.control_plane.registry.records import Loop
from mam.control_plane.sessions import lifecycle, readiness, sessions
from mam.control_plane.worktrees import prepare as worktrees
from mam.wrappers import process

TREE = "discount"
CREATOR = "writer"
REVIEWERS = ("reviewer-a", "reviewer-b")
TASK = """Add a function `discounted(prices, percent)` to price.py: the total, less percent of it.

Commit it. `discounted([50, 50], 10)` is 90.
"""


def run(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        parser.add_argument("--agent", default="scripted", metavar="KIND", help="an installed agent CLI instead")
        parser.add_argument("--mux", default="auto")
        parser.add_argument("--keep", action="store_true", help="leave the repository and its processes there")

    own, rest = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    describe = "a defect is written, refused, corrected and passed, on one exact commit"
    args = verb(own, 1, "mam demo", describe, build)
    catalog.find(args.agent)
    folder = Path(tempfile.mkdtemp(prefix="mam-demo-")) / "shop"
    mam = None
    try:
        mam = _make_root(folder)
        return _play(mam, args, rest)
    finally:
        if args.keep and mam is not None:
            say(f"kept: cd {folder} && mam status")
        else:
            _clean(mam, folder)


def _make_root(folder: Path) -> Mam:
    folder.mkdir(parents=True)
    process.run(["git", "init", "-q", "-b", "main", str(folder)])
    for name, value in (("user.name", "demo"), ("user.email", "demo@localhost")):
        process.run(["git", "config", name, value], cwd=folder)
    (folder / "price.py").write_text("def total(prices):\n    return sum(prices)\n", "utf-8")
    process.run(["git", "add", "."], cwd=folder)
    process.run(["git", "commit", "-qm", "a small shop"], cwd=folder)
    first = config.load()
    # Nothing of the caller's own control plane may reach a demo.
    values = {k: v for k, v in first.values.items() if not k.startswith("MAM_") and k not in config.BINDING}
    settings = config.Settings(values, values, folder)
    mam = Mam(settings, layouts.layout(settings, str(folder)), by="demo")
    create.make(mam.layout, mam.settings.environ)
    return mam


def _play(mam: Mam, args: argparse.Namespace, rest: list[str]) -> int:
    began = time.monotonic()
    say(f"a repository for the demo: {mam.layout.root}")
    monitor_process.ensure(mam, say=say)
    tree = worktrees.prepare(mam, worktrees.WorktreeRequest(TREE), say)
    for name in (CREATOR, *REVIEWERS):
        writes = name == CREATOR
        script = [] if args.agent != "scripted" else ["--script", str(_script(mam, name))]
        place = Path(tree.path) if writes else mam.layout.root
        wish = sessions.AgentRequest(name, args.agent, "creator" if writes else "reviewer", place, args.mux)
        sessions.create(mam, wish._replace(args=[*script, *rest]))
        session = readiness.await_ready(mam, name, wait_s=60)
        say(f"{name} ({args.agent} in {session.mux}) in {place}: screen {session.screen}")
    asked = LoopRequest(TASK, Path(tree.path), CREATOR, REVIEWERS, promote="merge")
    loop = loop_run.begin(mam, asked, say=say)
    return _told(mam, args, loop, time.monotonic() - began)


def _told(mam: Mam, args: argparse.Namespace, loop: Loop, took_s: float) -> int:
    state = loop_store.state_of(loop)
    with mam.registry.view() as view:
        done = [job for job in view.jobs() if job.loop == loop.id]
        verified = all(verify.verify(mam.layout, view, job.id).ok for job in done)
    log = process.run(["git", "log", "--oneline", "main"], cwd=mam.layout.root).stdout
    lines = ["", shown_table(loop_files.ROUNDS_HEADER, loop_files.rounds_table(state))]
    for each in sorted(Path(loop.folder).glob("round-*/verdict-*.md")):
        words = [line for line in each.read_text("utf-8").splitlines() if line.strip()]
        lines += ["", f"{each.parent.name} {each.stem}", *(f"  | {clean(line)}" for line in words[4:])]
    lines += ["", "main:", *(f"  {line}" for line in log.splitlines())]
    lines += ["", f"{loop.outcome}: {state.promoted or loop.detail}"]
    lines.append(f"signatures: {'every event verified' if verified else 'NOT all verified'}")
    lines.append(f"took {took_s:.1f} s, on real parts: nats-server, git, panes; nothing of it stays")
    data = {"loop": loop.id, "outcome": loop.outcome, "rounds": loop.round, "head_sha": loop.head_sha}
    emit(args, {**data, "every_event_verified": verified, "took_s": took_s}, "\n".join(lines))
    return 0 if verified and loop_store.exit_code(loop, state) == 0 else 1


def _script(mam: Mam, name: str) -> Path:
    """What a scripted agent does with its jobs, one list of steps a job; a real agent reads the brief instead."""
    path = mam.layout.mam / f"demo-{name}.json"
    path.write_text(json.dumps(_SCRIPTS[name]), "utf-8")
    return path


def _steps(note: str, shell: str, **report: str) -> list[dict[str, object]]:
    return [{"started": {}}, {"progress": note}, {"shell": shell}, {"report": report}]


_DEFECT = r"printf '\n\ndef discounted(prices, percent):\n    return total(prices) * percent / 100\n' >> price.py"
_REPAIR = "sed -i.bak 's/ \\* percent/ * (100 - percent)/' price.py && rm price.py.bak"
_TRY = "python3 -c 'import price; assert price.discounted([50, 50], 10) == 90, price.discounted([50, 50], 10)'"
_SCRIPTS = {
    CREATOR: [
        _steps("writing discounted()", f"{_DEFECT} && git commit -qam 'A discount'", text="discounted() is there."),
        _steps(
            "answering the finding",
            f"{_REPAIR} && git commit -qam 'Take the discount off'",
            text="It gave the discount itself; now it takes it off.",
        ),
    ],
    "reviewer-a": [
        _steps("trying it", _TRY, text="price.py:6: 10 % off 100 gives 10, it must be 90.", verdict="not_pass"),
        _steps("trying it", _TRY, text="I ran it: 10 % off 100 is 90.", verdict="pass"),
    ],
    "reviewer-b": [_steps("reading it", "git show --stat", text="It reads well.", verdict="pass")],
}


def _clean(mam: Mam | None, folder: Path) -> None:
    """End exactly what was started, then remove the repository."""
    if mam is None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        return
    with mam.registry.view() as view:
        names = [session.name for session in view.sessions()]
    for name in names:
        lifecycle.stop(mam, name, force=True)
    monitor_process.end(mam.layout)
    nats_server.stop(mam.layout.broker)
    shutil.rmtree(folder.parent, ignore_errors=True)
