"""What a runner knows on disk of its deliveries: an intent before each paste, a result after it."""

import json
from pathlib import Path
from typing import NamedTuple, cast, get_args

from mam.broker.envelope.payloads import DeliveryReason, DeliveryState
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability


class DeliveryOutcome(NamedTuple):
    """The end of a delivery. *evidence* is what the screen showed, or what was raised."""

    state: DeliveryState
    reason: DeliveryReason = ""
    evidence: str = ""


class Ledger:
    """The deliveries to one agent on disk: the file ``<job>-<attempt>`` holds the intent, later the result."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def path(self, job: str, attempt: int) -> Path:
        """Return the file of one delivery."""
        return self._folder / f"{job}-{attempt}"

    def intend(self, job: str, attempt: int, by: str) -> None:
        """
        Record durably that *by* may paste from now on. The same *by* may repeat it after a failed try.

        Raises FileExistsError where another runner may have pasted, and OSError where the disk refuses.
        """
        path, content = self.path(job, attempt), json.dumps({"by": by}).encode()
        try:
            # The paste comes after this is on the disk, so every crash leaves a trace of it.
            atomic_files.write(path, content, Durability.NAME, exclusive=True, point="key.link")
        except FileExistsError:
            if path.read_bytes() != content:
                raise
            atomic_files.sync_folder(self._folder)  # the writer may have died just before its own sync

    def result(self, job: str, attempt: int) -> DeliveryOutcome | None:
        """Return the recorded result; `unknown` for an intent without one; None where nothing was tried."""
        path = self.path(job, attempt)
        if not path.exists():
            return None
        content = atomic_files.read(path)
        state, reason = content.get("state"), content.get("reason")
        if state not in get_args(DeliveryState) or reason not in get_args(DeliveryReason):
            return DeliveryOutcome("unknown", "restarted", "the runner ended between the paste and its result")
        return DeliveryOutcome(
            cast("DeliveryState", state), cast("DeliveryReason", reason), str(content.get("evidence", ""))
        )

    def conclude(self, job: str, attempt: int, outcome: DeliveryOutcome) -> None:
        """Record the result. Raises OSError where the disk refuses; the delivery then reads as `unknown`."""
        content = json.dumps(outcome._asdict()).encode()
        # The name is there since the intent: without the result it reads as `unknown`.
        atomic_files.write(self.path(job, attempt), content, Durability.FILE, point="delivery.conclude")
