"""The scorecard's table knows every row that a test is marked with, and no other."""

import json
import re
from pathlib import Path

import pytest

from tests import scorecard

TESTS = Path(__file__).parent


def test_every_marked_row_has_its_texts_and_every_text_its_tests() -> None:
    sources = [path.read_text("utf-8") for path in TESTS.rglob("test_*.py")]
    marked = {int(row) for text in sources for row in re.findall(r"mark\.scorecard\((\d+)\)", text)}

    assert marked == set(scorecard.ROWS)


def test_figures_are_summed_or_their_extremes_shown() -> None:
    values = scorecard.Values([1.26, 2000])

    assert f"{values}|{values:max.1}|{values:min.1}" == "2 001|2 000.0|1.3"


def test_the_table_stands_between_its_marks_and_needs_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorecard, "ROWS", {7: scorecard.Row("{n} faults", "0 lost", "{lost:max} lost")})
    document, figures = tmp_path / "doc.md", tmp_path / "figures"
    document.write_text(f"before\n{scorecard.BEGIN}\nold\n{scorecard.END}\nafter\n", "utf-8")
    lines = [{"row": 7, "name": "n", "value": 2}, {"row": 7, "name": "n", "value": 3}]
    figures.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    assert scorecard.main(str(figures), str(document)) == 1
    assert "old" in document.read_text("utf-8")

    with figures.open("a") as file:
        file.write(json.dumps({"row": 7, "name": "lost", "value": 0}) + "\n")
    assert scorecard.main(str(figures), str(document)) == 0

    said = document.read_text("utf-8")
    assert "| 7 | 5 faults | 0 lost | 0 lost |" in said and "old" not in said
    assert said.startswith("before\n") and said.endswith("\nafter\n")
