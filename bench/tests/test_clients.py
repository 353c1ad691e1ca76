"""An HTTP client is measured over kept connections, and every answer is checked."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.clients import measure, poster
from bench.peers.posting import REQUEST_BYTES, request
from bench.process import StartFailed


@pytest.mark.parametrize("number", [1_000_000, 1_234_567])
def test_a_request_has_exactly_the_promised_size(number: int) -> None:
    assert len(request(number)) == REQUEST_BYTES
    assert json.loads(request(number))["id"] == number


# The two that the project's own environment has; the others are written in the same way.
@pytest.mark.parametrize("client", ["headgate", "httpx2"])
def test_a_client_posts_every_request_once_over_kept_connections(client: str) -> None:
    with _upstream() as server:
        with poster(Path(sys.executable), client, server.url) as one:
            cpu, seconds = one.round(200)
        assert cpu > 0
        assert seconds > 0
        assert one.version
        # 200 that are counted, and 20 before them.
        assert len(server.bodies) == len(set(server.bodies)) == 220
        assert {len(body) for body in server.bodies} == {REQUEST_BYTES}
        assert 1 <= server.connections <= 16


def test_each_client_is_set_beside_ours_in_the_same_round() -> None:
    python = Path(sys.executable)
    with (
        _upstream() as server,
        poster(python, "headgate", server.url) as ours,
        poster(python, "httpx2", server.url) as other,
    ):
        lines = measure([ours, other], 2, 50)
    assert [line.client for line in lines] == ["headgate", "httpx2"]
    assert lines[0].cpu_to_ours.low == lines[0].cpu_to_ours.high == 1.0
    assert 0 < lines[1].cpu_us.low <= lines[1].cpu_us.median <= lines[1].cpu_us.high


def test_an_answer_to_another_request_ends_the_measurement() -> None:
    with (
        _upstream(shift=1) as server,
        poster(Path(sys.executable), "headgate", server.url) as one,
        pytest.raises(StartFailed, match="headgate"),
    ):
        one.round(50)


class _Upstream(ThreadingHTTPServer):
    """Answers with the id it was asked with, plus `shift`."""

    # A client that has ended leaves its connections to threads that are not joined.
    daemon_threads = True
    # All clients of a round connect at once.
    request_queue_size = 64

    def __init__(self, shift: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.shift = shift
        self.connections = 0
        self.bodies: list[bytes] = []
        self.counting = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/mcp"


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Upstream

    def setup(self) -> None:
        super().setup()
        with self.server.counting:
            self.server.connections += 1

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"]))
        with self.server.counting:
            self.server.bodies.append(asked)
        answer = {"jsonrpc": "2.0", "id": json.loads(asked)["id"] + self.server.shift, "result": {}}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def _upstream(shift: int = 0) -> Iterator[_Upstream]:
    with _Upstream(shift) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(timeout=10)
