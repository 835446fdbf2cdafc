"""
The command line: parse, call, print, return a code with a meaning.

Only the module of the verb that was asked for is imported: imports are what a
short command costs.

Read first: base.py has what the verbs share; job.py is a typical noun.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from mam.broker.errors import MamError, Usage
from mam.broker.host import fault_points, terminal
from mam.broker.host.text import fold
from mam.broker.version import VERSION
from mam.control_plane.config import settings as config

if __name__ != "mam.control_plane.cli":
    raise ImportError("import this package as mam.control_plane.cli")

# noun -> (module, what it is for); in the order of the help
VERBS: dict[str, tuple[str, str]] = {
    "init": ("root", "make this repository a control root"),
    "up": ("root", "start broker and monitor, or find them running"),
    "down": ("root", "end monitor and broker; agents and their work stay"),
    "trust": ("trust", "let mam obey a file of the work tree, as .mam.env, until it changes"),
    "demo": ("demo", "watch the main job run in a temporary repository"),
    "doctor": ("doctor", "what is broken, what is not yet, what is fine; --fix repairs"),
    "status": ("show", "agents, open jobs and findings at a glance"),
    "why": ("show", "what is going on with an agent or a job, and what to do"),
    "tail": ("show", "events as they are recorded"),
    "verify": ("show", "check every signature of a job again, from the stored bytes"),
    "agent": ("agent", "create, list, show, attach, stop, resume, send; check, sample: an adapter, a screen"),
    "job": (
        "job",
        "delegate, list, show, wait, answer, cancel, retry, archive (agents: started, progress, ask, report, …)",
    ),
    "loop": ("loop", "run, list, show, resume, cancel, archive: review by all, on one exact commit"),
    "queue": ("queue", "who has which reviewer, who waits, and for how long"),
    "worktree": ("worktree", "prepare, list, remove, commit: a tree and a branch for each writer"),
    "events": ("events", "export, replay: recorded events in bad orders"),
    "chaos": ("events", "scripted agents over a bus that loses, doubles and reorders"),
    "registry": ("registry", "backup, rebuild, export, import"),
    "monitor": ("monitor", "run, once, install, uninstall"),
    "broker": ("monitor", "status"),
    "stand-in": ("stand_in", "a model stand-in on this machine, to try a turn offline"),
    "bench": ("bench", "measure this installation, as ratios"),
    "completion": ("completion", "a completion script for bash, zsh or fish"),
}
# What MAM calls itself; not in the help.
INTERNAL = {
    "agent-signal": "internal",
    "runner": "internal",
    "pane-host": "internal",
    "play": "internal",
    "names": "completion",
}
# What runs in a control root that is thrown away: ended from outside, it must not leave that root's processes behind.
TEMPORARY = ("demo", "chaos", "bench")
AGENT_SIDE = ("started", "heartbeat", "progress", "ask", "report")

EXIT_CODES = """exit codes: 0 done · 1 refused or failed · 2 wrong usage or place · 3 reported, but not_pass or failed ·
4 waited in vain · 5 agent busy · 6 broker unreachable · 75 busy, try again · 130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Never raises: every error becomes one message and an exit code."""
    _insist_on_utf8()
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(words)
    except MamError as error:
        _show(error.code, str(error), error.remedy, error.data, as_json="--json" in words)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough
        return 141
    except OSError as error:
        # A full disk, a directory of another user: the machine's trouble, in its own words.
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        _show("os_error", what, "`mam doctor` looks closer", {"errno": error.errno}, as_json="--json" in words)
        return 1
    except Exception as error:  # noqa: BLE001 (the border to the person)
        return _internal(error, as_json="--json" in words)


def _insist_on_utf8() -> None:
    """Start anew in UTF-8 mode where the environment forced another encoding of paths: rows and wires are UTF-8."""
    if sys.getfilesystemencoding() not in ("utf-8", "utf8"):
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: TID251 (ourselves, anew)


def _check_text(words: list[str]) -> None:
    """Raise Usage for words that are no text: no row, topic or prompt could carry them."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            shown = word.encode("utf-8", "backslashreplace").decode()
            raise Usage(what=f"{shown} is not UTF-8 text", hint="rename it, or use another path") from error


def _run(words: list[str]) -> int:
    _check_text(words)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"mam {VERSION}")
        return 0
    name = words[0]
    if name.startswith("-"):
        raise Usage(what=f"{name} stands before the verb", hint="options come after it: `mam status --root DIR`")
    if name == "job" and len(words) > 1 and words[1] in AGENT_SIDE:
        module = "agent_report" if words[1] == "report" else "agent_side"
    elif name in VERBS:
        module = VERBS[name][0]
    elif name in INTERNAL:
        module = INTERNAL[name]
    else:
        from mam.control_plane.cli.spelling import meant

        near = meant(name, VERBS, "mam ")
        raise Usage(what=f"there is no verb {name!r}", hint=f"{near}`mam --help` lists them")
    if name in TEMPORARY:
        signal.signal(signal.SIGTERM, _interrupt)
    fault_points.arm(config.load().text("MAM_FAULT"), _role(words))
    found = importlib.import_module(f"mam.control_plane.cli.{module}")
    code: int = found.run(words)
    return code


def _interrupt(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _role(words: list[str]) -> str:
    """What a fault point may be told apart by: the long-lived processes, agents' verbs, and the rest."""
    if words[0] in ("runner", "pane-host", "monitor"):
        return words[0]
    return "verb" if words[0] == "job" and words[1:2] and words[1] in AGENT_SIDE else "cli"


def _help() -> str:
    lines = ["usage: mam VERB …   (each has --help and --json)", ""]
    columns = terminal.columns(sys.stdout)
    lines += [fold(f"  {name:<10} {text}", columns, indent=" " * 13) for name, (_, text) in VERBS.items()]
    return "\n".join([*lines, "", fold(EXIT_CODES.replace("\n", " "), columns) if columns else EXIT_CODES])


def _show(code: str, message: str, remedy: str, data: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        shown = {"code": code, "message": message, "remedy": remedy, "data": data}
        print(json.dumps({"error": shown}, default=str, ensure_ascii=False), file=sys.stderr)
        return
    print(f"mam: {message}", file=sys.stderr)
    if remedy:
        print(f"  → {remedy}", file=sys.stderr)


def _internal(error: Exception, *, as_json: bool) -> int:
    import traceback

    if config.load().flag("MAM_DEBUG"):
        traceback.print_exc()
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 2)[-1]}:{where.lineno})"
    _show(
        "internal",
        f"this is a defect of mam: {what}",
        "run it again with MAM_DEBUG=1 and report it",
        {},
        as_json=as_json,
    )
    return 1
