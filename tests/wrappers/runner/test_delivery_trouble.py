"""A delivery whose brief was altered, whose pane cannot be seen, or that the agent itself confirms."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mam.agents.protocol import Screen, ScreenState
from mam.broker.envelope.orders import Dispatch
from mam.wrappers.mux.protocol import MuxSilent, PaneGone
from mam.wrappers.runner.delivery import Delivery
from mam.wrappers.runner.ledger import DeliveryOutcome, Ledger
from tests.wrappers.runner.terminal import JOB, PROMPT, WITHIN_S, Reader, Terminal


class TestBrief:
    def order(self, path: Path) -> Dispatch:
        digest = hashlib.sha256(b"the brief").hexdigest()
        return Dispatch(
            prompt=PROMPT, deliver_within_s=WITHIN_S, brief_path=str(path), brief_sha256=digest, key_file="/k"
        )

    def test_the_brief_that_was_signed_is_delivered(
        self, start: Callable[..., Delivery], terminal: Terminal, tmp_path: Path
    ) -> None:
        (tmp_path / "brief.md").write_bytes(b"the brief")
        assert terminal.drive(start(self.order(tmp_path / "brief.md"))) == DeliveryOutcome("submitted")

    @pytest.mark.parametrize("content", [b"the brief.", b"", None])
    def test_another_brief_or_none_is_refused_before_anything_is_typed(
        self, start: Callable[..., Delivery], terminal: Terminal, ledger: Ledger, tmp_path: Path, content: bytes | None
    ) -> None:
        if content is not None:
            (tmp_path / "brief.md").write_bytes(content)
        outcome = terminal.drive(start(self.order(tmp_path / "brief.md")))
        assert outcome is not None and (outcome.state, outcome.reason) == ("refused", "brief_altered")
        assert terminal.done == [] and ledger.result(JOB, 1) is None

    def test_a_brief_that_changes_while_the_agent_is_busy_is_noticed(
        self, start: Callable[..., Delivery], terminal: Terminal, tmp_path: Path
    ) -> None:
        brief = tmp_path / "brief.md"
        brief.write_bytes(b"the brief")
        terminal.signal = ScreenState.WORKING
        delivery = start(self.order(brief))
        assert terminal.drive(delivery, until=5.0) is None
        brief.write_bytes(b"another")
        terminal.signal = ScreenState.READY
        outcome = terminal.drive(delivery)
        assert outcome is not None and outcome.reason == "brief_altered"


class TestStarted:
    def test_the_agents_own_word_means_submitted_whatever_the_screen_shows(
        self, start: Callable[..., Delivery], terminal: Terminal
    ) -> None:
        terminal.swallows = 99
        delivery = start()
        assert terminal.drive(delivery, until=0.5) is None
        delivery.started_seen = True
        assert terminal.drive(delivery) == DeliveryOutcome("submitted")
        assert terminal.presses == 1

    def test_it_counts_also_when_the_pane_cannot_be_seen(
        self, start: Callable[..., Delivery], terminal: Terminal
    ) -> None:
        terminal.swallows = 99
        delivery = start()
        assert terminal.drive(delivery, until=0.5) is None
        terminal.trouble["screen"] = PaneGone(pane="%1", server="test")
        delivery.started_seen = True
        assert terminal.drive(delivery) == DeliveryOutcome("submitted")


@pytest.mark.parametrize("error", [PaneGone(pane="%1", server="test"), MuxSilent(server="test", why="slow")])
class TestLostSight:
    def test_before_the_paste_it_is_refused_after_the_deadline(
        self, start: Callable[..., Delivery], terminal: Terminal, error: Exception
    ) -> None:
        terminal.trouble["screen"] = error
        delivery = start()
        assert terminal.drive(delivery, until=WITHIN_S - 0.2) is None
        outcome = terminal.drive(delivery)
        assert outcome == DeliveryOutcome("refused", "not_foreground", str(error))
        assert terminal.done == []

    def test_after_the_paste_it_is_unknown_and_kept(
        self, start: Callable[..., Delivery], terminal: Terminal, ledger: Ledger, error: Exception
    ) -> None:
        delivery = start()
        delivery.step(0.0)
        terminal.trouble["screen"] = error
        outcome = terminal.drive(delivery)
        assert outcome == DeliveryOutcome("unknown", "unsubmitted", str(error)) == ledger.result(JOB, 1)
        assert terminal.pastes == [PROMPT]

    def test_a_pane_that_is_seen_again_in_time_loses_nothing(
        self, start: Callable[..., Delivery], terminal: Terminal, error: Exception
    ) -> None:
        terminal.trouble["screen"] = error
        delivery = start()
        assert terminal.drive(delivery, until=1.0) is None
        terminal.trouble.clear()
        assert terminal.drive(delivery) == DeliveryOutcome("submitted")
        assert (terminal.pastes, terminal.presses) == ([PROMPT], 1)

    def test_a_paste_that_failed_is_never_repeated_and_ends_as_unknown(
        self, start: Callable[..., Delivery], terminal: Terminal, ledger: Ledger, error: Exception
    ) -> None:
        terminal.trouble["paste"] = error
        delivery = start()
        outcome = terminal.drive(delivery)
        assert outcome is not None and outcome.state == "unknown"
        assert terminal.tried["paste"] == 1 and terminal.presses == 0
        assert ledger.result(JOB, 1) == outcome


class BlindReader(Reader):
    def read(self, screen: Screen) -> ScreenState:
        raise IndexError("list index out of range")


def test_a_screen_that_its_adapter_cannot_read_gets_no_prompt_and_the_refusal_says_why(
    start: Callable[..., Delivery], terminal: Terminal
) -> None:
    terminal.agent = BlindReader(terminal)
    outcome = terminal.drive(start())

    assert outcome is not None and (outcome.state, outcome.reason) == ("refused", "unsubmitted")
    assert "failed in read: IndexError" in outcome.evidence
    assert terminal.done == []
