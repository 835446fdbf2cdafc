"""What the released `mam` said and meant, this one says and means."""

from pathlib import Path

import pytest

from tests.compatibility.compare_verbs import compare


@pytest.mark.timeout(900)
def test_every_verb_answers_as_the_released_one_did_but_where_it_is_meant(tmp_path: Path) -> None:
    unexpected = [str(each) for each in compare(tmp_path) if not each.is_meant]

    assert not unexpected, "\n".join(unexpected)
