"""A verb that the tests fork from a warm process is the verb that a user starts."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import Root, run_mam
from tests.support.commands import start_mam


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["status", "--json"],
        ["job", "show", "job-0000000000ff", "--json"],
        ["job", "list", "--nonsense"],
        ["nonsense"],
        ["job", "delegate", "--to", "nobody", "--brief", "-", "--json"],
    ],
    ids=" ".join,
)
def test_it_says_and_returns_the_same(root: Root, words: list[str]) -> None:
    env = {**root.env, "MAM_NO_SUBSCRIBER_DAEMON": "1"}

    forked, anew = (run_mam(*words, cwd=root.path, env=env, stdin="a brief\n", anew=each) for each in (False, True))

    assert forked == anew


def test_it_reads_its_own_input_directory_and_environment(root: Root, tmp_path: Path) -> None:
    root.agent()
    brief = "fünf\n" * 50_000  # more than a pipe holds

    job = root.delegate("writer", brief)

    assert (root.path / ".mam" / "jobs" / job / "brief.md").read_text("utf-8").endswith(brief)
    assert run_mam("status", cwd=tmp_path).code == 2
    assert run_mam("status", cwd=tmp_path, env={"WORKSPACE_ROOT": str(root.path)}).code == 0


def test_it_dies_alone_where_it_is_killed_or_takes_too_long(root: Root) -> None:
    root.agent("writer", {"started": {}}, {"hang": {}})
    job = root.delegate()
    child = start_mam("job", "wait", job, cwd=root.path, env=root.env)
    assert child.poll() is None

    child.send_signal(signal.SIGKILL)

    assert child.wait(60) == -signal.SIGKILL
    child.communicate()
    with pytest.raises(subprocess.TimeoutExpired):
        root.mam("job", "wait", job, timeout_s=0.5)
    assert root.mam("job", "cancel", job).code == 0
