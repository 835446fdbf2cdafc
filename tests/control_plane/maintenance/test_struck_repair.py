"""`mam doctor --fix` dies, or the disk refuses: no folder is lost."""

import os

from tests.support import Root
from tests.support.strikes import dies, is_refused


def test_a_repair_that_dies_or_is_refused_loses_no_folder(root: Root) -> None:
    orphan = root.path / ".mam" / "jobs" / "job-00000001"
    orphan.mkdir()
    (orphan / "job.json").write_text("{}")
    os.utime(orphan, (1, 1))

    is_refused(root, "cli@doctor.move:1", "doctor", "--fix")
    dies(root, "cli@doctor.move:1", "doctor", "--fix")

    assert root.mam("doctor", "--fix").code == 0
    assert (root.path / ".mam" / "lost-and-found" / "job-00000001" / "job.json").exists() and not orphan.exists()
