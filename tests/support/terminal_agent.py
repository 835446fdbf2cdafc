"""Small agents to hold on a terminal; each says `ready` when it is. Run by path."""

import json
import os
import signal
import sys
import time


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def echo() -> None:
    """Answer each line that is typed."""
    say("ready")
    for line in sys.stdin:
        say(f"heard {line.strip()}")


def deaf() -> None:
    """Ignore TERM, and have a child that ignores it as well."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child:
        say(f"ready child={child}.")
    while True:
        time.sleep(3600)


def tool() -> None:
    """Lend the terminal to a tool in a group of its own for each line, as a shell does; `q` ends the tool."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    say("ready")
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            say("tool runs")
            os.read(0, 100)
            os._exit(0)
        os.waitpid(child, 0)
        os.tcsetpgrp(0, os.getpid())
        say("tool ended")


def giver() -> None:
    """Give the terminal to the leader's group, stop, and go on reading."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    say("ready")
    os.tcsetpgrp(0, os.getpgid(os.getppid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    say(f"heard {sys.stdin.readline().strip()}")


def facts() -> None:
    """Say what we were born with."""
    seen: dict[str, object] = {"env": dict(os.environ), "cwd": os.getcwd(), "words": sys.argv[2:]}
    seen["ids"] = [os.getpid(), os.getpgid(0), os.getsid(0), os.tcgetpgrp(0)]
    seen["tty"] = os.isatty(0) and os.isatty(1) and os.isatty(2)
    with open("facts.part", "w", encoding="utf-8") as file:
        json.dump(seen, file)
    os.rename("facts.part", "facts")
    say("ready")
    sys.stdin.readline()


if __name__ == "__main__":
    {"echo": echo, "deaf": deaf, "tool": tool, "giver": giver, "facts": facts}[sys.argv[1]]()
