"""What is promised is proven by name."""

import pytest

from tests.coverage_of_requirements import ALL, PROMISED, marks

NAMED = marks()


@pytest.mark.req("M109")
@pytest.mark.parametrize("line", PROMISED)
def test_each_promised_line_has_a_test_that_is_named_after_it(line: str) -> None:
    assert NAMED.get(line)


def test_no_test_claims_a_line_that_there_is_not() -> None:
    assert set(NAMED) <= set(ALL)
