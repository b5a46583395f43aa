"""What a scheduler asks its extender and what it hears, written down on the way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import msgspec

_SECONDS = 30


@dataclass(frozen=True)
class Call:
    """`answer` is None where the extender gave none: the scheduler then hears a broken connection, as without us."""

    path: str
    asked: Any
    answer: Any

    @property
    def verb(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def pod(self) -> str:
        """The name of the pod that it is about."""
        pod = self.asked.get("Pod")
        return str(pod["metadata"]["name"] if pod else self.asked.get("PodName", ""))


class Recorder:
    """`url` is asked instead of the extender; `calls` are in the order of their answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: list[Call] = []

    def about(self, verb: str, pod: str = "") -> list[Call]:
        return [call for call in list(self.calls) if call.verb == verb and pod in ("", call.pod)]

    def count(self, verb: str, pod: str = "") -> int:
        return len(self.about(verb, pod))


@contextmanager
def recording(target: str) -> Iterator[Recorder]:
    """Between a scheduler and the extender that listens at `target` (scheme, host and port)."""
    netloc = urlsplit(target).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            try:
                status, answer = _pass_on(netloc, self.path, body)
            except (OSError, HTTPException):
                recorder.calls.append(Call(self.path, _read(body), None))
                self.close_connection = True
                return
            recorder.calls.append(Call(self.path, _read(body), _read(answer)))
            with suppress(OSError):  # who asked may have gone meanwhile
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing on the screen."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    recorder = Recorder(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pass_on(netloc: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = HTTPConnection(netloc, timeout=_SECONDS)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _read(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode(errors="replace")
