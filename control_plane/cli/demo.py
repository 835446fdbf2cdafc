"""mam demo: the main job, with real parts, in a repository that is thrown away afterwards."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from mam.agents import catalog
from mam.broker import server
from mam.broker.bodies import now_ms
from mam.control_plane import daemon, jobs, lives, root, sessions, verify, views
from mam.control_plane import settings as config
from mam.control_plane.cli.base import Parser, emit, say, verb
from mam.control_plane.rows import Job
from mam.control_plane.wiring import Mam
from mam.wrappers import process
from mam.wrappers.relay import body_of

CREATOR = "writer"
REVIEWERS = ("reviewer-a", "reviewer-b")
IDENTITY = ("-c", "user.name=demo", "-c", "user.email=demo@localhost")


def run(words: list[str]) -> int:
    def build(parser: Parser) -> None:
        parser.add_argument("--agent", default="scripted", metavar="KIND", help="an installed agent CLI instead")
        parser.add_argument("--mux", default="auto")
        parser.add_argument("--keep", action="store_true", help="leave the repository and its processes there")
        parser.add_argument("--timeout", type=float, default=300, metavar="S", help="for each step")

    own, rest = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    args = verb(own, 1, "mam demo", "a creator and two reviewers get a job each", build)
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
    (folder / "price.py").write_text("def total(prices):\n    return sum(prices)\n", "utf-8")
    process.run(["git", "add", "."], cwd=folder)
    process.run(["git", *IDENTITY, "commit", "-qm", "a small shop"], cwd=folder)
    first = config.load()
    # Nothing of the caller's own control plane may reach a demo.
    values = {k: v for k, v in first.values.items() if not k.startswith("MAM_") and k not in config.BINDING}
    settings = config.Settings(values, values, folder)
    mam = Mam(settings, config.layout(settings, str(folder)), by="demo")
    root.make(mam.layout)
    return mam


def _play(mam: Mam, args: argparse.Namespace, rest: list[str]) -> int:
    began = time.monotonic()
    say(f"a repository for the demo: {mam.layout.root}")
    daemon.ensure(mam, say=say)
    known = daemon.look(mam.layout)
    say(f"broker {known.broker if known else '?'}, monitor pid {known.process.pid if known else '?'}")
    for name in (CREATOR, *REVIEWERS):
        role = "creator" if name == CREATOR else "reviewer"
        script = [] if args.agent != "scripted" else ["--script", str(_script(mam, name))]
        wish = sessions.Wish(name, args.agent, role, mam.layout.root, args.mux, args=[*script, *rest])
        sessions.create(mam, wish)
        session = sessions.await_ready(mam, name, wait_s=60)
        say(f"{name} ({args.agent} in {session.mux}): screen {session.screen}")
    tail = _Tail(mam)
    written = _finish(mam, tail, [jobs.delegate(mam, CREATOR, _task(CREATOR), title="a discount for the shop")], args)
    reviews = [jobs.delegate(mam, name, _task(name), title=f"review by {name}") for name in REVIEWERS]
    done = [*written, *_finish(mam, tail, reviews, args)]
    with mam.registry.view() as view:
        verified = all(verify.verify(mam.layout, view, job.id).ok for job in done)
    took_s = time.monotonic() - began
    data = {"jobs": [views.job_data(job) for job in done], "every_event_verified": verified, "took_s": took_s}
    emit(args, data, _told(done, verified, took_s))
    return 0 if verified and all(jobs.exit_code(job) == 0 for job in done) else 1


def _told(done: list[Job], verified: bool, took_s: float) -> str:
    lines = ["", views.table(views.JOB_HEADER, views.job_rows(done, now_ms()))]
    report = jobs.find_report(done[0])
    if report is not None:
        lines += ["", str(report), *(f"  | {views.clean(line)}" for line in report.read_text("utf-8").splitlines())]
    lines += ["", f"signatures: {'every event verified' if verified else 'NOT all verified'}"]
    return "\n".join([*lines, f"took {took_s:.1f} s, on real parts: nats-server, git, panes; nothing of it stays"])


class _Tail:
    """Prints what the registry records, as it comes."""

    def __init__(self, mam: Mam) -> None:
        self._view = mam.registry.watch()
        self._after = self._view.last_event()

    def show(self) -> None:
        for event in self._view.events(after=self._after):
            self._after = event["seq"]
            print("  " + views.event_line(event, body_of(event["wire"]), now_ms()).strip(), file=sys.stderr)


def _finish(mam: Mam, tail: _Tail, started: list[Job], args: argparse.Namespace) -> list[Job]:
    """Follow these jobs to their end; their last rows."""
    deadline = time.monotonic() + args.timeout
    while True:
        tail.show()
        with mam.registry.view() as view:
            current = [jobs.need(view, job.id) for job in started]
        if all(jobs.exit_code(job) is not None for job in current) or time.monotonic() > deadline:
            return current
        time.sleep(0.05)


def _task(name: str) -> str:
    if name == CREATOR:
        return "Add a function `discounted(prices, percent)` to price.py, and say in your report what it does."
    return "Read price.py and say in your report whether `discounted` is right. Give a verdict."


def _script(mam: Mam, name: str) -> Path:
    """What a scripted agent does with its job; a real agent reads the brief instead."""
    code = "def discounted(prices, percent):\\n    return total(prices) * (100 - percent) / 100\\n"
    steps: list[dict[str, object]] = [{"started": {}}]
    if name == CREATOR:
        steps.append({"progress": "writing discounted()"})
        steps.append({"shell": f"printf '\\n\\n{code}' >> price.py && git diff --stat"})
        text = "`discounted(prices, percent)` takes a percentage off the total.\n\nOne function, no other change."
        steps.append({"report": {"text": text}})
    else:
        steps.append({"progress": "checking discounted()"})
        steps.append({"shell": "python3 -c 'import price; assert price.discounted([50, 50], 10) == 90'"})
        steps.append({"report": {"text": "I ran it: 10 % off 100 is 90.", "verdict": "pass"}})
    path = mam.layout.mam / f"demo-{name}.json"
    path.write_text(json.dumps(steps), "utf-8")
    return path


def _clean(mam: Mam | None, folder: Path) -> None:
    """End exactly what was started, then remove the repository."""
    if mam is None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        return
    with mam.registry.view() as view:
        names = [session.name for session in view.sessions()]
    for name in names:
        lives.stop(mam, name, force=True)
    daemon.end(mam.layout)
    server.stop(mam.layout.broker)
    shutil.rmtree(folder.parent, ignore_errors=True)
