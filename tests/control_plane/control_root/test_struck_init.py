"""`mam init` dies, or the disk refuses, before its database is in place: said again, it converges."""

import signal
from pathlib import Path

from tests.support import repository, run_mam


def test_an_init_that_dies_or_is_refused_before_its_database_is_in_place_can_be_said_again(tmp_path: Path) -> None:
    place = repository(tmp_path / "repo")
    died = run_mam("init", cwd=place, env={"MAM_FAULT": "cli@database.install:1:crash"})
    refused = run_mam("init", "--json", cwd=place, env={"MAM_FAULT": "cli@database.install:1:ENOSPC"})

    assert (died.code, refused.code) == (-signal.SIGKILL, 1) and refused.error["code"] != "internal"
    assert run_mam("init", cwd=place).code == 0
    assert run_mam("doctor", cwd=place).code == 0
    assert [path.name for path in (place / ".mam").iterdir() if path.name.startswith(".registry")] == []
