"""What the environment says is checked before anything is begun."""

from pathlib import Path

import pytest

from mam.broker.errors import Usage
from mam.control_plane.config import settings as config


def settings(**values: str) -> config.Settings:
    return config.Settings(values, values, Path("/"))


@pytest.mark.parametrize(
    ("lacks", "values"),
    [
        ("TLS", {"MAM_BROKER_URL": "mqtt://broker.example"}),
        ("TLS", {"MAM_BROKER_URL": "mqtt://team@192.0.2.7"}),
        ("TLS", {"MAM_BROKER_URL": "mqtt://team@[2001:db8::1]:1883"}),
        ("TLS", {"MAM_BROKER_URL": "mqtt://team@localhost.example"}),
        ("TLS", {"MAM_BROKER_URL": "mqtt://broker.example", "MAM_BROKER_USERS_DIR": "/etc/mam/users"}),
        ("a user", {"MAM_BROKER_URL": "mqtts://broker.example"}),
    ],
)
def test_a_broker_beyond_this_machine_needs_tls_and_a_user(lacks: str, values: dict[str, str]) -> None:
    with pytest.raises(Usage, match=f"without {lacks}"):
        config.check(settings(**values))

    config.check(settings(**values, MAM_BROKER_INSECURE="1"))


@pytest.mark.parametrize(
    "values",
    [
        {"MAM_BROKER_URL": "mqtt://localhost"},
        {"MAM_BROKER_URL": "mqtt://127.0.0.2:1884"},
        {"MAM_BROKER_URL": "mqtt://[::1]"},
        {"MAM_BROKER_URL": "mqtts://team@broker.example"},
        {"MAM_BROKER_URL": "mqtts://broker.example", "MAM_BROKER_USERS_DIR": "/etc/mam/users"},
    ],
)
def test_a_broker_on_this_machine_or_over_tls_is_accepted(values: dict[str, str]) -> None:
    config.check(settings(**values))
