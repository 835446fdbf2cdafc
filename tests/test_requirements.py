"""What is promised is proven by tests that pass: a skipped one is no proof."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.coverage_of_requirements import PROMISED

REPOSITORY = Path(__file__).parents[1]
SETTINGS = "[pytest]\ntestpaths = tests\nmarkers = req(*ids): lines\naddopts = --import-mode=importlib -p tests.proof\n"
BODIES = {
    "passes": "pass",
    "is skipped": "pytest.skip('no such program')",
    "fails as expected": "pytest.xfail('not yet')",
}


def suite(folder: Path, lines: list[str], body: str, *words: str, ci: str = "true") -> subprocess.CompletedProcess[str]:
    """Run a suite with one test, which is marked with *lines*, as CI runs ours."""
    (folder / "tests").mkdir()
    (folder / "pytest.ini").write_text(SETTINGS, "utf-8")
    marks = f"@pytest.mark.req({', '.join(map(repr, lines))})"
    text = f"import pytest\n{marks}\ndef test_all():\n    {body}\ndef test_other(): pass\n"
    (folder / "tests" / "test_lines.py").write_text(text, "utf-8")
    env = {**os.environ, "CI": ci, "PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": "1"}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.req("M109")
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
@pytest.mark.parametrize("body", BODIES)
def test_in_ci_a_line_is_proven_only_by_a_test_that_passed(tmp_path: Path, body: str, workers: list[str]) -> None:
    said = suite(tmp_path, PROMISED, BODIES[body], *workers)

    assert said.returncode == (0 if body == "passes" else 1), said.stdout
    assert (f"no test proved in this run: {' '.join(PROMISED)}" in said.stdout) is (body != "passes")


def test_a_line_without_a_test_is_named(tmp_path: Path) -> None:
    said = suite(tmp_path, PROMISED[1:], "pass")

    assert said.returncode == 1
    assert f"no test proved in this run: {PROMISED[0]}\n" in said.stdout


@pytest.mark.parametrize("part", [["-k", "other"], ["-m", "not req"], ["tests/test_lines.py"]], ids=" ".join)
def test_a_part_of_the_suite_proves_what_it_proves_and_fails_for_nothing(tmp_path: Path, part: list[str]) -> None:
    assert suite(tmp_path, PROMISED, "pass", *part).returncode == 0


def test_at_home_what_is_not_proven_is_told_and_fails_nothing(tmp_path: Path) -> None:
    said = suite(tmp_path, PROMISED, BODIES["is skipped"], ci="")

    assert said.returncode == 0 and "no test proved in this run" in said.stdout


def test_a_mark_that_names_no_line_is_refused(tmp_path: Path) -> None:
    said = suite(tmp_path, [*PROMISED, "M110"], "pass")

    assert said.returncode != 0 and "the contract has no line M110" in said.stdout + said.stderr
