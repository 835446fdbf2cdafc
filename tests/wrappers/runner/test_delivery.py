"""One prompt to one agent: pasted at most once, submitted with proof, or refused with a reason."""

from collections.abc import Callable

import pytest

from mam.agents.protocol import ScreenState
from mam.wrappers.runner.delivery import BLIND_S, ENTER_AT_MOST, Delivery, DeliveryPhase
from mam.wrappers.runner.ledger import DeliveryOutcome, Ledger
from tests.wrappers.runner.terminal import JOB, PROMPT, WITHIN_S, Terminal


def test_a_ready_agent_gets_one_paste_then_one_enter(start: Callable[..., Delivery], terminal: Terminal) -> None:
    assert terminal.drive(start()) == DeliveryOutcome("submitted")
    assert terminal.done == [("paste", PROMPT), ("press", "Enter")]


def test_enter_comes_no_earlier_than_the_agent_needs(start: Callable[..., Delivery], terminal: Terminal) -> None:
    delivery = start()
    delivery.step(0.0)
    assert delivery.due == terminal.agent.submit_pause_s
    delivery.step(terminal.agent.submit_pause_s - 0.001)
    assert terminal.presses == 0
    delivery.step(terminal.agent.submit_pause_s)
    assert terminal.presses == 1


@pytest.mark.parametrize(
    "signal", [ScreenState.WORKING, ScreenState.STARTING, ScreenState.ASKING, ScreenState.DIALOG, ScreenState.GONE]
)
def test_nothing_is_typed_before_the_agent_is_ready(
    start: Callable[..., Delivery], terminal: Terminal, signal: ScreenState
) -> None:
    terminal.signal = signal
    delivery = start()
    assert terminal.drive(delivery, until=WITHIN_S - 1.0) is None
    assert terminal.done == []
    terminal.signal = ScreenState.READY
    assert terminal.drive(delivery) == DeliveryOutcome("submitted")
    assert terminal.pastes == [PROMPT]


@pytest.mark.parametrize(
    ("signal", "draft", "foreground", "reason"),
    [
        (ScreenState.WORKING, "", True, "busy"),
        (ScreenState.STARTING, "", True, "busy"),
        (ScreenState.ASKING, "", True, "dialog"),
        (ScreenState.DIALOG, "", True, "dialog"),
        (ScreenState.READY, "a person's own words", True, "draft"),
        (ScreenState.READY, "", False, "not_foreground"),
    ],
)
def test_what_stands_in_the_way_is_named_after_the_deadline_with_what_was_seen(
    start: Callable[..., Delivery],
    terminal: Terminal,
    ledger: Ledger,
    signal: ScreenState,
    draft: str,
    foreground: bool,
    reason: str,
) -> None:
    terminal.signal, terminal.composer, terminal.foreground = signal, draft, foreground
    delivery = start()
    assert terminal.drive(delivery, until=WITHIN_S - 0.2) is None
    outcome = terminal.drive(delivery)
    assert outcome is not None and (outcome.state, outcome.reason) == ("refused", reason)
    assert signal.value in outcome.evidence and draft in outcome.evidence
    assert terminal.done == []
    assert ledger.result(JOB, 1) is None  # nothing was tried, so it may be sent again


def test_a_runner_that_goes_on_when_the_time_is_over_types_nothing_into_a_ready_agent(
    start: Callable[..., Delivery], terminal: Terminal
) -> None:
    outcome = start().step(WITHIN_S + 0.001)
    assert outcome is not None and (outcome.state, outcome.reason) == ("refused", "unsubmitted")
    assert terminal.done == []


def test_an_agent_whose_last_turn_failed_gets_the_next_prompt(
    start: Callable[..., Delivery], terminal: Terminal
) -> None:
    terminal.signal = ScreenState.ERROR
    assert terminal.drive(start()) == DeliveryOutcome("submitted")
    assert terminal.pastes == [PROMPT]


def test_an_agent_that_left_the_foreground_gets_no_prompt(start: Callable[..., Delivery], terminal: Terminal) -> None:
    delivery = start()
    terminal.foreground = False
    assert terminal.drive(delivery, until=10.0) is None
    assert terminal.done == []


class TestEnter:
    def test_a_swallowed_enter_is_pressed_again_and_the_text_is_not_pasted_again(
        self, start: Callable[..., Delivery], terminal: Terminal
    ) -> None:
        terminal.swallows = ENTER_AT_MOST - 1
        assert terminal.drive(start()) == DeliveryOutcome("submitted")
        assert (terminal.pastes, terminal.presses) == ([PROMPT], ENTER_AT_MOST)

    def test_it_is_pressed_no_more_than_three_times(self, start: Callable[..., Delivery], terminal: Terminal) -> None:
        terminal.swallows = 99
        outcome = terminal.drive(start())
        assert outcome is not None and (outcome.state, outcome.reason) == ("refused", "unsubmitted")
        assert "Read the brief." in outcome.evidence
        assert (terminal.pastes, terminal.presses) == ([PROMPT], 3)

    def test_it_is_not_pressed_again_once_the_text_is_gone(
        self, start: Callable[..., Delivery], terminal: Terminal
    ) -> None:
        terminal.after_enter = ScreenState.READY  # as of an agent that has answered already
        assert terminal.drive(start()) == DeliveryOutcome("submitted")
        assert terminal.presses == 1

    @pytest.mark.parametrize("signal", [ScreenState.ASKING, ScreenState.DIALOG])
    def test_it_is_never_pressed_into_a_dialog_that_came_up_after_the_paste(
        self, start: Callable[..., Delivery], terminal: Terminal, signal: ScreenState
    ) -> None:
        delivery = start()
        delivery.step(0.0)
        terminal.signal = signal
        outcome = terminal.drive(delivery)
        assert terminal.presses == 0
        assert outcome is not None and outcome.state != "submitted"

    def test_it_is_not_repeated_into_a_dialog_that_came_up_after_it(
        self, start: Callable[..., Delivery], terminal: Terminal
    ) -> None:
        terminal.swallows, terminal.after_enter = 99, ScreenState.DIALOG
        terminal.drive(start())
        assert terminal.presses == 1

    def test_it_is_not_pressed_when_the_agent_left_the_foreground_after_the_paste(
        self, start: Callable[..., Delivery], terminal: Terminal
    ) -> None:
        delivery = start()
        delivery.step(0.0)
        terminal.foreground = False
        outcome = terminal.drive(delivery)
        assert terminal.presses == 0
        assert outcome is not None and outcome.state != "submitted"


class TestBlindAgents:
    def test_a_changed_screen_is_a_sign_after_a_while(self, start: Callable[..., Delivery], terminal: Terminal) -> None:
        terminal.blind, terminal.after_enter = True, ScreenState.READY
        delivery = start()
        assert terminal.drive(delivery, until=BLIND_S) is None
        assert terminal.drive(delivery) == DeliveryOutcome("submitted")
        assert terminal.presses == 1

    def test_an_unchanged_screen_is_unknown(self, start: Callable[..., Delivery], terminal: Terminal) -> None:
        terminal.blind = terminal.frozen = True
        terminal.after_enter = ScreenState.READY
        outcome = terminal.drive(start())
        assert outcome is not None and (outcome.state, outcome.reason) == ("unknown", "unsubmitted")
        assert (len(terminal.pastes), terminal.presses) == (1, 1)


def test_after_its_outcome_a_delivery_does_nothing_more(start: Callable[..., Delivery], terminal: Terminal) -> None:
    delivery = start()
    terminal.drive(delivery)
    terminal.composer, before = "new draft", list(terminal.done)
    assert delivery.step(1e9) is None
    assert delivery.phase is DeliveryPhase.DONE and terminal.done == before
