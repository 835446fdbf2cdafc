"""The address of a broker: the URL that a person writes, taken apart. Standard library only."""

from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from mam.broker.errors import Usage
from mam.broker.host.listener import Listener


class Endpoint(NamedTuple):
    """The address of a broker and the user to log in as. The password does not show in its repr."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    tls: bool = False
    ca_file: Path | None = None
    server: Listener | None = None  # the process that must be the one that accepted, before a password is sent

    def __repr__(self) -> str:
        return f"Endpoint({self.url})"

    @property
    def url(self) -> str:
        """The address as a person writes it, without the password."""
        user = f"{self.user}@" if self.user else ""
        return f"mqtt{'s' if self.tls else ''}://{user}{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether no message leaves this machine. No name is looked up: only localhost counts as such."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_url(url: str, password: str = "", ca_file: Path | None = None) -> Endpoint:
    """
    Return the parts of ``mqtt[s]://user@host:port``. Raises Usage for another form.

    A password inside the URL is refused, since URLs end up in process lists and logs.
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
