"""What a runner does with its spool, without an agent: a process of its own, to be killed at any moment."""

import sys
import time
from pathlib import Path

from mam.broker.envelope.orders import Settled
from mam.broker.errors import MamError
from mam.broker.host import process_identity
from mam.wrappers.runner import launch_spec
from mam.wrappers.runner.bus_session import BusSession, connect_mqtt


def main(spec_file: Path) -> None:
    spec = launch_spec.read(spec_file)
    link = BusSession(spec, connect_mqtt)
    link.open(process_identity.me())
    while True:
        try:
            link.attend()
            link.announce()
            link.carry(time.monotonic())
            while (message := link.receive()) is not None:
                if isinstance(message.data, Settled):
                    link.relay.settle(message.data.ids)
        except (OSError, MamError, ValueError) as error:
            print(error, file=sys.stderr)
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
