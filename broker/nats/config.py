"""
The configuration of the embedded broker: its users, what each may publish and subscribe, and the text of the file.

What a client needs to reach the server is here as well: process.py, which starts it, needs much more.
Every user has explicit lists, since a NATS user without one owns JetStream.
"""

import json
import secrets
from pathlib import Path

from mam.broker.bus.url import Endpoint
from mam.broker.envelope import keys
from mam.broker.envelope.topics import root
from mam.broker.errors import FileRefused
from mam.broker.host import atomic_files, process_identity
from mam.broker.host.atomic_files import Durability
from mam.broker.host.listener import Listener
from mam.broker.host.process_identity import ProcessId

USERS = ("control", "runner", "viewer")
HOST = "127.0.0.1"
PID_FILE = "nats.pid"
PASSWORD_CHARS = 43  # 32 random bytes
# Every client draws an id of its own, so a client that died with the server never comes back. If its subscriptions had
# no end, the server would keep each message for it for ever.
FORGOTTEN_AFTER_S = 60


def password_file(secrets_dir: Path, user: str) -> Path:
    """Return the file that holds the password of *user*."""
    return secrets_dir / f"broker-{user}.password"


def ensure_users(secrets_dir: Path) -> dict[str, str]:
    """
    Return the passwords of the three users; make those that are missing.

    A password has 256 random bits, so no slow hash is needed. Raises FileUnusable, and OSError where the disk refuses.
    """
    passwords = {}
    for user in USERS:
        path = password_file(secrets_dir, user)
        try:
            password = secrets.token_urlsafe(32).encode() + b"\n"
            # Half a password would be refused for ever.
            atomic_files.write(path, password, Durability.FILE, exclusive=True, point="key.link")
        except FileExistsError:
            pass
        passwords[user] = _password(path)
    return passwords


def _password(path: Path) -> str:
    """Return the password in *path*. Raises FileRefused for a shorter one than MAM writes, such as an empty one."""
    text = keys.read_private(path).decode("utf-8", "replace").strip()
    if len(text) < PASSWORD_CHARS:
        raise FileRefused(
            path=str(path), why="it does not hold a password of MAM's", hint="remove it; the next start makes one"
        )
    return text


def permissions(fingerprint: str) -> dict[str, tuple[list[str], list[str]]]:
    """
    Return what each user may publish and subscribe, as NATS subjects.

    A user without a list would own JetStream ($JS.API, $KV). So every list is explicit, and an empty one denies all.
    """
    base = root(fingerprint).replace("/", ".")
    control_publish = ["jobs.*", "jobs.*.state", "agents.*.inbox", "agents.*.presence", "loops.*.state"]
    control_publish += ["monitor.state", "drift", "probe.control", "probe.viewer"]
    everything = [base, f"{base}.>"]
    return {
        "control": ([f"{base}.{s}" for s in control_publish], everything),
        "runner": (
            [f"{base}.{s}" for s in ("jobs.*", "agents.*.events", "agents.*.presence", "probe.runner")],
            [f"{base}.{s}" for s in ("agents.*.inbox", "agents.*.presence", "probe.runner")],
        ),
        "viewer": ([], everything),
    }


def configuration(folder: Path, fingerprint: str, port: int, passwords: dict[str, str]) -> str:
    """Return the text of the configuration file. Entries on one line need commas between them."""

    def quoted(items: list[str]) -> str:
        return "[" + ", ".join(json.dumps(item) for item in items) + "]"

    lines = []
    for user, (publish, subscribe) in permissions(fingerprint).items():
        may_publish = f"{{allow: {quoted(publish)}}}" if publish else '{deny: [">"]}'
        lines.append(
            f"    {{user: {json.dumps(user)}, password: {json.dumps(passwords[user])}, "
            f"permissions: {{publish: {may_publish}, subscribe: {{allow: {quoted(subscribe)}}}}}}}"
        )
    users = ",\n".join(lines)
    return f"""# written by MAM at every start; edits are lost
server_name: mam-{fingerprint}
pid_file: {_quoted(str(folder / PID_FILE))}
listen: "{HOST}:-1"
max_payload: 1MB
jetstream {{ store_dir: {_quoted(str(folder / "store"))}, max_file: 1GB, sync_interval: "10s" }}
mqtt {{ listen: "{HOST}:{port}", ack_wait: "5s", consumer_inactive_threshold: "{FORGOTTEN_AFTER_S}s" }}
authorization {{
  users = [
{users}
  ]
}}
"""


def _quoted(text: str) -> str:
    """Return a string as nats-server's configuration spells it: with \\" and \\n, but without \\u escapes."""
    return json.dumps(text, ensure_ascii=False)


def endpoint(secrets_dir: Path, port: int, user: str) -> Endpoint:
    """
    Return the address and the password of *user* on the embedded server at *port*. Raises FileUnusable.

    Who listens there is not known: clients of MAM's own use `proven`.
    """
    return Endpoint(HOST, port, user, _password(password_file(secrets_dir, user)))


def proven(folder: Path, secrets_dir: Path, user: str) -> Endpoint | None:
    """
    Return how *user* reaches the server of *folder*; None where none is proven to run. Raises FileUnusable.

    Every client goes through here: the port of a server that has ended may be anybody's. The endpoint of a server that
    was started anew differs from the one before, also on the same port.
    """
    found = listening(folder)
    return endpoint(secrets_dir, found.port, user)._replace(server=found) if found is not None else None


def listening(folder: Path) -> Listener | None:
    """Return the server of *folder* and its port; None where none runs."""
    state = read_state(folder)
    process, port = server(state), state.get("port")
    return Listener(process, port) if process is not None and isinstance(port, int) else None


def server(state: dict[str, object]) -> ProcessId | None:
    """Return the server process that *state* names; None where pid, start time and boot do not prove its life."""
    pid = state.get("pid")
    if not isinstance(pid, int):
        return None
    named = ProcessId(pid, str(state.get("start")), str(state.get("boot")))
    return named if process_identity.alive(named) else None


def state_file(folder: Path) -> Path:
    """Where the server of *folder* is noted; by files alone, since every client reads it."""
    return folder / "server.json"


def read_state(folder: Path) -> dict[str, object]:
    return atomic_files.read(state_file(folder))
