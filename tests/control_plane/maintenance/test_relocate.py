"""`mam init --moved` corrects each column that says that it holds a path, and a column that holds one says so."""

import json
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from mam.control_plane.control_root.context import Mam
from mam.control_plane.maintenance import relocate
from mam.control_plane.registry.records import RECORDS, Row
from tests.support.desk import Desk

# Every other column of text: names, states, hashes, and words for people. A new column of text is either declared as
# a path in `records`, or named here.
NO_PATHS = {
    "sessions": "name agent role status incarnation mux pane conversation pid_start boot_id agent_start version"
    " presence screen screen_text ended_reason hook",
    "jobs": "id topic_prefix title session state brief_sha256 result verdict detail summary report_sha256 loop base_sha"
    " head_sha seen_sha",
    "attempts": "job session delivery delivery_reason delivery_evidence last_note",
    # data: what waits for a runner that ends with the move. A prompt and its brief, whose hash is known, name the old
    # place all over, so a dispatch that is not delivered yet is not made to look like one that can be carried out.
    "outbox": "id session kind job incarnation data",
    "findings": "code subject text",  # found anew, or gone, a moment later
    "worktrees": "name branch base_sha state head_sha detail",
    "loops": "id state branch base_sha creator reviewers isolation promote remote test_command title checkpoint"
    " head_sha outcome detail",
    "steps": "loop step state detail",
    "leases": "resource holder",
    "tickets": "id holder names pool granted",
    "questions": "id job question choices fallback answer answered_by",
}


def filled(record: type[Row], old: Path) -> Row:
    """A row that holds a path below *old* in each column of text."""

    def value(column: Field[Any]) -> Any:
        path = str(old / record.table / column.name)
        if record.path_columns().get(column.name):
            return json.dumps({"one": path, "more": [path, "words", {"deep": path}], "none": None})
        return path if "str" in str(column.type) else 1

    return record(**{column.name: value(column) for column in fields(record)})


@pytest.fixture
def moved(desk: Desk, tmp_path: Path) -> tuple[Desk, Path]:
    """A control root whose every record names the place that it was at before it was moved."""
    old = tmp_path / "old"
    with desk.mam.registry.transaction() as tx:
        tx.set_meta("control_root", str(old))
        for record in RECORDS:
            tx.put(filled(record, old))
    desk.mam = Mam(desk.mam.settings, desk.mam.layout, by="test")
    relocate.moved(desk.mam)
    return desk, old


def rows(desk: Desk, record: type[Row]) -> list[Row]:
    with desk.mam.registry.view() as view:
        return view.rows(record)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.table)
def test_each_column_that_holds_a_path_is_declared_and_corrected(moved: tuple[Desk, Path], record: type[Row]) -> None:
    desk, old = moved
    (row,) = rows(desk, record)

    before, after = filled(record, old), str(desk.mam.layout.root)
    changed = {name for name in row.columns() if getattr(row, name) != getattr(before, name)}
    left = {name for name in row.columns() if f"{old}/" in str(getattr(row, name))}

    assert changed == row.path_columns().keys()
    for name in changed:
        assert getattr(row, name) == getattr(before, name).replace(str(old), after)
    assert left == set(NO_PATHS[record.table].split()), "a new column of text: a path (records.PathText), or none?"


def test_what_lies_elsewhere_stays_and_what_only_looks_alike_too(desk: Desk, tmp_path: Path) -> None:
    old, here = tmp_path / "old", tmp_path / "old.worktrees" / "stayed"
    here.mkdir(parents=True)
    went, root = tmp_path / "old.worktrees" / "went", desk.mam.layout.root
    cases = {
        str(old): str(root),
        f"{old}er/x": f"{old}er/x",
        "mam-repo-1234": "mam-repo-1234",
        "tools/agent": "tools/agent",
        str(here): str(here),
        str(went): f"{root}.worktrees/went",
        f"{went.parent}er": f"{went.parent}er",
    }
    for number, path in enumerate(cases):
        desk.session(f"s{number}", status="stopped", cwd=path, args=json.dumps(["--at", path]))
    with desk.mam.registry.transaction() as tx:
        tx.set_meta("control_root", str(old))
    desk.mam = Mam(desk.mam.settings, desk.mam.layout, by="test")

    relocate.moved(desk.mam)

    with desk.mam.registry.view() as view:
        assert {row.cwd for row in view.sessions()} == set(cases.values())
        found = {row.name: (row.cwd, json.loads(row.args)) for row in view.sessions()}
    assert found == {f"s{n}": (path, ["--at", path]) for n, path in enumerate(cases.values())}


def test_an_open_job_s_file_names_the_new_place(desk: Desk, tmp_path: Path) -> None:
    session = desk.session()
    job = desk.job()
    old = tmp_path / "old"
    with desk.mam.registry.transaction() as tx:
        tx.put(replace(session, status="stopped"))
        tx.set_meta("control_root", str(old))
        tx.put(replace(job, folder=job.folder.replace(str(desk.mam.layout.root), str(old))))
    desk.mam = Mam(desk.mam.settings, desk.mam.layout, by="test")
    Path(job.folder, "job.json").unlink()

    relocate.moved(desk.mam)

    assert desk.row(job.id).folder == job.folder
    assert json.loads(Path(job.folder, "job.json").read_text("utf-8"))["report"] == job.report_path
