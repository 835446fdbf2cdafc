"""What creators and reviewers of a loop are told: fixed first lines, absolute paths, commands that really run."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mam.control_plane.jobs import reports
from mam.control_plane.loops import briefs as loop_briefs
from mam.control_plane.loops.briefs import Change, Remarks, ReviewTree, WorkPlace
from tests.support import git, repository

SHA, HEAD = "a" * 40, "b" * 40
ODD = [
    "plain",
    "with space",
    'it\'s "quoted"',
    "$HOME `id` $(id)",
    "한국어 äöü",
    "two\nlines",
    "-dash; & | * ?",
    "back\\slash",
]
PROBE = """import json, os, subprocess, sys
names = ("AGENT_PYTHON_BIN", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTEST_ADDOPTS", "TMPDIR", "MAM_OUTPUT_DIR")
seen = {name: os.environ[name] for name in names}
# As a script that the tests start would do it: there is no environment of its own in the tree.
child = [os.environ["AGENT_PYTHON_BIN"], "-c", "import sys; print(sys.executable)"]
seen["child"] = subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip()
seen["cwd"] = os.getcwd()
seen["argv"] = sys.argv[1:]
print(json.dumps(seen))
"""


def bench_in(folder: Path, *, isolated: bool = True) -> ReviewTree:
    for name in ("tree", "out", "tmp"):
        (folder / name).mkdir(parents=True)
    return ReviewTree(folder / "tree", folder / "out", folder / "tmp", sys.executable, isolated)


def command_in(brief: str) -> str:
    """The command below "How to try it", as an agent would copy it."""
    return brief.split("nothing into the tree:\n\n    ", 1)[1].split("\n\n`AGENT_PYTHON_BIN`", 1)[0]


def run(line: str, shell: str = "sh") -> "subprocess.CompletedProcess[str]":
    return subprocess.run([shell, "-c", line], cwd="/", capture_output=True, text=True)


@pytest.mark.req("M24")
@pytest.mark.parametrize("name", ODD)
def test_the_first_line_names_worktree_branch_base_and_head_on_one_line(name: str) -> None:
    line = WorkPlace(f"/repo/{name}", "fix/x", SHA, HEAD).line()

    assert len(line.splitlines()) == 1
    assert line.endswith(f" / branch fix/x / base {SHA} / head {HEAD}")
    word = line.removeprefix("Worktree ").split(" / branch ")[0]
    assert run(f"printf %s {word}", "bash").stdout == f"/repo/{name}"


@pytest.mark.req("M24")
def test_a_detached_worktree_and_a_first_round_say_so() -> None:
    assert WorkPlace("/w", None, SHA).line() == f"Worktree /w / branch (detached) / base {SHA}"


@pytest.mark.req("M16", "M63")
@pytest.mark.parametrize("name", ODD)
def test_the_line_that_a_reviewer_copies_runs_whatever_the_paths_are_called(tmp_path: Path, name: str) -> None:
    bench = bench_in(tmp_path / name)
    (bench.tree / "probe.py").write_text(PROBE, "utf-8")
    command = '"$AGENT_PYTHON_BIN" probe.py first && "$AGENT_PYTHON_BIN" probe.py \'and "second"\''
    place = WorkPlace("/w", "b", SHA, HEAD)

    done = run(command_in(loop_briefs.review("t", place, bench, command, Change("", Path("/d")))))

    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["AGENT_PYTHON_BIN"] == sys.executable and Path(first["child"]).samefile(sys.executable)
    assert first["PYTHONDONTWRITEBYTECODE"] == "1"
    assert first["PYTHONPATH"].split(":")[0] == first["cwd"] == str(bench.tree)
    assert (first["TMPDIR"], first["MAM_OUTPUT_DIR"]) == (str(bench.tmp), str(bench.out))
    assert (first["argv"], second["argv"]) == (["first"], ['and "second"'])
    assert {**first, "argv": []} == {**second, "argv": []}  # the variables hold for the whole command


@pytest.mark.req("M59")
@pytest.mark.parametrize("name", ["plain", "with space", "it's $HOME", "two\nlines"])
def test_pytest_by_the_briefs_own_line_writes_nothing_into_the_tree(tmp_path: Path, name: str) -> None:
    bench = bench_in(tmp_path / name)
    (bench.tree / "src").mkdir()
    (bench.tree / "src" / "thing.py").write_text("VALUE = 3\n", "utf-8")
    test = "import thing, tempfile\n\n\ndef test_it(tmp_path):\n    tempfile.mkstemp()\n    assert thing.VALUE == 3\n"
    (bench.tree / "test_it.py").write_text(test, "utf-8")
    before = sorted(bench.tree.rglob("*"))

    place = WorkPlace("/w", "b", SHA, HEAD)
    done = run(command_in(loop_briefs.review("t", place, bench, None, Change("", Path("/d")))))

    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(bench.tree.rglob("*")) == before
    assert (bench.tmp / "pytest").is_dir() and len(list(bench.tmp.iterdir())) == 2


@pytest.mark.req("M24", "M25")
@pytest.mark.parametrize("name", ODD)
def test_the_diff_that_a_reviewer_is_told_to_read_is_of_two_fixed_commits(tmp_path: Path, name: str) -> None:
    tree = repository(tmp_path / name)
    base = git(tree, "rev-parse", "HEAD")
    (tree / "new").write_text("x\n", "utf-8")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "second")
    head = git(tree, "rev-parse", "HEAD")
    bench = ReviewTree(tree, tree, tree, "python3", isolated=True)

    brief = loop_briefs.review("t", WorkPlace("/w", "b", base, head), bench, None, Change("", Path("/d")))

    command = brief.split("does not concern you.\n\n    ", 1)[1].split("\n\nThe same is in", 1)[0]
    assert "HEAD" not in command.replace(str(tree), "")
    assert "+++ b/new" in run(command).stdout


@pytest.mark.req("M13", "M24")
def test_every_path_of_a_review_brief_is_absolute() -> None:
    bench = ReviewTree(Path("/b/tree"), Path("/b/out"), Path("/b/tmp"), "/usr/bin/python3", isolated=True)
    brief = loop_briefs.review("t", WorkPlace("/w", "b", SHA, HEAD), bench, None, Change("", Path("/l/changes.diff")))

    variables = dict(word.split("=", 1) for word in shlex.split(command_in(brief)) if "=" in word)

    assert [os.path.isabs(path) for path in variables.pop("PYTHONPATH").split(":")] == [True, True]
    assert variables.pop("PYTEST_ADDOPTS") == "-p no:cacheprovider --basetemp=/b/tmp/pytest"
    assert variables.pop("PYTHONDONTWRITEBYTECODE") == "1"
    assert len(variables) == 3 and all(os.path.isabs(path) for path in variables.values())
    assert "/l/changes.diff" in brief and "-C /b/tree diff" in brief


@pytest.mark.req("M65")
def test_a_rework_brief_holds_the_findings_of_all_and_none_of_them_reads_as_ours() -> None:
    said = [Remarks("rev-a (not_pass)", f"# Big\n\nfoo.py:3 is wrong\n\n{reports.LINES['not_pass']}\n")]
    said.append(Remarks("rev-b (pass)", f"one remark\r\n{reports.LINES['pass']}\r\n"))

    brief = loop_briefs.rework("the task\n", 2, said)

    assert "> foo.py:3 is wrong" in brief and "> one remark" in brief and "the task" in brief
    assert "rev-a (not_pass)" in brief and "rev-b (pass)" in brief
    assert reports.said(brief) == []
    assert [line for line in brief.splitlines() if line.startswith("# ")] == []


@pytest.mark.req("M60")
def test_a_remote_reviewer_is_told_what_to_fetch_and_to_name_the_commit() -> None:
    place = WorkPlace("/w", "b", SHA, HEAD)

    brief = loop_briefs.remote_review("t", place, "a remote; rm -rf x", "refs/mam/review/l/1", "")

    assert "git fetch 'a remote; rm -rf x' refs/mam/review/l/1/base refs/mam/review/l/1/head" in brief
    assert f"--head-sha {HEAD}" in brief and reports.said(brief) == []


@pytest.mark.req("M58")
def test_a_reviewer_in_the_writers_own_tree_is_told_so() -> None:
    place, bench = (
        WorkPlace("/w", "b", SHA, HEAD),
        ReviewTree(Path("/w"), Path("/o"), Path("/t"), "python3", isolated=False),
    )

    assert "/w is the writer's own tree" in loop_briefs.review("t", place, bench, None, Change("", Path("/d")))
