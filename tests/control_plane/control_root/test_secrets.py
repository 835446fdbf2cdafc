"""Scorecard 9: a whole life, watched from outside; no secret shows but in the file that is made for it."""

import base64
import os
import re
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from mam.broker.envelope import keys
from mam.broker.nats import process as nats_server
from tests.support import Root, size, until, witness
from tests.support.leaks import Scanner
from tests.support.life import DECOY, NOTE, REPORT, SHELL, STARTED, Life, live, looks
from tests.support.witness import Processes, Seen, Tap

pytestmark = pytest.mark.slow

Figure = Callable[[str, float], None]
JOBS = size(24, 200)
# Who exports a password shows it to the verbs that he calls himself, and to the monitor that they start; GitPython asks
# for git's version while it is loaded, with all of the environment.
EXPORTED_TO = re.compile(
    r"environ of (\S+ \S+/mam (agent|job (delegate|wait)|doctor|status|why|monitor run) |git version)"
)


@pytest.mark.parametrize("form", ["plain", "hex", "HEX", "base64", "base64url", "hex in base64", "twice base64"])
@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc/"])
def test_the_scan_finds_a_secret_in_every_form_and_nothing_where_there_is_none(form: str, before: bytes) -> None:
    secret = secrets.token_bytes(32)
    shown = {
        "plain": before + secret,
        "hex": before + b" " + secret.hex().encode(),
        "HEX": before + secret.hex().upper().encode(),
        "base64": base64.b64encode(before + secret + b"tail"),
        "base64url": base64.urlsafe_b64encode(before + secret).rstrip(b"="),
        "hex in base64": base64.b64encode(before + secret.hex().encode()),
        "twice base64": base64.b64encode(b'{"body":"' + base64.urlsafe_b64encode(before + secret) + b'"}'),
    }[form]
    scan = Scanner({"it": secret})

    assert {leak.secret for leak in scan.find("here", b'{"x": "' + shown + b'"}')} == {"it"}
    assert list(scan.find("here", secrets.token_bytes(100) + secrets.token_hex(100).encode())) == []


def let_in(folder: Path, password: str) -> int:
    """Add a user without limits to the running embedded broker; returns the port."""
    running = nats_server.running(folder)
    assert running is not None
    config = folder / "nats.conf"
    user = f'    {{user: "admin", password: "{password}"}},\n'
    config.write_text(config.read_text().replace("  users = [\n", "  users = [\n" + user))
    os.kill(running.pid, signal.SIGHUP)
    return running.port


def held(root: Root) -> dict[str, bytes]:
    """Every secret of a control root by its file, as its owner knows it: keys as bytes, passwords as text."""
    folder = root.parts.layout.secrets
    found = {str(path): keys.load(path) for path in folder.glob("*.key")}
    return {**found, **{str(path): path.read_bytes().strip() for path in folder.glob("*.password")}}


class Verdict:
    """What of *known* shows in what was seen, beside its own file and the broker's configuration."""

    def __init__(self, root: Root, known: dict[str, bytes], seen: Iterable[Seen]) -> None:
        self.items = list(dict.fromkeys(seen))
        scan = Scanner({**known, "decoy": DECOY})
        found = [(item.kind, leak) for item in self.items for leak in scan.find(item.place, item.data)]
        self.decoys = {kind for kind, leak in found if leak.secret == "decoy"}
        self.decoy_files = {Path(leak.place).name for kind, leak in found if leak.secret == "decoy" and kind == "file"}
        config = str(root.parts.layout.broker / "nats.conf")
        homes = {(path, path) for path in known} | {(path, config) for path in known if path.endswith(".password")}
        self.at_home = {leak.secret for _, leak in found if (leak.secret, leak.place) in homes}
        self.strays = sorted({x for _, x in found if x.secret != "decoy" and (x.secret, x.place) not in homes})

    @property
    def size_mb(self) -> float:
        return sum(len(item.data) for item in self.items) / 2**20


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


def tapped(root: Root) -> Tap:
    """A reader of all topics, let in as one more user of the running broker."""
    password = secrets.token_hex(32)
    return Tap(let_in(root.parts.layout.broker, password), "admin", password)


def whole_life(life: Life) -> dict[str, bytes]:
    """Two agents live through everything, six do many jobs; returns the secrets that there were."""
    agents = ["writer", "reader", "a", "b", "c", "d"][: size(4, 6)]
    for n, name in enumerate(agents):
        life.agent(name, ("tmux", "headless")[n % 2])
    live(life, "writer")
    live(life, "reader")
    life.mam("doctor", "--probe", "writer")
    with life.root.registry.view() as view:
        made = len(view.jobs())
    life.many_jobs(agents, JOBS - made)
    looks(life)
    life.look()
    known = held(life.root)
    life.mam("job", "archive", next(job for path in known if (job := Path(path).stem).startswith("job-"))[4:])
    for name in agents:
        life.mam("agent", "stop", name)
    life.mam("down")
    life.snapshots += witness.files(life.root.path)
    return known


@pytest.mark.scorecard(9)
@pytest.mark.req("M38")
def test_no_secret_shows_in_a_whole_life(
    make_root: Callable[..., Root],
    processes: Processes,
    tmp_path: Path,
    needs: Callable[[str], str],
    figure: Figure,
) -> None:
    needs("tmux")
    life = Life(make_root(mux="tmux"), tmp_path)
    life.mam("init")
    life.mam("up")
    tap = tapped(life.root)

    known = whole_life(life)
    processes.end()
    tap.close()
    verdict = Verdict(life.root, known, [*processes.seen(), *tap.seen(), *life.outputs, *life.snapshots])

    assert verdict.strays == []
    everywhere = {"argv", "environ", "tmux environment", "scrollback", "wire", "file", "table", "output"}
    assert verdict.decoys == everywhere, "the onlooker is blind somewhere"
    assert {"brief.md", "audit.jsonl", "registry.db", "memory.json"} <= verdict.decoy_files
    assert {"monitor.log", "nats.log", "agent-sessions.yaml"} <= {Path(item.place).name for item in verdict.items}
    assert verdict.at_home == set(known), "a secret was not found even in its own file"
    figure("secrets", len(known))
    figure("tokens", sum("/job-" in path for path in known))
    figure("processes", processes.count)
    figure("messages", len(tap.seen()))
    figure("mb", verdict.size_mb)
    figure("shown", len(verdict.strays))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Starts a nats-server that is not MAM's, with one user `team` who may do everything; returns its port."""
    children: list[subprocess.Popen[bytes]] = []

    def start(password: str) -> int:
        folder = tmp_path / "own-broker"
        folder.mkdir(mode=0o700)
        port = free_port()
        (folder / "nats.conf").write_text(
            f'server_name: own\nlisten: "127.0.0.1:-1"\njetstream {{ store_dir: "{folder}/store" }}\n'
            f'mqtt {{ listen: "127.0.0.1:{port}" }}\nauthorization {{ user: team, password: "{password}" }}\n'
        )
        argv = [str(nats_server.find_binary(None)), "-c", str(folder / "nats.conf")]
        children.append(subprocess.Popen(argv, stdout=-3, stderr=-3))
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, what="the broker listens")
        return port

    yield start
    for child in children:
        child.terminate()
        child.wait(120)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.scorecard(9)
@pytest.mark.parametrize("where", ["file", "env file", "environment"])
def test_the_password_of_ones_own_broker_shows_nowhere_but_where_its_user_put_it(
    make_root: Callable[..., Root],
    own_broker: Callable[[str], int],
    processes: Processes,
    tmp_path: Path,
    needs: Callable[[str], str],
    figure: Figure,
    where: str,
) -> None:
    needs("tmux")
    password = secrets.token_urlsafe(32)
    root = make_root(mux="tmux")
    life, port = Life(root, tmp_path), own_broker(password)
    tap = Tap(port, "team", password)
    root.env["MAM_BROKER_URL"] = f"mqtt://team@127.0.0.1:{port}"
    home = keep_password(root, where, password)

    for name, mux in (("writer", "tmux"), ("reader", "headless")):
        life.agent(name, mux)
        life.mam("job", "wait", life.delegate(name, STARTED, NOTE, SHELL, REPORT), "--timeout", "60")
    life.look()
    for words in ("doctor", "status --json", "why writer", "agent stop writer", "agent resume writer"):
        life.mam(*words.split())
    life.look()
    processes.end()
    tap.close()
    verdict = Verdict(root, {home: password.encode()}, [*processes.seen(), *tap.seen(), *life.outputs, *life.snapshots])

    kept = root.parts.layout.secrets / "broker-own.password"
    strays = [leak for leak in verdict.strays if leak.place != str(kept)]
    if where == "environment":
        strays = [leak for leak in strays if not EXPORTED_TO.match(leak.place)]
    assert strays == []
    assert verdict.decoys >= {"argv", "environ", "tmux environment", "scrollback", "wire", "file", "table"}
    assert kept.exists() == (where != "file")
    figure("secrets", 1)
    figure("shown", len(strays))


def keep_password(root: Root, where: str, password: str) -> str:
    """Put the password where its user may; returns that place."""
    if where == "environment":
        root.env["MAM_BROKER_PASSWORD"] = password
        return "environment"
    path = root.path / (".mam.env" if where == "env file" else "own.password")
    path.write_text(f"MAM_BROKER_PASSWORD={password}\n" if where == "env file" else f"{password}\n")
    path.chmod(0o600)
    if where == "file":
        root.env["MAM_BROKER_PASSWORD_FILE"] = str(path)
    return str(path)
