"""Results for people, as wide as their terminal."""

import sys
from collections.abc import Sequence

from mam.broker.host import terminal
from mam.control_plane.explain import tables


def shown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for standard output; nothing is cut where that is no terminal."""
    return tables.table(header, rows, terminal.columns(sys.stdout))
