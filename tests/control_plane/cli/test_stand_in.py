"""`mam stand-in`: a model on this machine that agent CLIs can ask, until it is told to end."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import MAM, run_mam

WIRES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}]},
}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    words = [MAM, "stand-in", "--json", "--log", str(tmp_path / "log.jsonl")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert running.stdout is not None
        yield running, json.loads(running.stdout.readline())
        running.kill()


def ask(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_it_answers_on_every_wire_and_notes_each_request(
    started: tuple[subprocess.Popen[str], Any], tmp_path: Path
) -> None:
    _, said = started
    for path, body in WIRES.items():
        assert "A short title" in json.dumps(ask(said["url"] + path, body))

    noted = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    assert [line["path"] for line in noted] == list(WIRES)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(started: tuple[subprocess.Popen[str], Any], sign: signal.Signals) -> None:
    running, said = started
    running.send_signal(sign)

    assert running.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{said['url']}/healthz", timeout=60)


def test_it_tells_what_each_agent_kind_needs_and_names_its_own_address_alone(
    started: tuple[subprocess.Popen[str], Any],
) -> None:
    _, said = started

    assert set(said["agents"]) == {"claude", "codex", "grok", "opencode"}
    assert all(said["url"] in json.dumps(setup) for setup in said["agents"].values())
    assert said["url"].startswith("http://127.0.0.1:")


def test_a_port_that_is_taken_is_said(started: tuple[subprocess.Popen[str], Any], tmp_path: Path) -> None:
    port = started[1]["url"].rpartition(":")[2]

    said = run_mam("stand-in", "--port", port, "--json", cwd=tmp_path)
    assert (said.code, said.error["code"]) == (1, "os_error")
    assert run_mam("stand-in", "--port", "70000", cwd=tmp_path).code == 2
