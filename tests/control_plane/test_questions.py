"""A question in the middle of a job reaches a person, and the answer its asker."""

import json
import os
from pathlib import Path

import pytest

from mam.broker import proof
from mam.broker.errors import Usage
from mam.control_plane import questions
from mam.control_plane.questions import NoQuestion

from .conftest import Desk

ASKED = {"question_id": "0123456789ab", "question": "Which database?", "choices": ["sqlite", "postgres"]}


@pytest.fixture
def asked(desk: Desk) -> Desk:
    desk.session()
    job = desk.job()
    assert desk.take(job.id, desk.wire(job.id, "asked", ASKED)) == ["accepted"]
    return desk


def orders(desk: Desk) -> list[str]:
    with desk.mam.registry.view() as view:
        return [order.kind for order in view.orders()]


def test_a_question_is_kept_shows_what_may_be_answered_and_means_that_work_began(asked: Desk) -> None:
    question = questions.ask(asked.mam, "job-00000001")

    assert (question.question, json.loads(question.choices)) == ("Which database?", ["sqlite", "postgres"])
    assert asked.row("job-00000001").state == "running"


def test_an_answer_lies_where_the_asker_waits_and_is_not_typed(asked: Desk) -> None:
    folder = Path(asked.row("job-00000001").folder) / "answers"
    folder.mkdir()
    (folder / "0123456789ab.wait").write_text(json.dumps(proof.me()._asdict()), "utf-8")
    before = orders(asked)

    questions.answer(asked.mam, "0123456789ab", "sqlite", by="person")

    assert json.loads((folder / "0123456789ab.json").read_text("utf-8"))["answer"] == "sqlite"
    assert orders(asked) == before


@pytest.mark.parametrize("waiter", ["", "not json", '{"pid": 1, "start": "x", "boot": "y"}'])
def test_an_answer_that_nobody_waits_for_is_typed_into_the_pane(asked: Desk, waiter: str) -> None:
    folder = Path(asked.row("job-00000001").folder) / "answers"
    folder.mkdir()
    if waiter:
        (folder / "0123456789ab.wait").write_text(waiter, "utf-8")

    questions.answer(asked.mam, "0123456789ab", "postgres", by="person")

    assert "say" in orders(asked)
    with asked.mam.registry.view() as view:
        (order,) = (order for order in view.orders() if order.kind == "say")
    assert "postgres" in json.loads(order.data)["prompt"]
    assert order.job != "job-00000001", "how it is delivered says nothing of the job's own prompt"


def test_only_one_of_the_choices_is_an_answer(asked: Desk) -> None:
    for wrong in ("mysql", "", "  "):
        with pytest.raises(Usage):
            questions.answer(asked.mam, "0123456789ab", wrong, by="person")
    assert questions.ask(asked.mam, "job-00000001").answered_at is None


def test_the_second_answer_changes_nothing(asked: Desk) -> None:
    questions.answer(asked.mam, "0123456789ab", "sqlite", by="person")

    assert questions.answer(asked.mam, "0123456789ab", "postgres", by="person").answer == "sqlite"
    with pytest.raises(NoQuestion):
        questions.ask(asked.mam, "job-00000001")


def test_a_question_of_a_job_that_ended_waits_for_nobody(asked: Desk) -> None:
    asked.take("job-00000001", asked.report(asked.row("job-00000001")))

    with pytest.raises(NoQuestion):
        questions.ask(asked.mam, "job-00000001")


def test_an_agreed_answer_is_due_when_its_time_is_over(desk: Desk) -> None:
    desk.session()
    job = desk.job()
    desk.take(job.id, desk.wire(job.id, "asked", {**ASKED, "timeout_s": 60, "fallback": "sqlite"}))

    with desk.mam.registry.view() as view:
        assert questions.overdue(view, desk.clock + 60_000) == []
        assert [each.fallback for each in questions.overdue(view, desk.clock + 60_001)] == ["sqlite"]


@pytest.mark.parametrize(
    "bad",
    [
        {**ASKED, "question_id": "../../etc"},
        {**ASKED, "question": ""},
        {**ASKED, "choices": "sqlite"},
        {**ASKED, "timeout_s": -1},
        {**ASKED, "choices": ["x"] * 21},
    ],
)
def test_a_question_of_a_wrong_shape_is_refused(desk: Desk, bad: dict[str, object]) -> None:
    desk.session()
    job = desk.job()

    assert desk.take(job.id, desk.wire(job.id, "asked", bad)) == ["schema"]
    assert os.listdir(job.folder).count("answers") == 0
