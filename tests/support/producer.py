"""An agent that says much: writes signed progress events into its spool, and prints each id once it is on disk."""

import os
import sys
from pathlib import Path

from mam.broker import spool
from mam.broker.envelope import keys, signing, topics
from mam.broker.envelope.payloads import Producer


def main(folder: Path, key_file: Path, job: str, first: int, last: int) -> None:
    token, topic, producer = keys.load(key_file), topics.job(job), Producer("verb")
    for number in range(first, last):
        body = producer.job_event(job, 1, "progress", {"note": f"n{number}"})
        wire = signing.seal(body, token=token, use="event-mac", scope=job, topic=topic)
        spool.write(folder, str(body["id"]), topic, wire)
        os.write(1, f"{number} {body['id']}\n".encode())  # in one piece: several of us write to one file


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
