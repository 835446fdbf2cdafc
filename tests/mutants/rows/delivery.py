"""One prompt to one agent: at most one paste."""

from tests.mutants.mutant import Mutant

_FILE = "wrappers/runner/delivery.py"
_LEDGER = "wrappers/runner/ledger.py"
_TESTS = (
    "tests/wrappers/runner/test_delivery.py",
    "tests/wrappers/runner/test_delivery_trouble.py",
    "tests/wrappers/runner/test_ledger.py",
)


def _row(name: str, rule: str, old: str, new: str, file: str = _FILE) -> Mutant:
    return Mutant(f"paste-{name}", rule, file, old, new, _TESTS)


ROWS = (
    _row(
        "intent",
        "the intent is on disk before the paste",
        "                self._ledger.intend(self.job, self.attempt, self._own)\n",
        "                pass\n",
    ),
    _row(
        "once",
        "nothing is pasted where another may have pasted",
        "if path.read_bytes() != content:\n                raise",
        "if path.read_bytes() != content:\n                pass",
        _LEDGER,
    ),
    Mutant(
        "paste-synced",
        "the intent survives a power cut",
        _LEDGER,
        "content, Durability.NAME, exclusive=True",
        "content, Durability.PROCESS, exclusive=True",
        _TESTS,
        "what a power cut leaves is not seen by a test that runs on one machine",
    ),
    _row(
        "restarted",
        "an intent without a result is unknown",
        'return DeliveryOutcome("unknown", "restarted", "the runner ended',
        'return DeliveryOutcome("refused", "restarted", "the runner ended',
        _LEDGER,
    ),
    _row(
        "deadline",
        "nothing is typed after the time is over",
        "if blocked is None and now < self._deadline:",
        "if blocked is None:",
    ),
    _row("brief", "an altered brief is refused", "if not self._brief_is_intact():", "if False:"),
    _row(
        "paste-failed",
        "a paste that failed is never repeated",
        'return DeliveryOutcome("unknown", "unsubmitted", str(error))\n            self._due',
        "self.phase = DeliveryPhase.WAITING\n                return None\n            self._due",
    ),
    _row("pause", "Enter comes no earlier than the agent needs", "now + self._agent.submit_pause_s", "now"),
    _row(
        "foreground",
        "an agent that left the foreground gets no prompt",
        'if not self._in_foreground():\n            return "not_foreground"',
        "",
    ),
    _row(
        "dialog",
        "what stands in the way is named as it is",
        'return "dialog"',
        'return "busy"',
    ),
    _row(
        "draft",
        "text that is not ours is not submitted",
        'return "draft" if self._agent.draft(screen) else None',
        "return None",
    ),
    _row(
        "error-screen", "an agent whose last turn failed gets the next prompt", "            ScreenState.ERROR,\n", ""
    ),
    _row(
        "enter-dialog",
        "Enter is never pressed into a dialog that came up after the paste",
        "return self._in_foreground() and not asks",
        "return self._in_foreground()",
    ),
    _row(
        "enter-foreground",
        "Enter is not pressed when the agent left the foreground",
        "return self._in_foreground() and not asks",
        "return not asks",
    ),
    _row("enter-at-most", "Enter is pressed at most three times", "ENTER_AT_MOST = 3", "ENTER_AT_MOST = 4"),
    _row(
        "enter-gone", "Enter is not pressed again once the text is gone", "if waits and self._enters", "if self._enters"
    ),
    _row("enter-again", "a swallowed Enter is pressed again", "self._enters < ENTER_AT_MOST", "self._enters < 1"),
    _row(
        "enter-repeat-dialog",
        "Enter is not repeated into a dialog",
        "< ENTER_AT_MOST and self._takes_keys(screen):",
        "< ENTER_AT_MOST:",
    ),
    _row("own-word", "the agent's own word means submitted", "if self.started_seen:", "if False:"),
    _row(
        "unchanged",
        "an unchanged screen is no sign",
        "return screen.text != self._before and now",
        "return now",
    ),
    _row("blind", "a changed screen is a sign only after a while", " and now - self._entered_at >= BLIND_S", ""),
    _row(
        "held-up-before",
        "before the paste a pane that is away means refused",
        'return DeliveryOutcome("refused", reason, why)',
        'return DeliveryOutcome("unknown", reason, why)',
    ),
    _row(
        "kept",
        "a result is kept for the next runner",
        "                    self._ledger.conclude(self.job, self.attempt, outcome)\n",
        "                    pass\n",
    ),
    _row(
        "once-done",
        "after its outcome a delivery does nothing more",
        "            self.phase = DeliveryPhase.DONE\n            if",
        "            if",
    ),
)
