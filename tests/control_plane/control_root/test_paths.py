"""One control root by several paths, links, and paths that are too deep."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mam.broker.envelope import keys
from mam.broker.host import process_identity
from mam.control_plane.control_root import monitor_process
from tests.support import Root, git, repository, run_mam
from tests.support.bystander import JOB
from tests.support.desk import Desk

pytestmark = pytest.mark.hostile


class TestPaths:
    @pytest.fixture
    def link(self, root: Root, tmp_path: Path) -> Path:
        """Another path to the same control root."""
        link = tmp_path / "link"
        link.symlink_to(root.path)
        return link

    def test_one_control_root_by_two_paths_has_one_monitor(self, root: Root, link: Path) -> None:
        assert root.mam("up").code == 0
        known = monitor_process.look(root.parts.layout)
        assert known is not None

        up = root.mam("up", "--root", str(link), "--json")

        assert (up.code, up.json["monitor_pid"]) == (0, known.process.pid)
        down = root.mam("down", "--root", str(link), "--json")
        assert (down.code, down.json["monitor"]) == (0, True)
        assert not process_identity.alive(known.process)

    def test_an_agent_that_was_made_by_one_path_is_served_by_the_other(self, root: Root, link: Path) -> None:
        root.agent()
        by_link = {"WORKSPACE_ROOT": str(link)}

        job = root.mam("job", "delegate", "--to", "writer", "--brief", "README", "--json", env=by_link).json["id"]
        assert root.mam("job", "wait", job, "--timeout", "30", env=by_link).code == 0
        for verb in ("stop", "resume", "stop"):
            said = root.mam("agent", verb, "writer", env=by_link)
            assert said.code == 0, said.err

    def test_a_mam_folder_may_be_a_link_and_git_leaves_it_alone(self, make_root: Callable[..., Root]) -> None:
        root = make_root()
        root.mam("down")
        elsewhere = root.path.parent / "big disk"
        (root.path / ".mam").rename(elsewhere)
        (root.path / ".mam").symlink_to(elsewhere)
        assert root.mam("init").code == 0

        root.agent()
        assert root.mam("job", "wait", root.delegate(), "--timeout", "30").code == 0
        assert git(root.path, "status", "--porcelain") == ""
        git(root.path, "clean", "-fd")
        assert (root.path / ".mam" / "registry.db").exists()

    def test_a_path_that_is_too_deep_for_the_database_is_refused_before_anything_is_made(self, tmp_path: Path) -> None:
        deep = repository(tmp_path / "/".join(["d" * 200] * 3))

        said = run_mam("init", "--json", cwd=deep)

        assert (said.code, said.error["code"]) == (1, "file_refused")
        assert not (deep / ".mam").exists()

    def test_jobs_and_logs_may_lie_on_links(self, root: Root, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        (tmp_path / "jobs").symlink_to(tmp_path / "there")
        root.env["MAM_JOBS_DIR"] = str(tmp_path / "jobs")
        root.agent()

        job = root.delegate()

        assert root.mam("job", "wait", job, "--timeout", "30").code == 0
        assert (tmp_path / "there" / job / "writer-reports" / "report-final.md").exists()
        assert root.mam("agent", "stop", "writer", env={"MAM_JOBS_DIR": str(tmp_path / "there")}).code == 0

    def test_a_job_id_that_is_taken_leaves_the_first_job_whole(self, root: Root) -> None:
        root.agent()
        root.delegate("writer", "first", "--id", JOB, "--wait")
        folder = root.path / ".mam" / "jobs" / JOB
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

        said = root.mam("job", "delegate", "--to", "writer", "--id", JOB, "--brief", "README", "--json")

        assert (said.code, said.error["code"]) == (1, "job_exists")
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
        assert root.mam("verify", JOB).code == 0

    def test_a_key_that_a_crash_left_behind_does_not_take_a_job_id_for_ever(self, desk: Desk) -> None:
        desk.session()
        keys.create(desk.mam.layout.job_key(JOB))

        job = desk.job(job_id=JOB)

        assert desk.take(JOB, desk.report(job)) == ["accepted"]
