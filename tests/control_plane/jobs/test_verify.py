"""`mam verify` finds what was changed behind the registry's back."""

from pathlib import Path

from tests.support import Root


def test_verify_finds_a_byte_that_was_changed_in_the_database(root: Root) -> None:
    root.agent()
    job = root.delegate("writer", "x", "--wait")
    assert root.mam("verify", job).code == 0
    with root.registry.transaction() as tx:
        tx.connection.execute(
            "UPDATE events SET wire = CAST(replace(CAST(wire AS TEXT), 'v1,', 'v1,A') AS BLOB) WHERE kind = 'report'"
        )

    said = root.mam("verify", job, "--json")

    assert said.code == 1 and not said.json["ok"]


def test_verify_finds_a_report_that_was_changed_afterwards(root: Root) -> None:
    root.agent()
    job = root.delegate("writer", "x", "--wait")
    path = Path(root.job(job).report_path)
    path.write_text(path.read_text("utf-8") + "and more\n", "utf-8")

    said = root.mam("verify", job, "--json")

    assert said.code == 1
    assert [c["what"] for c in said.json["checks"] if not c["ok"]] == ["report"]
