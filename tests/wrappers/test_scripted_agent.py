"""What a scripted agent takes from a job's prompt: the very commands and paths, whatever they hold."""

import json
import shlex
from pathlib import Path

import pytest

from mam.control_plane.jobs import prompts
from mam.wrappers import process
from mam.wrappers.scripted_agent import JobPrompt

JOB = "job-20260101-aaaa"
PLACES = {
    "plain": "/srv/project",
    "spaces": "/srv/my project/two  spaces",
    "single quotes": "/srv/o'brien's 'own'",
    "double quotes": '/srv/the "best" one',
    "dollar": "/srv/$HOME/$(id)/`id`",
    "backslash": "/srv/back\\slash\\",
    "korean": "/srv/한국어 프로젝트",
    "newline": "/srv/two\nlines/and\n\nmore",
    "everything": "/srv/a 'b' \"c\" $D\n한 ; & | > # ! * ? [x] {y} ~",
    "words of ours": "/srv/job started/job report/mam job progress",
    "hash": "/srv/ #comment",
}


def made(place: str, *, mam: str = "", attempt: int = 3) -> tuple[str, Path, Path]:
    root = Path(place)
    brief, report = root / "jobs" / JOB / "brief.md", root / "jobs" / JOB / "report-final.md"
    mam = mam or str(root / "bin" / "mam")
    verbs = prompts.commands(mam, root / ".mam" / "jobs", JOB, attempt)
    return prompts.prompt(verbs, JOB, attempt, brief, report), brief, report


@pytest.mark.req("M16")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
class TestEveryPath:
    def test_brief_and_report_are_found(self, place: str) -> None:
        prompt, brief, report = made(place)
        parsed = JobPrompt.parse(prompt)
        assert parsed is not None
        assert (parsed.brief, parsed.report_path) == (brief, report)

    def test_each_command_is_what_the_prompt_spells_out(self, place: str) -> None:
        prompt, _, _ = made(place)
        parsed = JobPrompt.parse(prompt)
        assert parsed is not None
        mam, registry = f"{Path(place)}/bin/mam", f"{Path(place)}/.mam/jobs"
        for verb in ("started", "progress", "report"):
            words = shlex.split(getattr(parsed, verb))
            assert words == [mam, "job", verb, "--registry-dir", registry, "--job", JOB, "--attempt", "3"]
            assert getattr(parsed, verb) in prompt  # letter by letter

    def test_a_shell_reads_the_same_words(self, place: str, tmp_path: Path) -> None:
        prompt, _, _ = made(place, mam=str(tmp_path / "it's mam"))
        (tmp_path / "it's mam").write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', "utf-8")
        (tmp_path / "it's mam").chmod(0o755)
        parsed = JobPrompt.parse(prompt)
        assert parsed is not None
        said = process.run(["sh", "-c", f"{parsed.report} --result done"]).stdout.split("\0")
        registry = f"{Path(place)}/.mam/jobs"
        expected = ["job", "report", "--registry-dir", registry, "--job", JOB, "--attempt", "3", "--result", "done", ""]
        assert said == expected


@pytest.mark.parametrize("text", ["", "hello", "it's a word", "please read [MAM job x, attempt 1]"])
def test_free_text_is_no_job(text: str) -> None:
    assert JobPrompt.parse(text) is None


class TestScript:
    def parsed(self, tmp_path: Path, brief: str) -> JobPrompt:
        prompt, path, _ = made(str(tmp_path))
        path.parent.mkdir(parents=True)
        path.write_text(brief, "utf-8")
        parsed = JobPrompt.parse(prompt)
        assert parsed is not None
        return parsed

    def test_a_brief_may_bring_its_own_script(self, tmp_path: Path) -> None:
        steps = [{"started": {}}, {"say": "한국어 ']'"}]
        brief = f"# Task\n\nSCRIPT: {json.dumps(steps)}\n\nmore\n"
        assert self.parsed(tmp_path, brief).script() == steps

    def test_a_brief_without_one_leaves_the_agents_own(self, tmp_path: Path) -> None:
        assert self.parsed(tmp_path, "# Task\nthe word SCRIPT: [] inside a line is none\n").script() is None
