"""
The delivery of one prompt to one agent: at most one paste for each (job, attempt), and the submission is verified.

The intent is on disk before the paste. An intent without a result, found after a restart, is `unknown`: whether the
paste happened cannot be known, so MAM never pastes it again by itself.
"""

import enum
import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path

from mam.agents.border import Adapter, AdapterFailed
from mam.agents.protocol import Screen, ScreenState
from mam.agents.screen import tail
from mam.broker.envelope.orders import Dispatch, FreeText
from mam.broker.envelope.payloads import DeliveryReason
from mam.broker.host import fault_points
from mam.wrappers.mux.protocol import LookFailed, Multiplexer, PaneGone
from mam.wrappers.runner.ledger import DeliveryOutcome, Ledger

ENTER_AGAIN_S = 1.0
ENTER_AT_MOST = 3
LOOK_EVERY_S = 0.1
BLIND_S = 1.0  # for agents whose draft cannot be seen: the prompt counts as taken this long after Enter


class DeliveryPhase(enum.Enum):
    """What a delivery waits for."""

    WAITING = "waiting"  # for an agent that takes a prompt
    PASTED = "pasted"  # for the pause before Enter
    CHECKING = "checking"  # for a sign that the prompt was submitted
    DONE = "done"


class Delivery:
    """
    One prompt on its way into an agent's composer.

    `step` does what is due, and `due` says when it must be called again. The prompt is pasted at most once, only while
    the agent's composer is empty and in the foreground. Enter is repeated while the prompt still stands there.
    """

    def __init__(
        self,
        job: str,
        attempt: int,
        order: FreeText,
        *,
        agent: Adapter,
        mux: Multiplexer,
        pane: str,
        ledger: Ledger,
        in_foreground: Callable[[], bool],
        now: float,
    ) -> None:
        self.job, self.attempt, self.order = job, attempt, order
        self.started_seen = False  # the runner sets it: `mam job started` is the best proof of a submission
        self._agent, self._mux, self._pane, self._ledger = agent, mux, pane, ledger
        self._in_foreground = in_foreground
        self._deadline = now + order.deliver_within_s
        self._own = secrets.token_hex(8)
        self.phase = DeliveryPhase.WAITING
        self._due = now
        self._enters = 0
        self._entered_at = 0.0
        self._draft_seen = False
        self._before = ""

    @property
    def due(self) -> float:
        """When `step` has something to do, by time.monotonic()."""
        return self._due

    def step(self, now: float) -> DeliveryOutcome | None:
        """Do what is due at *now*. Returns the outcome once there is one. It raises for no pane, disk or adapter."""
        if now < self._due or self.phase is DeliveryPhase.DONE:
            return None
        self._due = now + LOOK_EVERY_S  # also where the step fails: it must not be called again at once
        try:
            outcome = self._step(now)
        except (PaneGone, LookFailed) as error:
            outcome = self._held_up(now, "not_foreground", str(error))
        except AdapterFailed as error:  # a screen that cannot be read takes no prompt
            outcome = self._held_up(now, "unsubmitted", str(error))
        except OSError as error:  # the disk refuses: the job must not wait for ever for a prompt that is too late
            outcome = self._held_up(now, "unsubmitted", str(error))
        if outcome is not None:
            self.phase = DeliveryPhase.DONE
            if self._ledger.path(self.job, self.attempt).exists():
                try:
                    self._ledger.conclude(self.job, self.attempt, outcome)
                except OSError:
                    pass  # the bus still tells it; after a restart it reads as unknown, which is true as well
        return outcome

    def _step(self, now: float) -> DeliveryOutcome | None:
        match self.phase:
            case DeliveryPhase.WAITING:
                return self._wait(now)
            case DeliveryPhase.PASTED:
                return self._enter(now)
            case DeliveryPhase.CHECKING:
                return self._check(now)
            case DeliveryPhase.DONE:
                return None

    def _held_up(self, now: float, reason: DeliveryReason, why: str) -> DeliveryOutcome | None:
        self._due = now + LOOK_EVERY_S
        if now < self._deadline:
            return None
        if self.phase is DeliveryPhase.WAITING:
            return DeliveryOutcome("refused", reason, why)
        return DeliveryOutcome("unknown", "unsubmitted", why)

    def _wait(self, now: float) -> DeliveryOutcome | None:
        screen = self._mux.screen(self._pane)
        blocked = self._obstacle(screen)
        if blocked is None and now < self._deadline:  # after a SIGSTOP, the runner may find its time over
            if not self._brief_is_intact():
                return DeliveryOutcome("refused", "brief_altered", "the brief is not the one that was delegated")
            self._before = screen.text
            try:
                self._ledger.intend(self.job, self.attempt, self._own)
            except FileExistsError:
                return self._ledger.result(self.job, self.attempt)
            fault_points.point("delivery.paste")
            self.phase = DeliveryPhase.PASTED
            try:
                self._mux.paste(self._pane, self.order.prompt)
            except (PaneGone, LookFailed) as error:
                # A part of it may have arrived, so it is neither pasted again nor submitted.
                return DeliveryOutcome("unknown", "unsubmitted", str(error))
            self._due = now + self._agent.submit_pause_s
            return None
        if now >= self._deadline:
            return DeliveryOutcome("refused", blocked or "unsubmitted", tail(screen))
        self._due = now + LOOK_EVERY_S
        return None

    def _obstacle(self, screen: Screen) -> DeliveryReason | None:
        if not self._in_foreground():
            return "not_foreground"
        signal = self._agent.read(screen)
        if signal in (ScreenState.ASKING, ScreenState.DIALOG):
            return "dialog"
        if signal not in (
            ScreenState.READY,
            ScreenState.ERROR,
        ):  # an error may be over, and only a prompt can tell
            return "busy"
        return "draft" if self._agent.draft(screen) else None

    def _brief_is_intact(self) -> bool:
        if not isinstance(self.order, Dispatch):
            return True
        try:
            content = Path(self.order.brief_path).read_bytes()
        except OSError:
            return False
        return hashlib.sha256(content).hexdigest() == self.order.brief_sha256

    def _enter(self, now: float) -> DeliveryOutcome | None:
        screen = self._mux.screen(self._pane)
        self._draft_seen = self._draft_seen or self._agent.draft(screen)
        if not self._takes_keys(screen):
            self._due = now + LOOK_EVERY_S
            return DeliveryOutcome("unknown", "unsubmitted", tail(screen)) if now >= self._deadline else None
        fault_points.point("delivery.enter")
        self._mux.press(self._pane, "Enter")
        self._enters += 1
        self._entered_at = now
        self.phase = DeliveryPhase.CHECKING
        self._due = now + LOOK_EVERY_S / 2
        return None

    def _check(self, now: float) -> DeliveryOutcome | None:
        if self.started_seen:
            return DeliveryOutcome("submitted")
        screen = self._mux.screen(self._pane)
        waits = self._agent.draft(screen)
        self._draft_seen = self._draft_seen or waits
        if not waits and self._taken(screen, now):
            return DeliveryOutcome("submitted")
        self._due = now + LOOK_EVERY_S
        if now - self._entered_at < ENTER_AGAIN_S:
            return None
        if waits and self._enters < ENTER_AT_MOST and self._takes_keys(screen):
            # Only Enter is repeated, and only while our text still stands there: never the paste.
            self._mux.press(self._pane, "Enter")
            self._enters += 1
            self._entered_at = now
            return None
        if now >= self._entered_at + self._agent.ready_within_s:
            return DeliveryOutcome("refused" if waits else "unknown", "unsubmitted", tail(screen))
        return None

    def _takes_keys(self, screen: Screen) -> bool:
        """Whether Enter would reach the agent's composer now, and not a dialog or another program."""
        asks = self._agent.read(screen) in (ScreenState.ASKING, ScreenState.DIALOG)
        return self._in_foreground() and not asks

    def _taken(self, screen: Screen, now: float) -> bool:
        """Whether an empty composer means that the prompt was submitted, and not that it never arrived."""
        if self._draft_seen or self._agent.read(screen) is ScreenState.WORKING:
            return True
        return screen.text != self._before and now - self._entered_at >= BLIND_S
