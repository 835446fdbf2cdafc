"""The command line itself: what it loads, how it fails, what it promises."""

import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from mam.broker.version import VERSION
from mam.control_plane import cli
from mam.control_plane.registry.records import Finding
from mam.control_plane.simulation import chaos, replay
from tests.support import MAM, Root, run_mam, until
from tests.support.desk import Desk

HEAVY = {"pydantic", "paho", "yaml", "git", "psutil", "filelock", "pyte", "sqlite3", "asyncio", "subprocess"}
LOADED = (
    "import sys; from mam.control_plane.cli import main; main({words!r}); "
    "print(chr(10) + ' '.join(sorted(sys.modules)))"
)


def loaded(words: list[str], cwd: Path) -> set[str]:
    """The top-level packages that a verb has imported when it is done."""
    program = LOADED.format(words=words)
    done = subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(
    "words",
    [
        ["report", "--result", "done", "--head-sha", "0123abc"],
        ["report", "--result", "done", "--base-sha", "HEAD"],
        ["ask", " "],
        ["ask", "which?", "--choices", ",".join(map(str, range(21)))],
        ["ask", "which?", "--choices", "x" * 201],
    ],
)
def test_what_the_registry_would_refuse_is_refused_where_the_agent_sees_it(desk: Desk, words: list[str]) -> None:
    desk.session()
    job = desk.job()
    Path(job.report_path).write_text("all done\n", "utf-8")
    which = ["--registry-dir", str(desk.mam.layout.jobs), "--job", job.id, "--attempt", "1"]

    said = run_mam("job", words[0], *which, *words[1:], "--json", cwd=desk.mam.layout.root)

    assert (said.code, said.error["code"]) == (2, "usage")
    assert list((desk.mam.layout.run_dir("writer") / "outbox").iterdir()) == []


@pytest.mark.req("M93")
def test_a_server_that_could_not_be_asked_is_named_and_not_called_as_it_should_be(desk: Desk) -> None:
    desk.session(mux="tmux", mux_server="x" * 200)  # its socket's name is too long

    said = run_mam("monitor", "once", cwd=desk.mam.layout.root)

    assert said.code == 75 and "did not answer" in said.err and "as far as could be looked at" in said.out


def test_one_look_names_a_card_that_the_monitor_saw_on_the_broker(desk: Desk) -> None:
    desk.session()
    desk.job()
    with desk.mam.registry.transaction() as tx:
        for name in ("job-00000001", "job-99999999"):
            tx.put(Finding("card_left", f"jobs/{name}/state", desk.clock, "a retained card"))

    said = run_mam("monitor", "once", "--json", cwd=desk.mam.layout.root)

    assert said.code == 1
    assert [(each["kind"], each["subject"]) for each in said.json] == [("H", "jobs/job-99999999/state")]


@pytest.mark.parametrize("verb", ["started", "progress", "heartbeat"])
def test_what_agents_say_often_loads_nothing_but_the_standard_library(desk: Desk, verb: str) -> None:
    desk.session()
    job = desk.job()
    words = ["job", verb, "--registry-dir", str(desk.mam.layout.jobs), "--job", job.id, "--attempt", "1"]
    words += ["--note", "x"] if verb == "progress" else []

    found = loaded(words, desk.mam.layout.root)

    assert found & HEAVY == set()
    assert len(list((desk.mam.layout.run_dir("writer") / "outbox").glob("*-*.*"))) == 1


def test_help_loads_no_verb() -> None:
    assert loaded(["--help"], Path.cwd()) & HEAVY == set()


def test_status_loads_neither_models_nor_the_bus(root: Root) -> None:
    assert loaded(["status"], root.path) & {"pydantic", "paho", "yaml", "git", "pyte"} == set()


def test_a_defect_is_one_line_and_the_traceback_is_for_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(words: list[str]) -> int:
        raise RuntimeError("boom")

    monkeypatch.setattr(cli, "_run", broken)

    assert cli.main(["status"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("MAM_DEBUG", "1")
    assert cli.main(["status", "--json"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert json.loads(err.splitlines()[-1])["error"]["code"] == "internal"


def test_an_interrupted_verb_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)

    assert cli.main(["status"]) == 130


@pytest.mark.parametrize("words", [("chaos", "--agents", "1"), ("demo", "--mux", "headless")])
def test_a_control_root_to_throw_away_is_thrown_away_when_its_verb_is_ended(words: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as place:  # a socket's path is short
        child = subprocess.Popen([MAM, *words], env={**os.environ, "TMPDIR": place}, stdout=subprocess.DEVNULL)
        until(lambda: len(processes_in(place)) >= 2, what="monitor and broker run")

        child.terminate()

        assert child.wait(120) == 130
        until(lambda: processes_in(place) == [], what="all that was started has ended")
        assert os.listdir(place) == []


def test_chaos_plays_its_jobs_to_their_end_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as place:
        words = ["chaos", "--agents", "1", "--jobs", "2", "--timeout", "120", "--json"]

        said = run_mam(*words, cwd=Path(place), env={"TMPDIR": place}, timeout_s=170)

        assert said.code == 0, said.out + said.err
        assert (said.json["done"], said.json["wrong"]) == (2, [])
        until(lambda: processes_in(place) == [], what="all that was started has ended")
        assert os.listdir(place) == []


def test_chaos_plays_what_the_jobs_of_an_export_said(root: Root) -> None:
    steps: list[dict[str, Any]] = [
        {"started": {}},
        {"progress": "one"},
        {"progress": "two"},
        {"report": {"text": "no", "result": "failed"}},
    ]
    root.agent("writer", *steps)
    told = root.delegate()
    root.mam("job", "wait", told)
    root.agent("lazy", {"started": {}}, {"hang": {}})
    root.delegate("lazy")
    events = root.path / "events.jsonl"
    assert root.mam("events", "export", "--output", str(events)).code == 0

    said = root.mam("chaos", "--events", "events.jsonl", "--agents", "1", "--json", timeout_s=170)

    assert (said.code, said.json["done"], said.json["wrong"]) == (0, 1, []), "the one that was reported"
    plays = chaos.recorded(replay.read(events))
    assert [[*map(next, map(iter, play.steps))] for play in plays] == [["started", "progress", "progress", "report"]]
    assert [(play.result, play.verdict) for play in plays] == [("failed", None)]


def test_chaos_without_a_reported_job_is_refused(root: Root) -> None:
    root.agent("lazy", {"started": {}}, {"hang": {}})
    root.delegate("lazy")
    root.mam("events", "export", "--output", "events.jsonl")

    said = root.mam("chaos", "--events", "events.jsonl", "--json")

    assert (said.code, said.error["code"]) == (2, "usage") and "was reported" in said.error["message"]


def processes_in(place: str) -> list[str]:
    lines = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if f"{place}/" in line]


@pytest.mark.parametrize("name", sorted(cli.VERBS))
def test_every_verb_explains_itself(name: str, tmp_path: Path) -> None:
    said = run_mam(name, "--help", cwd=tmp_path)

    assert said.code == 0
    assert said.out.startswith("usage: mam")


@pytest.mark.parametrize("option", ["--limit", "--started-within", "--deliver-within", "--heartbeat-misses"])
def test_a_limit_that_cannot_be_is_called_as_it_was_given(desk: Desk, option: str) -> None:
    words = ["job", "delegate", "--to", "writer", "--brief", "-", option, "0", "--json"]

    error = run_mam(*words, "--root", str(desk.mam.layout.root), cwd=Path.cwd(), stdin="do it").error

    assert error["message"] == f"{option} must be above zero" and error["remedy"].startswith(f"{option} ")


@pytest.mark.parametrize("noun", ["job", "loop"])
def test_archive_says_which_it_takes_and_that_they_are_listed_no_longer(noun: str) -> None:
    said = " ".join(run_mam(noun, "archive", "--help", cwd=Path.cwd()).out.split())

    assert "default: MAM_KEEP_DAYS, else 30d" in said and f"`{noun} list` shows" in said and "no longer" in said


def test_the_help_of_jobs_names_the_agents_own_verbs(tmp_path: Path) -> None:
    said = run_mam("job", "--help", cwd=tmp_path).out

    assert all(verb in said for verb in cli.AGENT_SIDE)


def test_an_option_before_the_verb_is_told_its_place(tmp_path: Path) -> None:
    said = run_mam("--root", str(tmp_path), "status", cwd=tmp_path)

    assert said.code == 2 and "--root stands before the verb" in said.err and "after it" in said.err


def test_the_help_and_the_readme_name_every_verb() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")

    for name in cli.VERBS:
        assert f"mam {name}" in readme, name
        assert f"  {name}" in cli._help()


def test_the_version_is_the_running_codes_and_the_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAM_VERSION", "0.0.1")

    assert run_mam("--version", cwd=tmp_path).out.strip() == f"mam {VERSION}"
    assert metadata.version("multi-agent-mux") == VERSION


@pytest.mark.parametrize("room", ["broker", "agents", "wrappers", "control_plane"])
def test_a_room_cannot_be_imported_under_its_bare_name(room: str) -> None:
    top = Path(__file__).parents[3]

    done = subprocess.run([sys.executable, "-c", f"import {room}"], cwd=top, capture_output=True, text=True)

    assert f"import this package as mam.{room}" in done.stderr


def test_an_export_that_cannot_be_leaves_the_earlier_one_as_it_was(root: Root, tmp_path: Path) -> None:
    kept = tmp_path / "events.jsonl"
    kept.write_text("an earlier export\n", "utf-8")

    said = root.mam("events", "export", "job-nowhere", "--output", str(kept))
    shown = root.mam("events", "export", "job-nowhere")

    assert (said.code, shown.code, shown.out) == (2, 2, "")
    assert kept.read_text("utf-8") == "an earlier export\n"
