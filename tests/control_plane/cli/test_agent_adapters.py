"""`mam agent check` and `mam agent sample`: an adapter tried without its agent, a screen recorded for it."""

from pathlib import Path

import pytest

from mam.agents import catalog
from tests.support import Root, run_mam

NEWCOMER = Path(__file__).parents[2] / "support" / "newcomer"


@pytest.mark.parametrize(("kind", "code"), [("grok", 0), ("early-bird", 0), ("broken-parrot", 1), ("nothing", 2)])
def test_check_ends_with_0_for_a_fit_adapter_and_1_for_another(tmp_path: Path, kind: str, code: int) -> None:
    said = run_mam("agent", "check", kind, "--json", cwd=tmp_path, env={"PYTHONPATH": str(NEWCOMER)})

    assert said.code == code
    if code == 2:
        assert said.error["code"] == "unknown_agent"
    else:
        assert said.json["fit"] is (code == 0)
        assert {check["outcome"] for check in said.json["checks"]} <= {"passed", "skipped", "failed"}


def test_a_living_agents_screen_becomes_a_sample_that_its_adapter_is_checked_with(root: Root) -> None:
    root.agent("writer")
    folder = root.path.parent / "samples"
    kept = root.ok("agent", "sample", "scripted", "--agent", "writer", "--output", str(folder), "--words", "new")

    assert (Path(kept["path"]).name, kept["read"]) == ("scripted-ready-new.txt", "ready")
    assert Path(kept["path"]).read_text("utf-8").partition("\n")[2].startswith("scripted>")
    assert root.ok("agent", "check", "scripted", "--samples", str(folder))["samples"] == 1
    other = root.mam("agent", "sample", "grok", "--agent", "writer", "--output", str(folder), "--json")
    assert (other.code, other.error["code"]) == (2, "usage")


def test_a_screen_that_is_read_wrongly_is_kept_under_the_state_that_it_must_be_read_as(tmp_path: Path) -> None:
    (tmp_path / "screen").write_text("scripted> \n", "utf-8")
    words = ["agent", "sample", "scripted", "--file", "screen", "--output", "out", "--state", "working"]
    said = run_mam(*words, cwd=tmp_path)

    assert said.code == 0 and "reads it as ready, and must read working" in said.out
    checked = run_mam("agent", "check", "scripted", "--samples", "out", cwd=tmp_path)
    assert checked.code == 1 and "scripted-working-sample as ready" in checked.out


def test_every_kind_of_mams_own_is_fit(tmp_path: Path) -> None:
    assert {kind: run_mam("agent", "check", kind, cwd=tmp_path).code for kind in catalog.AGENTS} == dict.fromkeys(
        catalog.AGENTS, 0
    )
