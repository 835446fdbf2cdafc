"""Verbs that run beside a test, and what they have come to."""

import os
import subprocess
from pathlib import Path
from typing import Any

import psutil

from tests.support import MAM, Root

HANG: list[dict[str, Any]] = [{"started": {}}, {"hang": {}}]


def has_open(child: "subprocess.Popen[bytes]", name: str) -> bool:
    """Whether a process has a file of this name open: it has come as far as that."""
    return any(Path(file.path).name == name for file in psutil.Process(child.pid).open_files())


def begin(root: Root, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([MAM, *words], cwd=root.path, env={**os.environ, **root.env}, stdout=-3, stderr=-3)
