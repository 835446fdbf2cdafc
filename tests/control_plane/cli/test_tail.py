"""`mam tail` and the completion script."""

import json
import os
import subprocess

from mam.control_plane.cli.show import LAST_EVENTS
from tests.support import Root


def test_tail_shows_a_job_from_its_first_event_and_only_that_job(root: Root) -> None:
    root.agent()
    first = root.delegate("writer", "one", "--wait")
    second = root.delegate("writer", "two", "--wait")

    said = root.mam("tail", second, "--no-follow", "--json")

    events = [json.loads(line) for line in said.out.splitlines()]
    assert [e["kind"] for e in events] == ["started", "progress", "report"]
    assert {e["scope"] for e in events} == {f"jobs/{second}"} != {f"jobs/{first}"}


def test_a_tail_of_everything_begins_with_the_last_events(root: Root) -> None:
    root.agent()
    root.delegate("writer", "one", "--wait")

    said = root.mam("tail", "--timeout", "0.1", "--json")

    seen = [json.loads(line)["seq"] for line in said.out.splitlines()]
    assert seen == [event["seq"] for event in root.events()][-LAST_EVENTS:]
    assert root.mam("down").out.splitlines()[-1].startswith("still running: writer;")


def test_foreign_text_cannot_move_the_cursor_of_whoever_looks(root: Root) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202eevil"
    root.agent("writer", {"started": {}}, {"progress": evil}, {"report": {"text": evil}})
    job = root.delegate("writer", f"title {evil}")
    root.mam("job", "wait", job)

    for words in (["status"], ["tail", job, "--no-follow"], ["why", job], ["why", "writer"], ["job", "list"],
                  ["job", "show", job], ["agent", "show", "writer"], ["job", "wait", job]):  # fmt: skip
        said = root.mam(*words)
        assert "\x1b" not in said.out + said.err, words
        assert "\u202e" not in said.out + said.err, words


def test_a_completion_script_knows_verbs_agents_and_jobs(root: Root) -> None:
    root.agent()
    script = root.mam("completion", "bash").out
    ask = 'COMP_WORDS=({words}); COMP_CWORD={at}; _mam; echo "${{COMPREPLY[@]}}"'

    def completed(words: str, at: int) -> str:
        program = f"{script}\n{ask.format(words=words, at=at)}"
        environ = {**os.environ, **root.env}
        return subprocess.run(
            ["bash", "-c", program], cwd=root.path, env=environ, capture_output=True, text=True
        ).stdout

    assert "doctor" in completed("mam do", 1)
    assert "resume" in completed("mam agent re", 2)
    assert "writer" in completed("mam why wr", 2)
    job = root.delegate("writer", "one")
    assert (completed("mam agent stop ''", 3).split(), completed("mam job wait ''", 3).split()) == (["writer"], [job])
    assert completed("mam job delegate --to ''", 4).split() == ["writer"]
    assert set(completed("mam why ''", 2).split()) == {"writer", job}
    assert {shell: root.mam("completion", shell).code for shell in ("zsh", "fish")} == {"zsh": 0, "fish": 0}
