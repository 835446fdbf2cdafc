"""The monitor's hold on the broker: keeps the embedded one running and a connection to it, or to the user's own."""

import logging
import time
from collections import deque
from collections.abc import Callable

from mam.broker.bus.protocol import Bus, Handler, Will
from mam.broker.bus.url import Endpoint
from mam.broker.envelope import keys, topics
from mam.broker.errors import MamError
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability
from mam.broker.nats import config as nats_config
from mam.broker.nats import process as nats_server
from mam.control_plane.control_root.context import Mam
from mam.control_plane.sessions import runtime
from mam.wrappers import process
from mam.wrappers.runner.bus_session import Connect

_log = logging.getLogger("mam.keeper")

STARTS_A_MINUTE = 5
AWAY_S = 5.0
CARDS = ("jobs/+/state", "loops/+/state")  # to know what the broker still keeps of things that are gone
UNANSWERED = 2
SUBSCRIBED = ("jobs/+", "agents/+/events", "agents/+/presence", *CARDS)


class BrokerSupervisor:
    """*problem* says in words what is wrong with the broker; empty while all is well."""

    def __init__(self, mam: Mam, connect: Connect, will: Will, on_message: Handler, wake: Callable[[], None]) -> None:
        self._mam, self._connect, self._will = mam, connect, will
        self._on_message, self._wake = on_message, wake
        self._bus: Bus | None = None
        self._endpoint: Endpoint | None = None
        self._anew = False
        self._connected_at = time.monotonic()
        self._starts: deque[float] = deque()
        self.problem = ""

    @property
    def bus(self) -> Bus | None:
        """The bus while it is connected."""
        return self._bus if self._bus is not None and self._bus.connected else None

    @property
    def url(self) -> str:
        return self._endpoint.url if self._endpoint is not None else ""

    def tend(self) -> None:
        """Start and connect what is missing. Raises nothing: what went wrong is in *problem*."""
        try:
            self._heal()
            self._attach(self._where())
            self.problem = self._connection_problem()
        except MamError as error:
            self.problem = str(error)

    def connected_anew(self) -> bool:
        """Whether a connection was made since the last call."""
        anew, self._anew = self._anew, False
        if anew:
            self.problem = ""
        return anew

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()

    def _heal(self) -> None:
        """
        Start the embedded broker anew where it takes messages and answers for none.

        After a write of its store failed (a full disk), nats-server never
        stores again in that life, however much room there is.
        """
        if self._bus is None or self._bus.unanswered < UNANSWERED or runtime.broker_ref(self._mam).url:
            return
        _log.warning("the embedded broker acknowledges nothing: starting it anew")
        self._bus.close(flush_s=0)
        self._bus = self._endpoint = None
        nats_server.stop(self._mam.layout.broker)

    def _connection_problem(self) -> str:
        """A connection that is away for a moment comes back by itself; after that a person should know."""
        if self._bus is not None and self._bus.unanswered >= UNANSWERED:
            return f"{self.url} acknowledges nothing that is sent to it"
        if self.bus is not None:
            self._connected_at = time.monotonic()
            return ""
        away = time.monotonic() - self._connected_at > AWAY_S
        return f"not connected to {self.url}" if away and self.url else self.problem

    def _where(self) -> Endpoint:
        """Where the broker is; the embedded one is started again where it ended, five times a minute at most."""
        ref = runtime.broker_ref(self._mam)
        if ref.url:
            _keep_password(self._mam)
            own = ref.endpoint("control")
            assert own is not None
            return own
        folder, secrets = self._mam.layout.broker, self._mam.layout.secrets
        found = nats_config.proven(folder, secrets, "control")
        if found is None:
            self._count_start()
            start_server(self._mam)
            found = nats_config.proven(folder, secrets, "control")
        if found is None:
            raise nats_server.ServerFailed(why="it ended right after its start", log=str(folder / "nats.log"))
        return found

    def _count_start(self) -> None:
        now = time.monotonic()
        while self._starts and now - self._starts[0] > 60:
            self._starts.popleft()
        if len(self._starts) >= STARTS_A_MINUTE:
            log = str(self._mam.layout.broker / "nats.log")
            raise nats_server.ServerFailed(why="it ended five times within a minute", log=log)
        self._starts.append(now)

    def _attach(self, endpoint: Endpoint) -> None:
        if endpoint == self._endpoint and self._bus is not None:
            return
        if self._bus is not None:
            self._bus.close(flush_s=0)
        self._endpoint = endpoint
        self._bus = self._connect(endpoint, topics.root(self._mam.fingerprint), self._will, self._on_connect)
        for pattern in SUBSCRIBED:
            self._bus.subscribe(pattern, self._on_message)
        self._bus.wait_ready(5)

    def _on_connect(self) -> None:
        self._anew = True
        self._wake()


def start_server(mam: Mam) -> nats_server.Running:
    """Start the embedded broker of a control root, or find it running. Raises what server.start raises."""
    layout, settings = mam.layout, mam.settings
    return nats_server.start(
        layout.broker,
        layout.secrets,
        mam.fingerprint,
        binary=nats_server.find_binary(settings.path("MAM_NATS_SERVER")),
        spawn=process.spawn,
        port=settings.port("MAM_BROKER_PORT"),
    )


def _keep_password(mam: Mam) -> None:
    """A password from `.mam.env` goes into a 0600 file: runners get paths, never secrets."""
    password = mam.settings.text("MAM_BROKER_PASSWORD")
    if not password or mam.settings.text("MAM_BROKER_PASSWORD_FILE"):
        return
    path, content = mam.layout.secrets / "broker-own.password", password.encode() + b"\n"
    try:
        if keys.read_private(path) == content:
            return  # asked every second, and runners read it
    except keys.KeyMissing:
        pass
    atomic_files.write(path, content, Durability.FILE, point="private.rename")  # runners read it after a crash
