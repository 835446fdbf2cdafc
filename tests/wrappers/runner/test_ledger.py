"""What is on disk about a delivery decides whether it may be tried: an intent without a result never is again."""

import shutil
import stat
from pathlib import Path

import pytest

from mam.broker.envelope.orders import FreeText
from mam.broker.host import fault_points
from mam.wrappers.runner.ledger import DeliveryOutcome, Ledger
from tests.wrappers.runner.terminal import JOB, Terminal

ORDER = FreeText(prompt="do it", deliver_within_s=30)


class Crash(BaseException):
    """The runner is killed here."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deliveries"


def test_what_was_never_tried_has_no_result(folder: Path) -> None:
    assert Ledger(folder).result(JOB, 1) is None


@pytest.mark.parametrize(
    "outcome",
    [
        DeliveryOutcome("submitted"),
        DeliveryOutcome("refused", "unsubmitted", "❯ 한국어 \udcff"),
        DeliveryOutcome("unknown"),
    ],
)
def test_a_result_is_found_by_the_next_runner(folder: Path, outcome: DeliveryOutcome) -> None:
    ledger = Ledger(folder)
    ledger.intend(JOB, 1, "me")
    ledger.conclude(JOB, 1, outcome)
    assert Ledger(folder).result(JOB, 1) == outcome


def test_each_attempt_has_its_own_result(folder: Path) -> None:
    ledger = Ledger(folder)
    ledger.intend(JOB, 1, "me")
    ledger.conclude(JOB, 1, DeliveryOutcome("submitted"))
    assert ledger.result(JOB, 2) is None and ledger.result(f"{JOB}-1", 1) is None


def test_an_intent_without_a_result_is_unknown_after_a_restart(folder: Path) -> None:
    Ledger(folder).intend(JOB, 1, "me")
    found = Ledger(folder).result(JOB, 1)
    assert found is not None and (found.state, found.reason) == ("unknown", "restarted")


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"\xff", b'{"state"', b"[]", b"null"])
def test_a_torn_file_is_unknown_and_not_new(folder: Path, content: bytes) -> None:
    ledger = Ledger(folder)
    ledger.path(JOB, 1).write_bytes(content)
    found = ledger.result(JOB, 1)
    assert found is not None and found.state == "unknown"


def test_a_second_intent_is_refused_unless_it_is_ones_own_again(folder: Path) -> None:
    Ledger(folder).intend(JOB, 1, "me")
    Ledger(folder).intend(JOB, 1, "me")
    with pytest.raises(FileExistsError):
        Ledger(folder).intend(JOB, 1, "somebody else")


def test_a_delivery_never_pastes_where_somebody_else_may_have(folder: Path) -> None:
    Ledger(folder).intend(JOB, 1, "somebody else")
    terminal = Terminal()
    outcome = terminal.drive(terminal.delivery(ORDER, Ledger(folder)))
    assert outcome is not None and (outcome.state, outcome.reason) == ("unknown", "restarted")
    assert terminal.pastes == []


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_an_intent_that_was_kept_though_the_disk_complained_is_pasted_once(folder: Path, error: str) -> None:
    fault_points.arm(f"delivery.paste:1:{error}", "test")
    terminal = Terminal()
    assert terminal.drive(terminal.delivery(ORDER, Ledger(folder))) == DeliveryOutcome("submitted")
    assert len(terminal.pastes) == 1
    fault_points.arm("", "test")


def test_a_prompt_that_the_disk_holds_up_until_its_limit_is_refused_and_never_pasted_later(folder: Path) -> None:
    terminal = Terminal()
    delivery = terminal.delivery(ORDER, Ledger(folder))
    shutil.rmtree(folder)
    outcome = terminal.drive(delivery)
    assert outcome is not None and (outcome.state, outcome.reason) == ("refused", "unsubmitted")
    folder.mkdir(mode=0o700)
    assert delivery.step(delivery.due + 60) is None and terminal.pastes == []


def test_the_intent_is_private_and_on_disk_before_the_paste(folder: Path) -> None:
    ledger = Ledger(folder)
    seen: list[DeliveryOutcome | None] = []

    class Watching(Terminal):
        def paste(self, pane_id: str, text: str) -> None:
            seen.append(Ledger(folder).result(JOB, 1))
            super().paste(pane_id, text)

    terminal = Watching()
    terminal.drive(terminal.delivery(ORDER, ledger))
    assert seen == [DeliveryOutcome("unknown", "restarted", "the runner ended between the paste and its result")]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("where", ["paste", "press"])
def test_a_runner_that_dies_on_the_way_leaves_unknown_and_nobody_pastes_again(folder: Path, where: str) -> None:
    first = Terminal()
    first.trouble[where] = Crash()  # type: ignore[assignment]
    with pytest.raises(Crash):
        first.drive(first.delivery(ORDER, Ledger(folder)))
    again = Ledger(folder)
    found = again.result(JOB, 1)
    assert found is not None and (found.state, found.reason) == ("unknown", "restarted")
    second = Terminal()
    outcome = second.drive(second.delivery(ORDER, again))
    assert second.done == []
    assert outcome is not None and outcome.state == "unknown"


def test_a_runner_that_dies_before_the_intent_leaves_nothing_and_the_next_one_delivers(folder: Path) -> None:
    first = Terminal()
    first.trouble["screen"] = Crash()  # type: ignore[assignment]
    with pytest.raises(Crash):
        first.drive(first.delivery(ORDER, Ledger(folder)))
    second = Terminal()
    assert second.drive(second.delivery(ORDER, Ledger(folder))) == DeliveryOutcome("submitted")


def test_an_outcome_that_cannot_be_written_is_told_all_the_same(folder: Path) -> None:
    terminal = Terminal()
    delivery = terminal.delivery(ORDER, Ledger(folder))
    delivery.step(0.0)
    target = Ledger(folder).path(JOB, 1)
    target.with_name(f".{target.name}").mkdir()  # as on a full or broken disk: no result can be written
    assert terminal.drive(delivery) == DeliveryOutcome("submitted")


def test_an_intent_that_cannot_be_written_is_tried_again_later_and_nothing_is_pasted(folder: Path) -> None:
    terminal = Terminal()
    delivery = terminal.delivery(ORDER, Ledger(folder))
    shutil.rmtree(folder)
    for _ in range(3):
        before = delivery.due
        delivery.step(before)
        assert delivery.due > before, "the runner would step it again at once, for ever"
    assert terminal.pastes == []
    folder.mkdir(mode=0o700)
    assert terminal.drive(delivery) == DeliveryOutcome("submitted")
