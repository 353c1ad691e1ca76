"""An embedder on loopback: an endpoint whose vectors are made of the words of a text, at once."""

import contextlib
import json
import math
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_DIMENSIONS = 64


def vector(text: str) -> list[float]:
    """Near those of texts with the same words."""
    made = [0.0] * _DIMENSIONS
    for word in text.lower().split():
        made[zlib.crc32(word.encode(errors="replace")) % _DIMENSIONS] += 1.0
    length = math.sqrt(sum(value * value for value in made)) or 1.0
    return [value / length for value in made] if any(made) else [1.0, *made[1:]]


class _Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        data = [{"index": index, "embedding": vector(text)} for index, text in enumerate(texts)]
        body = json.dumps({"object": "list", "data": data, "model": "words"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Whoever asked was killed meanwhile."""


@contextlib.contextmanager
def embedder() -> Iterator[dict[str, str]]:
    """The environment of those who are to use it."""
    with _Server(("127.0.0.1", 0), _Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield {
                "HEADGATE_EMBEDDER": "OPENAI",
                "MCPPROXY_OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
                "MCPPROXY_OPENAI_API_KEY": "sk-canary-of-the-campaign",
            }
        finally:
            server.shutdown()
            thread.join()
