"""Topics there and back, and names that are topics and file names at once."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mam.broker.envelope import topics
from mam.broker.envelope.topics import Address
from mam.broker.errors import BadName

MANY = settings(deadline=None, max_examples=200)
job_ids = st.from_regex(topics.JOB_ID, fullmatch=True)
names = st.from_regex(topics.NAME, fullmatch=True)


@pytest.mark.req("M36", "M96")
@MANY
@given(job_ids)
def test_a_job_has_one_topic_which_is_its_id(job: str) -> None:
    assert topics.job(job) == f"jobs/{job}"
    assert topics.parse(topics.job(job)) == Address("job", job)
    assert topics.parse(topics.job_state(job)) == Address("job_state", job)


@MANY
@given(names)
def test_session_topics_come_back(name: str) -> None:
    assert topics.parse(topics.inbox(name)) == Address("inbox", name)
    assert topics.parse(topics.events(name)) == Address("events", name)
    assert topics.parse(topics.presence(name)) == Address("presence", name)
    assert topics.parse(topics.probe(name)) == Address("probe", name)
    assert topics.parse(f"loops/{name}/state") == Address("loop_state", name)


def test_the_topics_without_an_owner_come_back() -> None:
    assert topics.parse(topics.MONITOR) == Address("monitor", "")
    assert topics.parse(topics.DRIFT) == Address("drift", "")


@pytest.mark.req("M36")
def test_everything_of_one_control_root_lies_below_its_fingerprint() -> None:
    assert topics.root("0123456789ab") == "mam/0123456789ab"


@pytest.mark.parametrize(
    "logical",
    [
        *[
            "",
            "/",
            "jobs",
            "jobs/",
            "jobs/no",
            "jobs/+",
            "jobs/#",
            "jobs/JOB-01234567",
            "jobs/job-01234567/",
            "drift/x",
        ],
        *[
            "/jobs/job-01234567",
            "jobs//job-01234567",
            "jobs/job-01234567/state/x",
            "jobs/job-01234567/inbox",
            "drift\n",
        ],
        *[
            "jobs/job-01234567\n",
            "jobs/job.01234567",
            "jobs/job 01234567",
            "mam/0123456789ab/jobs/job-01234567",
            "Drift",
        ],
        *["agents/w1", "agents/w1/outbox", "agents/+/inbox", "agents/0123/inbox", "agents/w1/inbox\n", "agents//inbox"],
        *["monitor", "monitor/state/x", "probe", "probe/", "loops/x", "loops/X/state", "$SYS/broker", "$JS/API/INFO"],
    ],
)
def test_what_is_none_of_mams_is_no_address(logical: str) -> None:
    assert topics.parse(logical) is None


@MANY
@given(
    st.text() | st.lists(st.sampled_from(["jobs", "agents", "inbox", "state", "w1", "+", "#"]) | names).map("/".join)
)
@example("agents/w1/inbox")
def test_an_address_leads_back_to_its_topic_and_to_no_other(logical: str) -> None:
    address = topics.parse(logical)
    makers = {"job": topics.job, "job_state": topics.job_state, "inbox": topics.inbox, "events": topics.events}
    makers |= {"presence": topics.presence, "probe": topics.probe, "loop_state": "loops/{}/state".format}
    makers |= {"monitor": lambda _: topics.MONITOR, "drift": lambda _: topics.DRIFT}
    if address is not None:
        assert makers[address.place](address.owner) == logical
        assert not set(address.owner) & set("/+#.* >\n")


@pytest.mark.parametrize(
    "job", ["no", "0123", "UPPERCASE", "with space", "a.b.c.d.e", "jörg-jörg", "job-01234567\n", "../x-x-x"]
)
def test_a_bad_job_id_is_named(job: str) -> None:
    with pytest.raises(BadName) as caught:
        topics.check_job_id(job)
    assert caught.value.data["name"] == job
    assert repr(job) in str(caught.value)
    assert caught.value.exit_code == 2
    assert "8 to 64" in caught.value.remedy


@pytest.mark.parametrize("name", ["", "0123", "W1", "w 1", "w.1", "ü", "w1\n", "x" * 49, "-x", "a/b"])
def test_a_bad_name_is_named_with_its_kind(name: str) -> None:
    with pytest.raises(BadName) as caught:
        topics.check_name(name, "loop")
    assert str(caught.value).startswith(f"loop name {name!r}")


@MANY
@given(job_ids, names)
def test_good_names_are_returned_as_they_are(job: str, name: str) -> None:
    assert topics.check_job_id(job) == job
    assert topics.check_name(name) == name
