"""What is to be done: a sentence on the command line, or a file; exactly one of the two."""

import json
import os
from pathlib import Path

import pytest

from mam.control_plane.cli import main
from mam.control_plane.cli.job import read_task
from mam.control_plane.jobs.delegate import BriefRefused, check_brief
from tests.support import Root


def test_a_sentence_is_a_whole_brief(root: Root) -> None:
    root.agent()

    said = root.mam("job", "delegate", "--to", "writer", "Say 'hello' in 한국어", "--json")

    assert said.code == 0, said.err
    brief = root.path / ".mam" / "jobs" / said.json["id"] / "brief.md"
    assert "Say 'hello' in 한국어" in brief.read_text("utf-8")
    assert said.json["title"] == "Say 'hello' in 한국어"


@pytest.mark.parametrize("words", [[], ["do this", "--brief", "README"]], ids=["neither", "both"])
def test_neither_and_both_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "delegate", "--to", "writer", *words, "--json"]) == 2

    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "usage" and "what is to be done" in error["message"]


@pytest.mark.parametrize(
    "text", ["", " \n", os.fsdecode(b"caf\xe9"), "x" * (1024 * 1024 + 1)], ids=["empty", "blank", "latin-1", "long"]
)
def test_a_text_is_held_to_what_a_file_is_held_to(text: str) -> None:
    with pytest.raises(BriefRefused, match="the command line"):
        check_brief(*read_task(text, None, Path("/")))
