"""A pane on paper, and deliveries to it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mam.broker.envelope.orders import FreeText
from mam.wrappers.runner.delivery import Delivery
from mam.wrappers.runner.ledger import Ledger
from tests.wrappers.runner.terminal import PROMPT, WITHIN_S, Terminal


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "deliveries")


@pytest.fixture
def start(terminal: Terminal, ledger: Ledger) -> Callable[..., Delivery]:
    def make(order: FreeText | None = None) -> Delivery:
        order = order or FreeText(prompt=PROMPT, deliver_within_s=WITHIN_S)
        return terminal.delivery(order, ledger)

    return make
