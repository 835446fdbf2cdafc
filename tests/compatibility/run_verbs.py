"""
Runs verbs of the `mam` that this interpreter has, each in a fork of one process that has imported it, and writes down
what came of them: hundreds of verbs take seconds so.

The clock stands still, so that ages are equal. After a verb that acted the recorded place is copied anew.
Usage: PYTHON run_verbs.py REQUEST, a JSON file with `cases`, `store`, `place`, `clock_ns` and `out`.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LIMIT_S = 30


def stop_clock(now_ns: int) -> None:
    """Every later `time.time()` returns the same moment; what waits uses `time.monotonic()`, which goes on."""
    time.time_ns = lambda: now_ns
    time.time = lambda: now_ns / 1e9


def import_all() -> None:
    for room in ("broker", "agents", "wrappers", "control_plane"):
        package = importlib.import_module(f"mam.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"mam.{room}."):
            importlib.import_module(module.name)


def fresh(store: str, place: str) -> None:
    """Put the recorded tree at the place that it was recorded at, with its pipes, links and times."""
    subprocess.run(["rm", "-rf", place], check=True)
    subprocess.run(["cp", "-a", store, place], check=True)


def migrate(folder: Path) -> None:
    """What `mam up` does first with the registry of an older version; the released one knows no older."""
    try:
        database = importlib.import_module("mam.control_plane.registry.database")
    except ModuleNotFoundError:
        return
    database.migrate(folder / "registry.db", folder / "backups")


def play(case: dict[str, Any], place: Path, scratch: Path) -> dict[str, Any]:
    """One verb in a child process: its exit code, standard output and standard error."""
    (scratch / "in").write_text(case["stdin"], "utf-8")
    pid = os.fork()
    if pid == 0:
        _in_child(case, place, scratch)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    out, err = ((scratch / name).read_text("utf-8", "replace") for name in ("out", "err"))
    return {"code": code, "out": out, "err": err}


def _in_child(case: dict[str, Any], place: Path, scratch: Path) -> None:
    """Never returns."""
    code = 70
    try:
        for number, name in enumerate(("in", "out", "err")):
            flags = os.O_RDONLY if name == "in" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(scratch / name, flags, 0o600), number)
        os.setpgid(0, 0)
        signal.alarm(LIMIT_S)
        os.chdir(place / case["cwd"])
        os.environ.update(case["env"])
        sys.argv = [str(Path(sys.executable).parent / "mam"), *case["words"]]
        code = importlib.import_module("mam.control_plane.cli").main(case["words"])
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as ended:  # argparse, after its help
        code = ended.code if isinstance(ended.code, int) else 1
        sys.stdout.flush()
    finally:
        os._exit(code)


def main(request: dict[str, Any]) -> None:
    stop_clock(request["clock_ns"])
    import_all()
    gc.freeze()
    place, scratch = Path(request["place"]), Path(request["out"]).parent
    store = str(scratch / "store")
    fresh(request["store"], str(place))
    migrate(place / "repo" / ".mam")
    fresh(str(place), store)
    changed, results = True, []
    for case in request["cases"]:
        if changed:
            fresh(store, str(place))
        results.append(play(case, place, scratch))
        changed = case["acts"] and results[-1]["code"] == 0
    Path(request["out"]).write_text(json.dumps(results), "utf-8")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
