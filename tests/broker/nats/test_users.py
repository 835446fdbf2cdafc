"""What each user of the embedded server may do, shown by what arrives, since a denied publish is acknowledged too."""

from typing import Any

import pytest

from mam.broker.errors import BrokerUnreachable, MamError
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from tests.broker.conftest import Embedded, Inbox
from tests.support import until

JOB, OTHER = "jobs/job-00000001", "jobs/job-00000002"


@pytest.fixture
def everything(embedded: Embedded, inbox: type[Inbox]) -> Inbox:
    """All that is sent below the root, as control hears it."""
    embedded.start()
    got = inbox()
    bus = embedded.bus("control")
    bus.subscribe("#", got)
    bus.wait_ready(30)
    return got


def say(embedded: Embedded, user: str, *topics: str) -> None:
    """Publish as *user*, and return when the server has acknowledged all of it."""
    bus = embedded.bus(user)
    bus.wait_ready(30)
    for topic in topics:
        assert bus.publish(topic, user.encode())
    bus.close(flush_s=30)


def refused(embedded: Embedded, user: str, *patterns: str, **options: Any) -> list[str]:
    """Which of *patterns* the server does not grant to *user*."""
    denied = []
    for pattern in patterns:
        bus = embedded.bus(user, **options)
        bus.wait_ready(30)
        bus.subscribe(pattern, lambda _message: None)
        while True:
            try:
                bus.wait_ready(0.2)
            except BrokerUnreachable as error:
                if "was refused" not in str(error):
                    continue  # no answer yet
                denied.append(pattern)
            break
        bus.close()
    return denied


def test_a_runner_speaks_of_jobs_and_itself(embedded: Embedded, everything: Inbox) -> None:
    allowed = [JOB, "agents/w1/events", "agents/w1/presence", "probe/runner"]
    say(embedded, "runner", *allowed)
    assert [everything.next().topic for _ in allowed] == allowed


def test_nobody_receives_what_a_runner_may_not_say(embedded: Embedded, everything: Inbox) -> None:
    denied = [
        "agents/w1/inbox",
        f"{JOB}/state",
        "monitor/state",
        "drift",
        "loops/x/state",
        "probe/control",
        "other",
        f"{JOB}/x",
    ]
    say(embedded, "runner", *denied, JOB)
    assert everything.upto(JOB, b"runner") == []


def test_nobody_receives_what_a_viewer_says(embedded: Embedded, everything: Inbox) -> None:
    say(embedded, "viewer", JOB, "agents/w1/inbox", "agents/w1/events", "probe/viewer", "drift", "x")
    say(embedded, "control", OTHER)
    assert everything.upto(OTHER, b"control") == []


def test_control_speaks_to_runners_and_not_as_them(embedded: Embedded, everything: Inbox) -> None:
    allowed = [JOB, f"{JOB}/state", "agents/w1/inbox", "agents/w1/presence", "loops/x/state", "monitor/state", "drift"]
    say(embedded, "control", *allowed, "agents/w1/events", "probe/runner", "x", "probe/control")
    assert [everything.next().topic for _ in allowed] == allowed
    assert everything.upto("probe/control", b"control") == []


def test_a_runner_hears_inboxes_and_presence_and_no_jobs(embedded: Embedded) -> None:
    embedded.start()
    allowed = ["agents/+/inbox", "agents/w1/inbox", "agents/+/presence", "probe/runner"]
    denied = ["jobs/+", JOB, f"{JOB}/state", "agents/+/events", "#", "+/+", "agents/#", "monitor/state", "drift"]
    assert refused(embedded, "runner", *allowed, *denied) == denied


def test_a_runner_receives_no_job_even_where_it_asked(embedded: Embedded, inbox: type[Inbox]) -> None:
    embedded.start()
    bus, got = embedded.bus("runner"), inbox()
    bus.subscribe("jobs/+", got)
    bus.subscribe("agents/+/inbox", got)
    with pytest.raises(BrokerUnreachable):
        bus.wait_ready(0.5)
    say(embedded, "control", JOB, "agents/w1/inbox")
    assert got.upto("agents/w1/inbox", b"control") == []


def test_a_viewer_hears_everything_below_the_root_and_nothing_else(embedded: Embedded, inbox: type[Inbox]) -> None:
    embedded.start()
    bus, got = embedded.bus("viewer"), inbox()
    bus.subscribe("#", got)
    bus.wait_ready(30)
    said = [JOB, "agents/w1/inbox", "drift"]
    say(embedded, "control", *said)
    assert [got.next().topic for _ in said] == said
    for under in ("mam", "mam/ffffffffffff", "$JS/API", "$SYS", "$KV", "$MQTT"):
        assert refused(embedded, "viewer", "#", under=under) == ["#"], under


def test_no_user_hears_another_control_root_or_the_servers_own_subjects(embedded: Embedded) -> None:
    embedded.start()
    for user in nats_config.USERS:
        for under in ("mam/ffffffffffff", "$JS/API", "$SYS", "$KV"):
            assert refused(embedded, user, "#", "x", under=under) == ["#", "x"], (user, under)


@pytest.mark.parametrize("user", nats_config.USERS)
def test_no_user_reaches_the_servers_storage(embedded: Embedded, user: str, inbox: type[Inbox]) -> None:
    """$JS.API deletes and purges streams: what is retained is there after both were asked for, and a restart."""
    embedded.start()
    first = embedded.bus("control")
    first.wait_ready(30)
    first.publish(JOB, b"kept", retain=True)
    first.close(flush_s=30)
    bus = embedded.bus(user, under="$JS/API")
    bus.wait_ready(30)
    for verb in ("PURGE", "DELETE"):
        for stream in ("$MQTT_rmsgs", "$MQTT_msgs", "$MQTT_sess"):
            assert bus.publish(f"STREAM/{verb}/{stream}", b"")
    bus.close(flush_s=30)
    nats_server.stop(embedded.folder)
    embedded.start()
    got = inbox()
    embedded.bus("viewer").subscribe(JOB, got)
    assert got.next() == (JOB, b"kept", True)


def test_users_and_passwords_are_made_once_and_differ(embedded: Embedded) -> None:
    made = nats_config.ensure_users(embedded.secrets)
    assert made.keys() == set(nats_config.USERS)
    assert nats_config.ensure_users(embedded.secrets) == made
    assert len(set(made.values())) == 3
    assert min(len(password) for password in made.values()) >= 43


@pytest.mark.parametrize("half", [b"", b"\n", b"abc"])
def test_half_a_password_is_never_used(embedded: Embedded, half: bytes) -> None:
    path = nats_config.password_file(embedded.secrets, "control")
    path.touch(0o600)
    path.write_bytes(half)
    try:
        passwords = nats_config.ensure_users(embedded.secrets)
    except MamError:
        return
    assert len(passwords["control"]) >= 43


def test_no_password_shows_in_an_endpoint_a_bus_or_the_servers_log(embedded: Embedded) -> None:
    running = embedded.start()
    for user, password in nats_config.ensure_users(embedded.secrets).items():
        bus = embedded.bus(user)
        bus.wait_ready(30)
        shown = repr(nats_config.endpoint(embedded.secrets, running.port, user)) + repr(bus)
        assert password not in shown + (embedded.folder / "nats.log").read_text()


def test_everything_survives_kill_9(embedded: Embedded, inbox: type[Inbox]) -> None:
    """Port, passwords, configuration, and the copies that were acknowledged."""
    first = embedded.start()
    bus = embedded.bus("control")
    bus.wait_ready(30)
    for number in range(20):
        assert bus.publish(f"jobs/job-{number:08}", b"%d" % number, retain=True)
    bus.close(flush_s=30)

    def files() -> dict[str, bytes]:
        kept = [*embedded.secrets.iterdir(), embedded.folder / "nats.conf"]
        return {path.name: path.read_bytes() for path in kept}

    before = files()
    embedded.kill()
    assert files() == before
    again = embedded.start()
    assert (again.port, again.pid == first.pid) == (first.port, False)
    assert files() == before
    speaker = embedded.bus("control")
    speaker.wait_ready(30)

    def copies() -> dict[str, bytes]:
        """What a fresh viewer is given; a server that is still loading its copies gives fewer, without a word."""
        got, viewer = inbox(), embedded.bus("viewer")
        viewer.subscribe("jobs/+", got)
        viewer.wait_ready(30)
        speaker.publish("jobs/job-marker00", b"end")
        return dict(got.upto("jobs/job-marker00", b"end"))

    until(lambda: copies() == {f"jobs/job-{number:08}": b"%d" % number for number in range(20)}, "all copies")
