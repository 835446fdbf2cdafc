"""
What the embedded broker is told: its users, what each may publish and subscribe, and the configuration file's text.

Every user has explicit lists, since a NATS user without one owns JetStream.
"""

import json
import secrets
from pathlib import Path

from mam.broker.bus.url import Endpoint
from mam.broker.envelope import keys
from mam.broker.envelope.topics import root
from mam.broker.errors import FileRefused
from mam.broker.host import atomic_files
from mam.broker.host.atomic_files import Durability

USERS = ("control", "runner", "viewer")
HOST = "127.0.0.1"
PID_FILE = "nats.pid"
PASSWORD_CHARS = 43  # 32 random bytes
# A client that died together with the server is never heard of again, since every client draws an id of its own:
# without an end of its subscriptions the server would keep each message for it, for ever.
FORGOTTEN_AFTER_S = 60


def password_file(secrets_dir: Path, user: str) -> Path:
    return secrets_dir / f"broker-{user}.password"


def ensure_users(secrets_dir: Path) -> dict[str, str]:
    """Passwords of the three users, made where missing: 256 random bits, so no slow hash is needed."""
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
    """Raises FileRefused for anything shorter than what we write: an empty password would let anybody in."""
    text = keys.read_private(path).decode("utf-8", "replace").strip()
    if len(text) < PASSWORD_CHARS:
        raise FileRefused(
            path=str(path), why="it holds no password of ours", hint="remove it; the next start makes one"
        )
    return text


def permissions(fingerprint: str) -> dict[str, tuple[list[str], list[str]]]:
    """
    What each user may publish and subscribe, as NATS subjects.

    A user without a list would own JetStream ($JS.API, $KV), so every list is
    explicit, and an empty one denies.
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
    """The server's configuration; entries that share a line need their commas."""

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
    """A string for nats-server's configuration: it knows \\" and \\n, but no \\u escapes."""
    return json.dumps(text, ensure_ascii=False)


def endpoint(secrets_dir: Path, port: int, user: str) -> Endpoint:
    """How *user* reaches the embedded server on *port*."""
    return Endpoint(HOST, port, user, _password(password_file(secrets_dir, user)))
