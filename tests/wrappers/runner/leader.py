"""
Stands in for the runner: leads a session on the terminal that is its standard input, and holds one agent.

Signals are its orders: USR1 ends the agent, USR2 says whether the agent has the foreground. What happens goes to
the file that is named first, one JSON object a line.
"""

import fcntl
import json
import os
import signal
import sys
import termios
import time
from typing import Any

from mam.wrappers.runner.agent_process import AgentProcess, Exited, Stopped


def main(out: str, wait_s: str, spec: str) -> int:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    orders: list[int] = []
    for name in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(name, lambda number, _: orders.append(number))
    given = json.loads(spec)
    with open(out, "a", buffering=1, encoding="utf-8") as kept:

        def tell(what: str, **more: Any) -> None:
            kept.write(json.dumps({"what": what, **more}) + "\n")

        agent = AgentProcess(given["argv"], given["env"], given["cwd"], 0)
        tell("began", pid=agent.pid, start=agent.identity.start, leader=os.getpid(), group=os.getpgid(0))
        while agent.exited is None:
            match agent.poll():
                case Stopped():
                    tell("stopped", foreground=agent.in_foreground())
                    agent.wake_up()
                case Exited() as ended:
                    tell("exited", code=ended.code, foreground=agent.in_foreground())
            if orders:
                if orders.pop(0) == signal.SIGUSR1:
                    agent.end(float(wait_s))
                else:
                    tell("looked", foreground=agent.in_foreground())
            time.sleep(0.005)
        tell("polled again", result=agent.poll())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
