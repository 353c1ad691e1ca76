"""An embeddings endpoint on loopback that answers what a test says."""

import json
import math
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
_WORD_DIMENSIONS = 64
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


def word_vector(text: str) -> list[float]:
    """A vector near those of texts with the same words."""
    vector = [0.0] * _WORD_DIMENSIONS
    for word in text.lower().split():
        vector[zlib.crc32(word.encode(errors="replace")) % _WORD_DIMENSIONS] += 1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector] if any(vector) else [1.0, *vector[1:]]


def embeddings(asked: dict[str, Any], dimensions: int = 4) -> Reply:
    """Answer as the specification says, in an order that it does not forbid."""
    data = [
        {"object": "embedding", "index": index, "embedding": vector_of(text, dimensions)}
        for index, text in enumerate(asked["input"])
    ]
    return 200, {}, json.dumps({"object": "list", "data": data[::-1]}).encode()


class _EndpointServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed meanwhile is no error."""


@contextmanager
def word_embedder() -> Iterator[dict[str, str]]:
    """The environment of gateways that use an endpoint whose vectors are made of the words of a text."""

    def answer(asked: dict[str, Any]) -> Reply:
        data = [{"index": index, "embedding": word_vector(text)} for index, text in enumerate(asked["input"])]
        return 200, {}, json.dumps({"object": "list", "data": data, "model": "words"}).encode()

    with running_endpoint(answer, keeps_requests=False) as endpoint:
        yield {
            "HEADGATE_EMBEDDER": "OPENAI",
            "MCPPROXY_OPENAI_BASE_URL": endpoint.url,
            "MCPPROXY_OPENAI_API_KEY": "sk-canary-of-the-campaign",
        }


@contextmanager
def running_endpoint(*scripts: Script, keeps_requests: bool = True) -> Iterator[Endpoint]:
    """Answer the first request by the first script and so on; the last script answers the rest.

    A script that returns None leaves the client waiting until the endpoint closes. `keeps_requests` is for
    tests that look at what was asked.
    """
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script = scripts[min(len(endpoint.asked), len(scripts) - 1)]
            if keeps_requests:
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
            """Write nothing."""

    server = _EndpointServer(("127.0.0.1", 0), Handler)
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
