"""Small JSON files of ours, as crashes and editors may have left them. Standard library only."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from mam.broker.host import fault_points


def read(path: Path) -> dict[str, object]:
    """The object in a file; empty where it is missing, torn, or anything else than an object. Never raises."""
    try:
        value = json.loads(path.read_text("utf-8", "surrogateescape"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write(path: Path, content: Mapping[str, object]) -> None:
    """Put *content* at *path* in one step; not synced, since it is written anew after a crash. Raises OSError."""
    partial = path.with_name(f".{path.name}")
    partial.write_text(json.dumps(content), "utf-8")
    fault_points.point("note.rename")
    partial.replace(path)


def write_json(path: Path, content: dict[str, object]) -> None:
    """Replace a file of ours in one step (0600)."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.flush()
        fault_points.point("json.fsync")
        os.fsync(file.fileno())
    fault_points.point("json.rename")
    partial.replace(path)
