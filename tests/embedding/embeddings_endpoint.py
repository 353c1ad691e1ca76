"""An embeddings endpoint on loopback that answers what a test says."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
Script = Callable[[dict[str, Any]], Reply | None]


@dataclass
class Endpoint:
    """What the server was asked, and where it is."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def batches(self) -> list[int]:
        """How many texts came at once."""
        return [len(asked["input"]) for asked in self.asked]


def vector_of(text: str, dimensions: int = 4) -> list[float]:
    """A vector that tells texts apart by their length."""
    return [float(len(text)), 1.0, *([0.0] * (dimensions - 2))]


def embeddings(asked: dict[str, Any], dimensions: int = 4) -> Reply:
    """Answer as the specification says, in an order that it does not forbid."""
    data = [
        {"object": "embedding", "index": index, "embedding": vector_of(text, dimensions)}
        for index, text in enumerate(asked["input"])
    ]
    return 200, {}, json.dumps({"object": "list", "data": data[::-1]}).encode()


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for what another thread does."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


@contextmanager
def running_endpoint(*scripts: Script) -> Iterator[Endpoint]:
    """Answer the first request by the first script and so on; the last script answers the rest.

    A script that returns None leaves the client waiting until the endpoint closes.
    """
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script = scripts[min(len(endpoint.asked), len(scripts) - 1)]
            endpoint.asked.append(asked)
            endpoint.headers.append(dict(self.headers))
            endpoint.paths.append(self.path)
            reply = script(asked)
            if reply is None:
                endpoint.closing.wait(10)
                return
            status, headers, body = reply
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
