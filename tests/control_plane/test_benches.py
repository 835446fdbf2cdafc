"""Where reviewers work, as the monitor finds it."""

from mam.control_plane import benches

from .conftest import Desk


def test_what_a_sandbox_keeps_beside_benches_is_no_loop(desk: Desk) -> None:
    reviews = desk.mam.layout.reviews
    for name in (".git", ".codex", "loop-1a2b3c4d/r1-rev-a", "loop-1a2b3c4d/r1-rev-b"):
        (reviews / name).mkdir(parents=True)
    (reviews / "a file").touch()
    assert benches.left(desk.mam) == {"loop-1a2b3c4d": 2}
