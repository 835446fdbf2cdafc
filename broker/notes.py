"""Small JSON files of ours, as crashes and editors may have left them. Standard library only."""

import json
from pathlib import Path


def read(path: Path) -> dict[str, object]:
    """The object in a file; empty where it is missing, torn, or anything else than an object. Never raises."""
    try:
        value = json.loads(path.read_text("utf-8", "surrogateescape"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
