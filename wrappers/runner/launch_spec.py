"""The launch specification of a runner, as a file: a command line could be too long, and other users could read it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mam.broker.bus.url import Endpoint, parse_url
from mam.broker.envelope import keys
from mam.broker.errors import FileRefused
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability
from mam.broker.nats import config as nats_config


@dataclass(frozen=True)
class BrokerRef:
    """Where the broker is, by files on this host. Port and password are read anew at every connect."""

    url: str = ""  # empty: the embedded one
    folder: str = ""
    secrets: str = ""
    password_file: str = ""
    ca_file: str = ""
    users_dir: str = ""  # for a broker of yours with MAM's three users: broker-<user>.password each

    def endpoint(self, user: str) -> Endpoint | None:
        """Return how *user* reaches it; None where no embedded one is proven to run. Raises FileUnusable, Usage."""
        if self.url and self.users_dir:
            password = keys.read_private(nats_config.password_file(Path(self.users_dir), user)).decode().strip()
            own = parse_url(self.url, password, Path(self.ca_file) if self.ca_file else None)
            return own._replace(user=user)
        if self.url:
            password = keys.read_private(Path(self.password_file)).decode().strip() if self.password_file else ""
            return parse_url(self.url, password, Path(self.ca_file) if self.ca_file else None)
        return nats_config.proven(Path(self.folder), Path(self.secrets), user)


@dataclass(frozen=True)
class LaunchSpec:
    """Everything that a runner must know to start its agent and to reach the monitor."""

    session: str
    fingerprint: str
    incarnation: str
    agent: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    mux: str
    mux_server: str
    run_dir: str
    session_key: str
    log: str
    mam: str
    heartbeat_s: float
    broker: BrokerRef
    env_defaults: Mapping[str, str] = field(default_factory=dict)  # where the pane's own environment says nothing
    chaos: str = ""  # bad weather for what it publishes (broker/chaos.py)

    @property
    def spool(self) -> Path:
        """The folder of the events that are not settled yet."""
        return Path(self.run_dir) / "outbox"


def write(spec: LaunchSpec, path: Path) -> None:
    """Write *spec* to *path* (0600) durably. Raises OSError."""
    content = json.dumps(asdict(spec), indent=1).encode("utf-8", "surrogateescape")
    atomic_files.write(path, content, Durability.FILE, point="private.rename")  # a resume reads it after a crash


def read(path: Path) -> LaunchSpec:
    """Return the specification at *path*. Raises FileRefused where it is not one of this version."""
    try:
        content = json.loads(path.read_text("utf-8", "surrogateescape"))
        return LaunchSpec(**{**content, "broker": BrokerRef(**content["broker"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileRefused(path=str(path), why=str(error), hint="`mam agent resume` writes a new one") from error
