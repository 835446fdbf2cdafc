"""What agents want of a person: all of it, everywhere, each with a command that works as it is shown."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.cli import main as run_verb
from mam.control_plane.explain import agents_and_jobs, endings, status
from mam.control_plane.explain.agents_and_jobs import Observed
from mam.control_plane.jobs import attention, jobs, questions
from mam.control_plane.jobs.attention import Want
from mam.control_plane.jobs.wait import News
from tests.support.desk import Desk

JOB = "job-00000001"
FIRST = {"question_id": "0123456789ab", "question": "Which database?", "choices": ["sqlite", "postgres"]}
SECOND = {"question_id": "f" * 12, "question": "Its name?", "timeout_s": 900, "fallback": "vole"}


@pytest.fixture
def asked(desk: Desk) -> Desk:
    """A job that has two open questions."""
    desk.session()
    desk.job()
    assert desk.take(JOB, desk.wire(JOB, "asked", FIRST), desk.wire(JOB, "asked", SECOND)) == ["accepted"] * 2
    return desk


def wants(desk: Desk, after_ms: int = 0) -> list[Want]:
    with desk.mam.registry.view() as view:
        return attention.wants(view, jobs.need(view, JOB), desk.clock + after_ms)


def test_all_open_questions_are_told_each_with_its_choices_its_default_and_its_commands(asked: Desk) -> None:
    one, other = wants(asked)

    assert one.what == "writer asks: “Which database?” (one of: sqlite, postgres)"
    assert [shlex.split(command)[4] for command in one.commands] == ["sqlite", "postgres"]
    assert other.what == "writer asks: “Its name?” (without an answer in 900 s: vole)"
    assert other.commands == (f"mam job answer {JOB} TEXT --question {'f' * 12}",)


def test_a_screen_that_asks_is_told_beside_the_questions_of_its_job(asked: Desk) -> None:
    with asked.mam.registry.transaction() as tx:
        (writer,) = tx.sessions()
        tx.put(replace(writer, screen="asking", screen_at=asked.clock))

    assert [want.commands for want in wants(asked, 60_000)][2:] == [("mam agent show writer",)]
    assert len(wants(asked)) == 2, "a question that was just drawn may be answered by a rule"


def test_a_screen_that_asks_without_a_job_is_told_while_a_monitor_looks_at_it(desk: Desk) -> None:
    writer = desk.session(screen="dialog", screen_at=desk.clock - 60_000)

    (want,) = attention.on_screen(writer, "", desk.clock)
    assert (want.agent, want.job, want.commands) == ("writer", "", ("mam agent show writer",))
    assert attention.on_screen(replace(writer, screen="ready"), "", desk.clock) == []
    assert status.take(desk.mam).wants == [], "no monitor runs: what is only remembered asks nothing now"


def test_why_names_every_open_question_and_how_earlier_ones_were_answered(asked: Desk) -> None:
    def why() -> agents_and_jobs.Explanation:
        with asked.mam.registry.view() as view:
            return agents_and_jobs.job(view, jobs.need(view, JOB), Observed(asked.clock, True))

    assert "Which database?" in why().because and "Its name?" in why().because
    assert why().awaited == "2 answers" and why().next.count("--question") == 3
    questions.answer(asked.mam, "0123456789ab", "sqlite", by="person")
    questions.answer(asked.mam, "f" * 12, "vole", by="timeout")

    seen = "\n".join(why().evidence)
    assert "“Which database?”, answered: sqlite (by a person)" in seen
    assert "“Its name?”, answered: vole (its default, since its time was over)" in seen
    with asked.mam.registry.view() as view:
        shown = "\n".join(endings.question_lines(view, jobs.need(view, JOB)))
    assert "→ sqlite (by a person)" in shown and "→ vole (its default" in shown


def test_a_person_who_waits_is_told_for_whom_and_what_is_wanted_once_and_again_at_the_end(asked: Desk) -> None:
    said: list[str] = []
    news = News(said.append)
    with asked.mam.registry.view() as view:
        for _ in range(3):
            news.tell(view, jobs.need(view, JOB), asked.clock)
    first, *others = said

    assert first == "waiting for writer (scripted); its pane: mam agent show writer"
    assert [line.partition("\n")[0] for line in others if "asks:" in line] == [want.what for want in wants(asked)]
    news.repeat()
    assert said[-2:] == [want.text() for want in wants(asked)]


def test_a_text_that_is_wanted_is_folded_but_never_a_command() -> None:
    want = Want("w", JOB, "w asks: " + "long words " * 20, (f"mam job answer {JOB} " + "x" * 200,))

    *what, command = want.text(60).splitlines()
    assert len(what) > 3 and max(map(len, what)) <= 60
    assert command == f"  → {want.commands[0]}"


class Asker:
    """An agent that asks with its verb, in this process."""

    def __init__(self, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = str(desk.mam.layout.jobs), capsys

    def ask(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the JSON, of an error too."""
        self._capsys.readouterr()
        code = run_verb(
            ["job", "ask", "--registry-dir", self._folder, "--job", JOB, "--attempt", "1", *words, "--json"]
        )
        said = self._capsys.readouterr()
        found: dict[str, Any] = json.loads(said.out or said.err)
        return code, found.get("error", found)


@pytest.fixture
def asker(desk: Desk, capsys: pytest.CaptureFixture[str]) -> Asker:
    desk.session()
    desk.job()
    return Asker(desk, capsys)


def arrive(desk: Desk, question_id: str) -> None:
    assert desk.take(JOB, desk.wire(JOB, "asked", {**FIRST, "question_id": question_id})) == ["accepted"]


def test_an_agent_with_short_tool_calls_asks_goes_on_and_fetches_the_answer_later(desk: Desk, asker: Asker) -> None:
    code, said = asker.ask("Which database?", "--choices", "sqlite,postgres", "--no-wait")
    assert code == 0 and shlex.split(said["poll"])[-2:] == ["--poll", said["question"]]
    arrive(desk, said["question"])

    code, refused = asker.ask("--poll", said["question"])
    assert (code, refused["code"]) == (4, "no_answer") and said["question"] in refused["remedy"]
    questions.answer(desk.mam, said["question"], "sqlite", by="person")

    assert asker.ask("--poll", said["question"]) == (0, {"answer": "sqlite", "by": "person"})


def test_an_answer_that_was_fetched_is_not_typed_as_well(desk: Desk, asker: Asker) -> None:
    _, said = asker.ask("Which database?", "--no-wait")
    arrive(desk, said["question"])
    questions.answer(desk.mam, said["question"], "sqlite", by="person")

    def typed() -> list[str]:
        with desk.mam.registry.view() as view:
            questions.tend(desk.mam, view, desk.clock)
            return [order.kind for order in view.outbox() if order.id.startswith("answer-")]

    assert typed() == ["say"]
    asker.ask("--poll", said["question"])
    typed()
    assert typed() == ["cancel"]


def test_a_question_that_was_not_asked_of_this_job_is_refused(asker: Asker) -> None:
    for odd in ("0" * 12, "../../../etc/passwd", ""):
        assert asker.ask("--poll", odd)[0] == 2


def test_prompt_and_brief_say_that_asking_may_take_longer_than_a_tool_call(asked: Desk) -> None:
    brief = Path(asked.row(JOB).brief_path).read_text("utf-8")
    with asked.mam.registry.view() as view:
        (order,) = (order for order in view.outbox() if order.kind == "dispatch")
    prompt = json.loads(order.data)["prompt"]

    assert " job ask " in prompt and "--no-wait" in prompt
    assert "--poll" in brief and "longer than one of your tool calls" in brief


def test_an_end_without_a_report_has_its_next_step_and_one_with_a_report_its_text(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    lines = "".join(f"line {n}\n" for n in range(100))
    desk.take(JOB, desk.report(job, f"\x1b[2Jfirst\n{lines}"))
    reported = desk.row(JOB)

    shown = endings.report_lines(reported)
    assert shown[0] == "·[2Jfirst" and shown[-1] == "… 61 more lines" and len(shown) == endings.REPORT_LINES + 1
    assert endings.next_step(desk.mam, reported) == ""
    blocked = replace(reported, state="agent_blocked", report_sha256=None)
    with desk.mam.registry.transaction() as tx:
        tx.put(blocked)
    assert f"mam job retry {JOB}" in endings.next_step(desk.mam, blocked)


def test_the_frames_of_a_screen_are_no_evidence(desk: Desk) -> None:
    desk.session(screen="asking", screen_text="╭──────╮\n│ > hi │\n╰──────╯\n  a | b\n")
    desk.job()
    with desk.mam.registry.view() as view:
        evidence = agents_and_jobs.job(view, jobs.need(view, JOB), Observed(desk.clock, True)).evidence

    assert [line.partition("): ")[2] for line in evidence if line.startswith("screen")] == ["> hi", "  a | b"]
