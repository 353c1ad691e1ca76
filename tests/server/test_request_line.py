"""Request lines of another protocol, without a version, or with spaces that some readers skip."""

import pytest

from testkit.clients.plain_http import open_socket, status_of, until_closed
from testkit.gateway_process import HOST, GatewayProcess

LINES = {
    "HTTP/2.0": (b"GET /health HTTP/2.0", 505),
    "HTTP/0.9": (b"GET /health HTTP/0.9", 505),
    "RTSP": (b"OPTIONS /health RTSP/1.0", 505),
    "RTSP by a method of both": (b"GET /health RTSP/1.0", 505),
    "ICE": (b"SOURCE /health ICE/1.0", 505),
    "no version": (b"GET /health", 400),
    "two spaces before the path": (b"GET  /health HTTP/1.1", 400),
    "two spaces behind the path": (b"GET /health  HTTP/1.1", 400),
    "spaces everywhere": (b"GET   /health   HTTP/1.1", 400),
}
each_line = pytest.mark.parametrize(("line", "status"), LINES.values(), ids=LINES)
in_pieces = pytest.mark.parametrize("size", [10_000, 7, 1], ids=["whole", "pieces", "bytes"])


def head(gateway: GatewayProcess, line: bytes, *more: bytes) -> bytes:
    host = f"Host: {HOST}:{gateway.port}".encode()
    return b"\r\n".join([line, host, *more, b"", b""])


def good(gateway: GatewayProcess) -> bytes:
    return head(gateway, b"GET /health HTTP/1.1")


@each_line
@in_pieces
def test_such_a_line_is_refused_and_the_connection_closed(
    gateway: GatewayProcess, line: bytes, status: int, size: int
) -> None:
    sent = head(gateway, line)
    with open_socket(gateway) as connection:
        try:
            for start in range(0, len(sent), size):
                connection.sendall(sent[start : start + size])
        except OSError:
            assert size < len(sent), "it is closed before the end"
        assert status_of(until_closed(connection)) == status


@each_line
def test_it_is_refused_after_other_requests_too(gateway: GatewayProcess, line: bytes, status: int) -> None:
    with open_socket(gateway) as connection:
        for _ in range(2):
            connection.sendall(good(gateway))
            assert status_of(connection.recv(65536)) == 200
        connection.sendall(head(gateway, line))
        assert status_of(until_closed(connection)) == status


@each_line
@pytest.mark.parametrize("body", [b"", b"GET /health HTTP/1.1\r\n\r\n"], ids=["plain", "with a body"])
def test_it_is_not_served_behind_another_request(
    gateway: GatewayProcess, line: bytes, status: int, body: bytes
) -> None:
    first = head(gateway, b"POST /health HTTP/1.1", b"Content-Length: %d" % len(body)) + body
    with open_socket(gateway) as connection:
        connection.sendall(first + head(gateway, line) + good(gateway))
        received = until_closed(connection)
    # The connection closes with the answer to the first, or says why.
    assert received.count(b"HTTP/1.1 405") == 1
    assert b"HTTP/1.1 200" not in received


def test_a_line_that_is_all_is_refused_at_once(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        connection.sendall(b"GET /health\r\n")
        assert status_of(until_closed(connection)) == 400


@in_pieces
def test_good_requests_pass_however_they_come(gateway: GatewayProcess, size: int) -> None:
    message = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    lines = (b"Content-Type: application/json", b"Content-Length: %d" % len(message))
    unknown = head(gateway, b"POST /mcp HTTP/1.1", *lines) + message
    last = head(gateway, b"GET /health HTTP/1.0")
    # An empty line before a request is allowed.
    sent = b"\r\n" + good(gateway) + unknown + b"\r\n\r\n" + unknown + good(gateway) + last
    with open_socket(gateway) as connection:
        for start in range(0, len(sent), size):
            connection.sendall(sent[start : start + size])
        received = until_closed(connection)
    assert received.count(b"HTTP/1.1 200") == 3
    assert received.count(b"HTTP/1.1 400") == 2, "the session is missing"


@pytest.mark.parametrize("size", [10_000, 40], ids=["whole", "pieces"])
def test_a_chunked_request_behind_another_is_answered(gateway: GatewayProcess, size: int) -> None:
    chunked = (
        head(gateway, b"POST /health HTTP/1.1", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"
    )
    sent = good(gateway) + chunked
    with open_socket(gateway) as connection:
        for start in range(0, len(sent), size):
            connection.sendall(sent[start : start + size])
        received = until_closed(connection)
    assert received.count(b"HTTP/1.1 200") == 1
    assert received.count(b"HTTP/1.1 405") == 1
