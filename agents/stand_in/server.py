"""
A small loopback model stand-in: agent CLIs take it for their model.

It listens on 127.0.0.1 only, keeps nothing between requests and needs no key.
"""

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from mam.agents.stand_in.body import Json, Wire
from mam.agents.stand_in.policy import Refuse, decide
from mam.agents.stand_in.wires import WIRES

MODELS = ("standin-model", "gpt-5.4", "claude-sonnet-4-6")


class ModelStandIn:
    """The stand-in on a thread of this process. Use as a context manager, or start() and stop()."""

    def __init__(self, port: int = 0, log: Path | None = None) -> None:
        """
        Bind the port; nothing is answered before start().

        Args:
            port: Where it listens; 0 takes a free one.
            log: Gets a JSON line for each request: what was asked, and what it was answered.

        Raises OSError where the port is taken.
        """
        self._server = _Server(port, log)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Without a path: the CLIs differ in whether they want `/v1` behind it."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "ModelStandIn":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Answers nothing more; a delayed answer is given up, not waited for."""
        self._server.ended.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()

    def __enter__(self) -> "ModelStandIn":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a turn with DELAY must not hold up the end of a test

    def __init__(self, port: int, log: Path | None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.ended = threading.Event()
        self._log = log
        self._lock = threading.Lock()

    def note(self, record: Json) -> None:
        if self._log is None:
            return
        line = json.dumps({"at": time.time(), **record}, ensure_ascii=False)
        with self._lock, self._log.open("a", encoding="utf-8") as out:
            out.write(line + "\n")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the log has what matters."""

    def do_HEAD(self) -> None:
        self._head(200, "application/json", 0)

    def do_GET(self) -> None:
        path = self._path()
        self.server.note({"method": "GET", "path": path})
        if path == "/healthz":
            self._json({"ok": True})
        elif path.endswith("/models"):
            self._json({"object": "list", "has_more": False, "data": [_model(name) for name in MODELS]})
        else:
            self._json(_error("not_found_error", f"the stand-in has no {path}"), 404)

    def do_POST(self) -> None:
        path, body = self._path(), self._body()
        wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
        if body is None:
            self._json(_error("invalid_request_error", "the body is no JSON object"), 400)
        elif path.endswith("/messages/count_tokens"):
            self._json({"input_tokens": 50})
        elif wire is None:
            self.server.note({"method": "POST", "path": path, "act": None})
            self._json(_error("not_found_error", f"the stand-in has no {path}"), 404)
        else:
            self._answer(path, wire, body)

    def _answer(self, path: str, wire: Wire, body: Json) -> None:
        asked = wire.parse(body)
        move = decide(asked.items, asked.tools)
        conversation = [item._asdict() for item in asked.items]
        act = {"kind": type(move.act).__name__.lower(), **move.act._asdict()}
        tools = [tool.name for tool in asked.tools]
        self.server.note({"method": "POST", "path": path, "items": conversation, "tools": tools, "act": act})
        if move.delay_s and self.server.ended.wait(move.delay_s):
            self.close_connection = True
        elif isinstance(move.act, Refuse):
            self._json(wire.refusal(move.act), move.act.status)
        elif not asked.stream:
            self._json(wire.whole(move.act, asked.model))
        else:
            self.close_connection = True
            self._head(200, "text/event-stream", None)
            self._send(b"".join(event.encode() for event in wire.events(move.act, asked.model)))

    def _path(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _body(self) -> Json | None:
        try:
            body = json.loads(self._raw())
        except ValueError:
            return None
        return body if isinstance(body, Mapping) else None

    def _raw(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        raw = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            raw += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return raw

    def _json(self, data: Json, status: int = 200) -> None:
        body = json.dumps(data).encode()
        self._head(status, "application/json", len(body))
        self._send(body)

    def _head(self, status: int, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        # A stream ends with its connection.
        self.send_header(*(("connection", "close") if length is None else ("content-length", str(length))))
        self.end_headers()

    def _send(self, data: bytes) -> None:
        try:
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the agent was interrupted or killed meanwhile


def _model(name: str) -> Json:
    made = {"created": 1, "created_at": "2026-01-01T00:00:00Z", "owned_by": "standin"}
    return {"id": name, "type": "model", "object": "model", "display_name": name, **made}


def _error(kind: str, message: str) -> Json:
    return {"error": {"type": kind, "message": message}}
