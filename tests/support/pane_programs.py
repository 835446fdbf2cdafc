"""Small programs to run in a pane: each writes what it was given, or what it read, to a file. Run by path."""

import json
import os
import sys
import time
import tty
from collections.abc import Callable
from pathlib import Path


def tell(out: str, *words: str) -> None:
    """Write our own words, environment and directory to *out*, in one step, and stay."""
    partial = Path(f"{out}.part")
    partial.write_text(json.dumps({"words": words, "env": dict(os.environ), "cwd": os.getcwd()}), "utf-8")
    partial.replace(out)
    stay()


def read(out: str, mode: str) -> None:
    """Keep every byte that is typed, as it comes; *mode* says whether pastes are asked to be bracketed."""
    tty.setraw(0)
    with open(out, "wb", buffering=0) as kept:
        os.write(1, b"\x1b[?2004h" if mode == "bracketed" else b"\x1b[?2004l")
        os.write(1, b"\r\nlistening\r\n")
        while data := os.read(0, 65536):
            kept.write(data)


def say(text: str, code: str) -> None:
    """Show *text* (with Python's escapes) and end; with no code, stay."""
    os.write(1, text.encode("latin-1").decode("unicode_escape").encode())
    if code:
        sys.exit(int(code))
    stay()


def nag(times: str) -> None:
    """Ask the terminal where its cursor is, again and again, and never read an answer."""
    tty.setraw(0)
    for _ in range(int(times)):
        os.write(1, b"\x1b[6n")
    os.write(1, b"\r\nstill here\r\n")
    stay()


def stay() -> None:
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"tell": tell, "read": read, "say": say, "nag": nag}
    programs[sys.argv[1]](*sys.argv[2:])
