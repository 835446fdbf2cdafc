"""The table of mutations still fits the code. `make mutants` tries them."""

import pytest

from tests.mutants import mutant, table
from tests.mutants.mutant import Mutant, Stale


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: row.name)
def test_each_mutation_applies_and_its_tests_exist(row: Mutant) -> None:
    mutant.check(row)


def test_no_name_stands_twice() -> None:
    names = [row.name for row in table.ROWS]
    assert len(set(names)) == len(names)


ROW = table.ROWS[0]


@pytest.mark.parametrize(
    "stale",
    [
        ROW._replace(old="text that stands nowhere"),
        ROW._replace(old="\n"),
        ROW._replace(new="return return"),
        ROW._replace(file="no/such.py"),
        ROW._replace(tests=("tests/no_such.py",)),
        ROW._replace(tests=(f"{ROW.tests[0].partition('::')[0]}::test_no_such",)),
    ],
    ids=["gone", "twice", "no Python", "no file", "no test file", "no test"],
)
def test_a_row_that_no_longer_fits_is_refused(stale: Mutant) -> None:
    with pytest.raises(Stale):
        mutant.check(stale)
