"""A verb on a control root without processes."""

import os
import subprocess
from pathlib import Path

from mam.control_plane.registry.audit import AuditLog
from tests.support import MAM
from tests.support.desk import Desk

JOB = "job-00000001"


SURROGATES = b"\xed\xa0\x80"


HOSTILE = b"\xff\xfe\x00 " + SURROGATES + b" \x1b[2J\x1b]0;owned\x07 \xe2\x80\xae desrever\n"


def mam(desk: Desk, *words: str, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [MAM, *words, "--json"], cwd=desk.mam.layout.root, env={**os.environ, **environ}, capture_output=True
    )


def export(desk: Desk, log: Path) -> None:
    with desk.mam.registry.view() as view:
        AuditLog(log).export(view)
