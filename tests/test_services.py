"""A service that a test needs may be missing at home, and never in CI."""

import pytest

from tests.support.services import need


@pytest.mark.parametrize(("ci", "ends"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_service_is_a_skip_at_home_and_a_failure_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, ends: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)

    with pytest.raises(ends, match="no-such-program is not installed"):
        need("no-such-program")


def test_a_service_that_is_there_is_named_by_its_path() -> None:
    assert need("git").endswith("/git")
