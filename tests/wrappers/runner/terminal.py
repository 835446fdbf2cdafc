"""A pane on paper: a composer, an agent behind it, and what was done to both. A Multiplexer and an AgentCli."""

from collections import Counter
from typing import Any

from mam.agents import command
from mam.agents.border import Adapter
from mam.agents.protocol import AgentCli, Launch, Screen, ScreenState, Seat
from mam.broker.envelope.orders import FreeText
from mam.wrappers.mux.protocol import Multiplexer, Pane, PaneSpec
from mam.wrappers.runner.delivery import Delivery
from mam.wrappers.runner.ledger import DeliveryOutcome, Ledger

JOB = "job-20260101-aaaa"
MARK = "❯ "
PROMPT = "[MAM job …]\nRead the brief."
WITHIN_S = 30


class Reader:
    """Reads what Terminal shows: the signal on the first line, the composer behind its mark."""

    name = "paper"
    ready_within_s = 5.0
    submit_pause_s = 0.3
    instruction_file = "AGENTS.md"

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal

    def new_conversation(self) -> str | None:
        return None

    def launch(self, seat: Seat) -> Launch:
        return command.launch(seat)

    def resume(self, seat: Seat) -> Launch | None:
        return None

    def read(self, screen: Screen) -> ScreenState:
        return ScreenState(screen.text.splitlines()[0])

    def draft(self, screen: Screen) -> bool:
        return not self._terminal.blind and bool(screen.text.partition(MARK)[2].strip())


class Terminal:
    kind = "paper"
    server = "paper"

    def __init__(self) -> None:
        self.signal = ScreenState.READY
        self.after_enter = ScreenState.WORKING
        self.composer = ""
        self.heard = 0
        self.swallows = 0  # how many Enters leave the composer as it is
        self.blind = False  # the agent's draft cannot be seen
        self.frozen = False  # nothing that is typed shows
        self.foreground = True
        self.trouble: dict[str, Exception] = {}
        self.tried: Counter[str] = Counter()
        self.done: list[tuple[str, str]] = []
        self.agent: AgentCli = Reader(self)

    @property
    def pastes(self) -> list[str]:
        return [text for what, text in self.done if what == "paste"]

    @property
    def presses(self) -> int:
        return sum(what == "press" for what, _ in self.done)

    def delivery(self, order: FreeText, ledger: Ledger) -> Delivery:
        mux: Multiplexer = self
        return Delivery(
            JOB,
            1,
            order,
            agent=Adapter("paper", self.agent),
            mux=mux,
            pane="%1",
            ledger=ledger,
            in_foreground=lambda: self.foreground,
            now=0.0,
        )

    def drive(self, delivery: Delivery, until: float = 1000.0) -> DeliveryOutcome | None:
        """Step *delivery* whenever it wants, on a clock of our own, until it has an outcome or *until* passed."""
        for _ in range(20_000):
            if delivery.due > until:
                return None
            outcome = delivery.step(delivery.due)
            if outcome is not None:
                return outcome
        raise AssertionError("the delivery asks to be stepped again and again and never moves on")

    def _attempt(self, what: str) -> None:
        self.tried[what] += 1
        if what in self.trouble:
            raise self.trouble[what]

    def screen(self, pane_id: str) -> Screen:
        self._attempt("screen")
        shown = "" if self.frozen else f"heard {self.heard}\n{MARK}{self.composer}"
        return Screen(f"{self.signal.value}\n{shown}")

    def paste(self, pane_id: str, text: str) -> None:
        self._attempt("paste")
        self.done.append(("paste", text))
        self.composer += text

    def press(self, pane_id: str, key: str) -> None:
        self._attempt("press")
        self.done.append(("press", key))
        self.signal = self.after_enter
        if self.swallows:
            self.swallows -= 1
            return
        self.heard += 1
        self.composer = ""

    def open(self, spec: PaneSpec) -> Pane:
        raise NotImplementedError

    def panes(self) -> list[Pane]:
        raise NotImplementedError

    def close(self, pane_id: str, tag: str) -> bool:
        raise NotImplementedError

    def attach_command(self, pane_id: str) -> Any:
        return None
