"""The Bus protocol: what MAM asks of a message bus, and no more."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from mam.broker.errors import Usage


class Message(NamedTuple):
    """One delivery. *topic* is logical (below the root); *retained* marks a copy from the broker's cache."""

    topic: str
    payload: bytes
    retained: bool


Handler = Callable[[Message], None]


class Will(NamedTuple):
    """What the broker says for a client that died without saying goodbye; retained."""

    topic: str
    payload: bytes


class Bus(Protocol):
    """
    A road, not a memory: nothing that must survive rests on it.

    A handler runs on the bus's own thread, so it must only enqueue. An
    exception in a handler is logged and ends neither the bus nor the handler.
    """

    @property
    def connected(self) -> bool: ...

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> bool:
        """Hand *payload* to a live connection; False, with nothing kept, where there is none."""
        ...

    def subscribe(self, pattern: str, handler: Handler) -> None:
        """Deliver what matches *pattern* (MQTT wildcards) to *handler*, again after every reconnect."""
        ...

    def wait_ready(self, wait_s: float) -> None:
        """Return once connected with every subscription granted; raise BrokerUnreachable."""
        ...

    def close(self, *, flush_s: float = 2.0) -> None:
        """Send what was handed over, say goodbye (no will), and leave. Closing twice is harmless."""
        ...


class Endpoint(NamedTuple):
    """Where a broker is and who we are there. The password never shows in a repr."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    tls: bool = False
    ca_file: Path | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.url})"

    @property
    def url(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"mqtt{'s' if self.tls else ''}://{user}{self.host}:{self.port}"


def parse_url(url: str, password: str = "", ca_file: Path | None = None) -> Endpoint:
    """
    Read ``mqtt[s]://user@host:port``. Raises Usage.

    A password inside the URL is refused: URLs end up in process lists and logs.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Usage(what=f"the broker URL cannot be read: {error}", hint=_URL_HINT) from error
    if parts.scheme not in ("mqtt", "mqtts") or not host:
        raise Usage(what=f"the broker URL cannot be read: {parts.scheme or '?'}://{host or '?'}", hint=_URL_HINT)
    if parts.password is not None:
        raise Usage(what="the broker URL holds a password", hint="put it into MAM_BROKER_PASSWORD_FILE (mode 0600)")
    tls = parts.scheme == "mqtts"
    user = unquote(parts.username or "")
    return Endpoint(host, port or (8883 if tls else 1883), user, password, tls, ca_file)


_URL_HINT = "write MAM_BROKER_URL=mqtt[s]://user@host:port"
