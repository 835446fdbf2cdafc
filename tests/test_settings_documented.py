"""What the code reads and what .mam.env.example and the docs say are the same."""

import re
from pathlib import Path

from mam.broker.nats import config as nats_config

REPOSITORY = Path(__file__).parents[1]
NAME = re.compile(r"[\"']((?:MAM_[A-Z_]+)|WORKSPACE_ROOT|AGENT_SESSIONS_YAML|DELEGATE_JOB_LOGS_DIR)[\"']")
# What MAM tells itself: pane and session, never set by a person.
OWN = {
    "MAM_SESSION",
    "MAM_SESSION_KEY_FILE",
    "MAM_SPOOL",
    "MAM_PANE",
    "MAM_COMMAND",
    "MAM_VERSION",
    "MAM_OUTPUT_DIR",
    "MAM_",
}


def test_every_setting_that_is_read_is_explained_and_no_other() -> None:
    read = set()
    for room in ("agents", "wrappers", "control_plane"):
        for path in (REPOSITORY / room).rglob("*.py"):
            read |= set(NAME.findall(path.read_text("utf-8")))
    example = (REPOSITORY / ".mam.env.example").read_text("utf-8")

    explained = set(re.findall(r"^#([A-Z_]+)=", example, re.MULTILINE))

    assert explained == read - OWN


def test_the_production_brokers_permissions_are_the_embedded_ones() -> None:
    text = (REPOSITORY / "nats-docker" / "nats.conf").read_text("utf-8")
    users = {block.split('"')[1]: block for block in text.split("user: ")[1:]}

    for user, (publish, subscribe) in nats_config.permissions("*").items():
        subjects = set(re.findall(r"\"(mam\.\*[^\"]*)\"", users[user]))
        assert subjects == set(publish) | set(subscribe), user
    assert 'deny: [">"]' in users["viewer"]
