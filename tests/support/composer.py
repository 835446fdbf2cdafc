"""A composer as agent CLIs have one, which swallows its first Enters. Run by path: the file to write, how many."""

import json
import os
import sys
import tty
from pathlib import Path

PROMPT = "scripted> "


def main(out: str, swallows: int) -> None:
    tty.setraw(0)
    os.write(1, b"\x1b[?2004h")
    draft, submitted = "", []
    while True:
        os.write(1, f"\r\x1b[K{PROMPT}{draft}".encode())
        typed = os.read(0, 65536).decode()
        for piece in typed.replace("\x1b[200~", "").replace("\x1b[201~", ""):
            if piece != "\r":
                draft += piece
            elif swallows:
                swallows -= 1
            else:
                submitted.append(draft)
                draft = ""
                Path(out).write_text(json.dumps(submitted), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
