"""What the released `mam` said and meant, this one says and means: its verbs, its messages and its files."""

from pathlib import Path

import pytest

from tests.compatibility import compare_verbs, compare_wire
from tests.support.installations import Installation, installed_once


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return installed_once(tmp_path_factory)


@pytest.mark.end_to_end
@pytest.mark.timeout(900)
def test_every_verb_answers_as_the_released_one_did_but_where_it_is_meant(
    released: Installation, tmp_path: Path
) -> None:
    unexpected = [str(each) for each in compare_verbs.compare(released, tmp_path) if not each.is_meant]

    assert not unexpected, "\n".join(unexpected)


@pytest.mark.end_to_end
def test_a_job_sends_the_messages_and_leaves_the_files_that_it_did_in_the_released_version(
    released: Installation, tmp_path: Path
) -> None:
    unexpected = compare_wire.compare(released, tmp_path)

    assert not unexpected, "\n".join(unexpected)
