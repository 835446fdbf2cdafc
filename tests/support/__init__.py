"""
What many tests need. Read `control_root.py` first: `Root` is a control root driven from the command line.

`Desk` (desk.py) is one without processes, `Panes` (panes.py) a multiplexer server, `Stage` (stage.py) a control root
with reviewers for loops, `Road` (road.py) one job whose producer, carrier, broker and monitor can each be killed.
"""

from tests.support.commands import MAM, Said, run_mam
from tests.support.control_root import Root
from tests.support.repositories import git, repository
from tests.support.sizes import FIGURES, FULL, size
from tests.support.waiting import until

__all__ = ["FIGURES", "FULL", "MAM", "Root", "Said", "git", "repository", "run_mam", "size", "until"]
