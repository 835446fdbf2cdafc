"""A question in the middle of a job reaches a person, and the answer its asker."""

import json
import os
import shlex
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from mam.broker.errors import Usage
from mam.broker.host import atomic_files, fault_points, process_identity
from mam.control_plane.jobs import attention, jobs, questions
from mam.control_plane.jobs import delegate as delegation
from mam.control_plane.jobs.questions import NoQuestion
from tests.support.desk import Desk

ASKED = {"question_id": "0123456789ab", "question": "Which database?", "choices": ["sqlite", "postgres"]}


@pytest.fixture
def asked(desk: Desk) -> Desk:
    desk.session()
    job = desk.job()
    assert desk.take(job.id, desk.wire(job.id, "asked", ASKED)) == ["accepted"]
    return desk


def orders(desk: Desk) -> list[str]:
    with desk.mam.registry.view() as view:
        return [order.kind for order in view.outbox()]


def test_a_question_is_kept_shows_what_may_be_answered_and_means_that_work_began(asked: Desk) -> None:
    question = questions.ask(asked.mam, "job-00000001")

    assert (question.question, json.loads(question.choices)) == ("Which database?", ["sqlite", "postgres"])
    assert asked.row("job-00000001").state == "running"


def test_the_commands_that_answer_can_be_run_as_they_are_shown(asked: Desk) -> None:
    question = questions.ask(asked.mam, "job-00000001")

    this = f"--question {question.id}"
    one, other = f"mam job answer job-00000001 sqlite {this}", f"mam job answer job-00000001 postgres {this}"
    assert attention.answers(question) == f"{one}, or {other}"
    odd = replace(question, choices=json.dumps(["not now", "$HOME"]))
    assert [shlex.split(each)[4] for each in attention.answers(odd).split(", or ")] == ["not now", "$HOME"]
    for choices in ([], list("abcde")):
        shown = attention.answers(replace(question, choices=json.dumps(choices)))
        assert shown == f"mam job answer job-00000001 TEXT {this}"


def test_an_answer_lies_where_the_asker_waits_and_is_not_typed(asked: Desk) -> None:
    folder = Path(asked.row("job-00000001").folder) / "answers"
    folder.mkdir()
    (folder / "0123456789ab.wait").write_text(json.dumps(process_identity.me()._asdict()), "utf-8")
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
        (order,) = (order for order in view.outbox() if order.kind == "say")
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


def test_without_an_agreed_answer_no_time_answers_and_a_time_in_which_nobody_looked_answers_none(desk: Desk) -> None:
    for number, fallback in ((1, None), (2, "sqlite")):
        desk.session(f"agent-{number}")
        job = desk.job(f"agent-{number}", f"job-0000000{number}")
        said = {**ASKED, "question_id": f"{number:012x}", "timeout_s": 60, "fallback": fallback}
        desk.take(job.id, desk.wire(job.id, "asked", said))
    slept = [(desk.clock + 1000, desk.clock + 60_000)]

    with desk.mam.registry.view() as view:
        assert [each.id for each in questions.overdue(view, desk.clock + 60_001)] == [f"{2:012x}"]
        assert questions.overdue(view, desk.clock + 60_001, slept) == []


def test_an_answer_for_an_agent_that_has_ended_is_typed_to_nobody(asked: Desk) -> None:
    with asked.mam.registry.transaction() as tx:
        session = tx.session("writer")
        assert session is not None
        tx.put(replace(session, status="ended"))

    assert questions.answer(asked.mam, "0123456789ab", "sqlite", by="person").answer == "sqlite"
    assert "say" not in orders(asked)


def test_of_two_questions_the_one_that_was_asked_first_is_answered_first(asked: Desk) -> None:
    asked.clock += 1000
    asked.take(
        "job-00000001", asked.wire("job-00000001", "asked", {**ASKED, "question_id": "f" * 12, "question": "b?"})
    )

    assert questions.ask(asked.mam, "job-00000001").question == "Which database?"
    questions.answer(asked.mam, "0123456789ab", "sqlite", by="person")
    assert questions.ask(asked.mam, "job-00000001").question == "b?"


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


class TestTending:
    """What the monitor does about questions by itself, every second."""

    def look(self, desk: Desk) -> None:
        with desk.mam.registry.view() as view:
            questions.tend(desk.mam, view, desk.clock)

    def said(self, desk: Desk) -> dict[str, object]:
        return atomic_files.read(Path(desk.row("job-00000001").folder) / "answers" / "0123456789ab.json")

    @pytest.mark.parametrize("agreed", [" ", "mysql"])
    def test_an_agreed_answer_of_whatever_shape_holds_up_nothing(self, desk: Desk, agreed: str) -> None:
        desk.session()
        job = desk.job()
        desk.take(job.id, desk.wire(job.id, "asked", {**ASKED, "timeout_s": 1, "fallback": agreed}))
        desk.clock += 2000

        self.look(desk)

        with desk.mam.registry.view() as view:
            assert view.open_questions() == []

    @pytest.mark.parametrize("fallback", [None, "sqlite"])
    @pytest.mark.parametrize("end", ["report", "cancel", "retry"])
    def test_a_question_ends_with_its_attempt_and_its_asker_is_told(
        self, desk: Desk, end: str, fallback: str | None
    ) -> None:
        desk.session()
        job = desk.job()
        agreed = {"timeout_s": 1, "fallback": fallback} if fallback else {}
        (Path(job.folder) / "answers").mkdir()
        desk.take(job.id, desk.wire(job.id, "asked", {**ASKED, **agreed}))
        if end == "report":
            desk.take(job.id, desk.report(desk.row(job.id)))
        else:
            jobs.cancel(desk.mam, job.id)
        if end == "retry":
            delegation.retry(desk.mam, job.id)
        desk.clock += 5000

        self.look(desk)

        assert self.said(desk) == {"over": {"report": "reported", "cancel": "cancelled", "retry": "tried again"}[end]}
        assert "say" not in orders(desk), "its agent may be at work on something else"
        with desk.mam.registry.view() as view:
            assert view.open_questions() == []

    def test_who_asks_when_the_job_has_ended_already_is_told_so(self, desk: Desk) -> None:
        desk.session()
        job = desk.job()
        jobs.cancel(desk.mam, job.id)
        (Path(job.folder) / "answers").mkdir()
        assert desk.take(job.id, desk.wire(job.id, "asked", ASKED)) == ["late"]

        self.look(desk)

        assert self.said(desk) == {"over": "cancelled"}

    def test_an_answer_that_was_not_typed_before_its_job_ended_is_taken_back(self, asked: Desk) -> None:
        questions.answer(asked.mam, "0123456789ab", "sqlite", by="person")
        self.look(asked)
        assert "say" in orders(asked), "its job is still open"
        asked.take("job-00000001", asked.report(asked.row("job-00000001")))

        self.look(asked)

        with asked.mam.registry.view() as view:
            (order,) = [each for each in view.outbox() if each.job.startswith("answer-")]
        assert (order.kind, order.job, order.attempt) == ("cancel", "answer-0123456789ab", 1)

    def test_a_job_whose_folder_is_gone_holds_up_no_other(self, desk: Desk) -> None:
        for number in (1, 2):
            desk.session(f"agent-{number}")
            job = desk.job(f"agent-{number}", f"job-0000000{number}")
            asked = {**ASKED, "question_id": f"{number:012x}", "timeout_s": 1, "fallback": "sqlite"}
            desk.take(job.id, desk.wire(job.id, "asked", asked))
        shutil.rmtree(desk.row("job-00000001").folder)
        desk.clock += 5000

        self.look(desk)

        with desk.mam.registry.view() as view:
            second = view.question(f"{2:012x}")
        assert second is not None and second.answer == "sqlite"


def test_an_id_that_is_used_again_changes_no_question(asked: Desk) -> None:
    asked.session("other")
    asked.job("other", "job-00000002")
    questions.answer(asked.mam, "0123456789ab", "sqlite", by="person")

    for job_id in ("job-00000001", "job-00000002"):
        asked.take(job_id, asked.wire(job_id, "asked", {**ASKED, "question": "Delete everything?"}))

    with asked.mam.registry.view() as view:
        question = view.question("0123456789ab")
        assert question is not None and view.open_questions() == []
    assert (question.job, question.question, question.answer) == ("job-00000001", "Which database?", "sqlite")


def test_an_answer_that_the_agent_may_have_read_is_what_is_noted(asked: Desk) -> None:
    child = os.fork()
    if child == 0:
        try:
            fault_points.arm("registry.commit:1:crash", "cli")
            questions.answer(asked.mam, "0123456789ab", "sqlite", by="person")
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    assert questions.answer(asked.mam, "0123456789ab", "postgres", by="person").answer == "sqlite"


def test_a_command_that_names_its_question_answers_no_later_one(asked: Desk) -> None:
    first = questions.ask(asked.mam, "job-00000001")
    questions.answer(asked.mam, first.id, "sqlite", by="person")
    later = {"question_id": "ba9876543210", "question": "Which port?", "choices": []}
    assert asked.take("job-00000001", asked.wire("job-00000001", "asked", later)) == ["accepted"]

    again = questions.answer(asked.mam, questions.ask(asked.mam, "job-00000001", first.id).id, "postgres", by="person")

    assert (again.id, again.answer) == (first.id, "sqlite")
    assert questions.ask(asked.mam, "job-00000001").id == later["question_id"]
    asked.session("other")
    other = asked.job("other", "job-00000002")
    for job_id, unknown in (("job-00000001", "000000000000"), (other.id, first.id)):
        with pytest.raises(NoQuestion):
            questions.ask(asked.mam, job_id, unknown)
