"""What is not let in: the status that says why, at once, and no effect on anybody else."""

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from testkit.clients.plain_http import (
    EXAMPLE,
    JSON_HEADERS,
    Session,
    last_message,
    listening,
    modern_headers,
    modern_request,
    open_socket,
    opened,
    post,
    request,
    send,
    status_of,
    until_closed,
)
from testkit.gateway_process import HOST, GatewayProcess, HttpAnswer

PING = request("ping")
# A request that is refused before its body is read.
BROKEN = b"{"
Start = Callable[..., GatewayProcess]
Sent = dict[str, str | None]


def error_code(answer: HttpAnswer) -> int:
    assert answer.headers["content-type"] == "application/json"
    message = answer.json()
    assert message["jsonrpc"] == "2.0"
    assert message["error"]["message"]
    code: int = message["error"]["code"]
    return code


@pytest.mark.parametrize("path", ["/nothing", "/mcp/other", "/MCP", "//mcp", "/api", "/.env"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_404(gateway: GatewayProcess, method: str, path: str) -> None:
    assert send(gateway, method, path, JSON_HEADERS).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/mcp", {"POST", "GET", "DELETE"}),
        ("PATCH", "/mcp", {"POST", "GET", "DELETE"}),
        ("HEAD", "/mcp", {"POST", "GET", "DELETE"}),
        ("OPTIONS", "/mcp", {"POST", "GET", "DELETE"}),
        ("POST", "/sse", {"GET"}),
        ("POST", "/sse/", {"GET"}),
        ("DELETE", "/mcp/sse", {"GET"}),
        ("DELETE", "/mcp/sse/", {"GET"}),
        ("PUT", "/mcp/slim", {"POST", "GET", "DELETE"}),
        ("GET", "/messages", {"POST"}),
        ("POST", "/health", {"GET", "HEAD"}),
        ("DELETE", "/metrics", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_405_and_says_which_are_right(
    gateway: GatewayProcess, method: str, path: str, allowed: set[str]
) -> None:
    answer = send(gateway, method, path, JSON_HEADERS)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "", "127.0.0.1.evil.example", "[::1]:1"]
)
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages?session_id=x", "/health", "/metrics", "/"])
def test_a_host_that_is_not_ours_is_421_before_anything_is_read(
    gateway: GatewayProcess, path: str, host: str
) -> None:
    method = "POST" if path in ("/mcp", "/messages?session_id=x") else "GET"
    answer = send(gateway, method, path, {**JSON_HEADERS, "Host": host}, BROKEN)
    assert answer.status == 421


def test_a_request_without_a_host_is_refused(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert status_of(until_closed(connection)) == 421


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_every_name_of_this_machine_is_ours(gateway: GatewayProcess, name: str) -> None:
    assert send(gateway, "GET", "/health", {"Host": f"{name}:{gateway.port}"}).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "file://", ""])
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/health"])
def test_a_page_of_another_origin_is_403_before_anything_is_read(
    gateway: GatewayProcess, path: str, origin: str
) -> None:
    method = "POST" if path == "/mcp" else "GET"
    answer = send(gateway, method, path, {**JSON_HEADERS, "Origin": origin}, BROKEN)
    assert answer.status == 403


def test_a_page_of_our_own_origin_may_call(gateway: GatewayProcess) -> None:
    for origin in (f"http://127.0.0.1:{gateway.port}", f"http://localhost:{gateway.port}"):
        assert send(gateway, "GET", "/health", {"Origin": origin}).status == 200


@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "application/jsonx", "application/x-www-form-urlencoded", "multipart/form-data"],
)
@pytest.mark.parametrize("path", ["/mcp", "/messages?session_id=x"])
def test_a_body_that_a_form_could_send_is_415(gateway: GatewayProcess, path: str, kind: str | None) -> None:
    assert post(gateway, PING, {"Content-Type": kind}, path).status == 415


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_is_json_however_it_is_written(gateway: GatewayProcess, kind: str) -> None:
    assert (
        post(gateway, request("initialize", {"protocolVersion": "2025-06-18"}), {"Content-Type": kind}).status
        == 200
    )


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "text/html", "image/png", ""])
def test_a_client_that_does_not_take_both_kinds_is_406(gateway: GatewayProcess, accept: str) -> None:
    assert post(gateway, PING, {"Accept": accept}).status == 406


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "*/*",
        "text/event-stream, application/json",
        "application/json;q=0.9,text/event-stream;q=0.8",
        "APPLICATION/JSON, TEXT/EVENT-STREAM",
        "application/*, text/*",
    ],
)
def test_a_client_that_takes_both_kinds_is_served(gateway: GatewayProcess, accept: str | None) -> None:
    answer = post(gateway, request("initialize", {"protocolVersion": "2025-06-18"}), {"Accept": accept})
    assert answer.status == 200


def test_both_kinds_may_stand_in_two_headers(gateway: GatewayProcess) -> None:
    # A list may be spread over several lines of the same name, says HTTP.
    body = json.dumps(request("initialize", {"protocolVersion": "2025-06-18"})).encode()
    lines = ["Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close"]
    lines += ["Accept: application/json", "Accept: text/event-stream"]
    with open_socket(gateway) as connection:
        connection.sendall(head_of(gateway, *lines, path="/mcp", method="POST") + body)
        assert status_of(until_closed(connection)) == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}', -32700),
        (b"\xef\xbb\xbf" + json.dumps(PING).encode(), -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 65 + b"]" * 65 + b"}}", -32700),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"m\\u0065thod":"ping","method":"tools/call"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32600),
    ],
    ids=range(16),
)
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_body_that_is_no_message_is_400_with_its_number(
    gateway: GatewayProcess, era: str, body: bytes, code: int
) -> None:
    headers = modern_headers("ping") if era == "stateless" else Session(gateway).headers
    answer = post(gateway, body, headers)
    assert answer.status == 400
    assert error_code(answer) == code


def nested(depth: int) -> dict[str, Any]:
    """A call whose body is so deep in all."""
    inner: Any = 1
    # The message, its params and the arguments are three levels.
    for _ in range(depth - 3):
        inner = [inner]
    return {"name": "own_echo", "arguments": {"a": inner}}


@pytest.mark.parametrize("depth", [63, 64])
def test_a_body_of_the_allowed_depth_passes(gateway: GatewayProcess, depth: int) -> None:
    session = Session(gateway)
    answered = session.ask("tools/call", nested(depth))
    assert answered["result"]["structuredContent"]["params"]["arguments"] == nested(depth)["arguments"]


def test_a_body_that_is_too_deep_is_400(gateway: GatewayProcess) -> None:
    answer = Session(gateway).post(request("tools/call", nested(65)))
    assert (answer.status, error_code(answer)) == (400, -32700)


@pytest.mark.parametrize(
    "name",
    ["Host", "Origin", "Content-Type", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"],
)
def test_a_header_that_two_readers_could_read_differently_is_400(gateway: GatewayProcess, name: str) -> None:
    own = f"{HOST}:{gateway.port}"
    values = {"Host": own, "Origin": f"http://{own}", "Content-Type": "application/json"}
    line = f"{name}: {values.get(name, 'x')}\r\n"
    needed = "".join(f"{key}: {value}\r\n" for key, value in values.items() if key not in ("Origin", name))
    head = f"POST /mcp HTTP/1.1\r\n{needed}{line}{line}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"
    with open_socket(gateway) as connection:
        connection.sendall(head.encode())
        assert status_of(until_closed(connection)) == 400


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"hello\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: H\r\nContent-Length: -5\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /mcp HTTP/1.1\r\nHost: H\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["no http", "no colon", "negative", "two lengths", "length and chunks", "no chunk", "tls"],
)
def test_what_is_not_http_is_400_and_hung_up(gateway: GatewayProcess, request_bytes: bytes) -> None:
    with open_socket(gateway) as connection:
        connection.sendall(request_bytes.replace(b"Host: H", f"Host: {HOST}:{gateway.port}".encode()))
        assert status_of(until_closed(connection)) == 400


def head_of(gateway: GatewayProcess, *lines: str, path: str = "/health", method: str = "GET") -> bytes:
    all_lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{gateway.port}", *lines]
    return ("\r\n".join(all_lines) + "\r\n\r\n").encode()


TOO_MUCH = {
    "one large header": ["X-Large: " + "x" * 40_000],
    "many headers": [f"X-{number}: y" for number in range(200)],
    "many large headers": [f"X-{number}: " + "y" * 1000 for number in range(50)],
}


@pytest.mark.parametrize("lines", TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize("earlier", [0, 1], ids=["first request", "second request"])
def test_a_head_that_is_too_large_is_431(gateway: GatewayProcess, lines: list[str], earlier: int) -> None:
    with open_socket(gateway) as connection:
        for _ in range(earlier):
            connection.sendall(head_of(gateway))
            assert status_of(connection.recv(65536)) == 200
        connection.sendall(head_of(gateway, *lines))
        assert status_of(until_closed(connection)) == 431


def test_a_head_without_end_is_431(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        connection.sendall(head_of(gateway)[:-2])
        received = b""
        try:
            for number in range(1000):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"y" * 100))
        except OSError:
            pass
        received = until_closed(connection)
        assert status_of(received) == 431


def test_a_path_that_is_too_long_is_431(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        connection.sendall(head_of(gateway, "Connection: close", path="/" + "x" * 40_000))
        assert status_of(until_closed(connection)) in (414, 431)


def test_a_head_of_the_allowed_size_passes(gateway: GatewayProcess) -> None:
    lines = [f"X-{number}: y" for number in range(98)]
    assert send(gateway, "GET", "/health", {"X-Large": "x" * 30_000}).status == 200
    with open_socket(gateway) as connection:
        connection.sendall(head_of(gateway, *lines, "Connection: close"))
        assert status_of(until_closed(connection)) == 200


def test_a_body_that_says_it_is_too_large_is_413_at_once(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        lines = ["Content-Type: application/json", "Content-Length: 5000000"]
        connection.sendall(head_of(gateway, *lines, path="/mcp", method="POST"))
        received = until_closed(connection)
        assert status_of(received) == 413
        assert b"4194304" in received


def test_a_body_that_turns_out_too_large_is_413(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        lines = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
        connection.sendall(head_of(gateway, *lines, path="/mcp", method="POST"))
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        sent = 0
        try:
            while sent < 100 * len(chunk):
                sent += connection.send(chunk[sent % len(chunk) :])
        except OSError:
            pass
        assert sent < 100 * len(chunk) or status_of(until_closed(connection)) == 413


def test_a_client_that_sends_all_of_a_body_that_is_too_large_learns_why(gateway: GatewayProcess) -> None:
    answer = post(gateway, b" " * (4 * 1024 * 1024 + 1), Session(gateway).headers)
    assert answer.status == 413


def test_a_body_of_the_allowed_size_passes(gateway: GatewayProcess) -> None:
    body = json.dumps(request("initialize", {"protocolVersion": "2025-06-18"})).encode()
    assert post(gateway, body + b" " * (4 * 1024 * 1024 - len(body))).status == 200


def test_who_leaves_in_the_middle_of_a_body_disturbs_nobody(gateway: GatewayProcess) -> None:
    for _ in range(20):
        with open_socket(gateway) as connection:
            lines = ["Content-Type: application/json", "Content-Length: 1000"]
            connection.sendall(head_of(gateway, *lines, path="/mcp", method="POST") + b'{"jsonrpc"')
    assert gateway.get("/health").status == 200


def test_two_requests_at_once_on_one_connection_are_answered_in_order(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        connection.sendall(head_of(gateway) + head_of(gateway, "Connection: close", path="/nothing"))
        received = until_closed(connection)
        assert [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]] == [200, 404]


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(gateway: GatewayProcess) -> None:
    body = json.dumps(request("initialize", {"protocolVersion": "2025-06-18"})).encode()
    lines = ["Content-Type: application/json", f"Content-Length: {len(body)}", "Expect: 100-continue"]
    with open_socket(gateway) as connection:
        connection.sendall(head_of(gateway, *lines, "Connection: close", path="/mcp", method="POST"))
        assert status_of(connection.recv(1000)) == 100
        connection.sendall(body)
        assert status_of(until_closed(connection)) == 200


def test_who_sends_too_slowly_is_shown_out(start_gateway: Start) -> None:
    impatient = start_gateway(
        {
            "mcpServers": {"example": EXAMPLE},
            "proxySettings": {"headerTimeoutSeconds": 0.3, "bodyTimeoutSeconds": 0.3},
        }
    )
    started = time.monotonic()
    with (
        open_socket(impatient) as silent,
        open_socket(impatient) as dripping,
        open_socket(impatient) as halfway,
    ):
        halfway.sendall(
            head_of(
                impatient, "Content-Type: application/json", "Content-Length: 9", path="/mcp", method="POST"
            )
        )
        _drip(dripping)
        assert until_closed(silent) == b""
        assert status_of(until_closed(halfway)) == 408
    assert time.monotonic() - started < 5.0


def _drip(connection: socket.socket) -> None:
    """Send a head, a byte at a time, until the gateway has had enough."""
    try:
        for byte in b"GET /health HTTP/1.1\r\nX: " + b"y" * 100_000:
            connection.sendall(bytes([byte]))
            time.sleep(0.01)
    except OSError:
        return
    raise AssertionError("it was never shown out")


def test_a_new_session_takes_the_place_of_the_one_idle_for_longest(start_gateway: Start) -> None:
    small = start_gateway({"mcpServers": {"example": EXAMPLE}, "proxySettings": {"maxSessions": 2}})
    first, second = Session(small), Session(small)
    # The gateway's clock ticks in milliseconds.
    time.sleep(0.02)
    first.ask("ping")
    third = Session(small)
    assert first.ask("ping")["result"] == third.ask("ping")["result"] == {}
    assert small.metrics()["headgate_sessions"] == 2
    # The one that had to go comes back as if nothing had happened.
    assert second.ask("ping")["result"] == {}
    assert small.metrics()["headgate_sessions"] == 2


def test_sessions_in_use_are_kept_and_one_too_many_is_503(start_gateway: Start) -> None:
    small = start_gateway({"mcpServers": {"example": EXAMPLE}, "proxySettings": {"maxSessions": 2}})
    first, second = Session(small), Session(small)
    with listening(first), listening(second):
        refused = post(small, request("initialize", {"protocolVersion": "2025-06-18"}))
        assert refused.status == 503
        assert "error" in refused.json()
        assert first.ask("ping")["result"] == {}
    with opened(small, "GET", "/sse", {}) as one, opened(small, "GET", "/sse", {}) as two:
        assert {one.event()[0], two.event()[0]} == {"endpoint"}
        assert send(small, "GET", "/sse", {}).status == 503


def test_a_session_is_not_idle_while_its_stream_was_open(start_gateway: Start) -> None:
    brief = start_gateway({"mcpServers": {"example": EXAMPLE}, "proxySettings": {"sessionIdleSeconds": 6}})
    session = Session(brief)
    with listening(session):
        # Longer than a session may be idle, and than the gateway takes to look for idle ones.
        time.sleep(7.0)
    assert session.ask("ping")["result"] == {}


CHUNKED = (
    "POST /mcp HTTP/1.1\r\nHost: {host}\r\n"
    "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize("trailers", ["Mcp-Session-Id: x\r\n", "A: 1\r\nB: 2\r\n" * 40])
def test_what_comes_behind_a_chunked_body_is_never_a_header(gateway: GatewayProcess, trailers: str) -> None:
    body = json.dumps(request("initialize", {"protocolVersion": "2025-06-18"}))
    head = CHUNKED.format(host=f"{HOST}:{gateway.port}")
    with open_socket(gateway) as connection:
        connection.sendall(f"{head}{len(body):x}\r\n{body}\r\n0\r\n{trailers}\r\n".encode())
        # A second request on the same connection would inherit the trailer.
        connection.sendall(f"GET /health HTTP/1.1\r\nHost: {HOST}:{gateway.port}\r\n\r\n".encode())
        received = until_closed(connection)
    assert received.count(b"HTTP/1.1 ") == 1
    assert status_of(received) in (200, 400)


def test_a_chunked_request_is_answered_and_ends_its_connection(gateway: GatewayProcess) -> None:
    body = json.dumps(request("initialize", {"protocolVersion": "2025-06-18"}))
    head = CHUNKED.format(host=f"{HOST}:{gateway.port}")
    with open_socket(gateway) as connection:
        connection.sendall(f"{head}{len(body):x}\r\n{body}\r\n0\r\n\r\n".encode())
        received = until_closed(connection)
    assert status_of(received) == 200
    assert b"connection: close" in received
    assert b"protocolVersion" in received


def test_an_old_client_gets_a_stream_that_it_can_read(gateway: GatewayProcess) -> None:
    with open_socket(gateway) as connection:
        connection.sendall(
            f"GET /sse HTTP/1.0\r\nHost: {HOST}:{gateway.port}\r\nConnection: keep-alive\r\n\r\n".encode()
        )
        received = b""
        while b"endpoint" not in received:
            received += connection.recv(4096)
    assert b"chunked" not in received


def test_a_stateless_request_needs_no_room(start_gateway: Start) -> None:
    small = start_gateway({"mcpServers": {"example": EXAMPLE}, "proxySettings": {"maxSessions": 1}})
    Session(small)
    answer = post(small, modern_request("tools/list"), modern_headers("tools/list"))
    assert answer.status == 200


# Requests that a browser makes for a page without saying its origin.

ENDPOINTS = ["/sse", "/sse/", "/mcp/sse", "/sse/slim", "/mcp", "/mcp/slim", "/messages?session_id=x"]
IMAGE: Sent = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LINK: Sent = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-User": "?1"}
FRAME: Sent = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}


def got(gateway: GatewayProcess, path: str, headers: Sent) -> int:
    """The status of a GET, whose answer may be a stream."""
    given = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
    with open_socket(gateway) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{gateway.port}\r\n{given}\r\n".encode())
        return status_of(connection.recv(65536))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", "none, cross-site", "new", ""])
@pytest.mark.parametrize("how", [IMAGE, LINK, FRAME, {}], ids=["image", "link", "frame", "nothing more"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_another_page_opens_nothing_without_an_origin(
    gateway: GatewayProcess, path: str, how: Sent, site: str
) -> None:
    assert got(gateway, path, {"Sec-Fetch-Site": site, **how}) == 403


@pytest.mark.parametrize("how", [IMAGE, FRAME, {}], ids=["image", "frame", "nothing more"])
@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics"])
def test_another_page_does_not_load_pages_of_the_gateway_either(
    gateway: GatewayProcess, path: str, how: Sent
) -> None:
    assert got(gateway, path, {"Sec-Fetch-Site": "cross-site", **how}) == 403


@pytest.mark.parametrize("site", ["none", "same-origin", "cross-site", "same-site"])
def test_a_person_may_go_to_a_page_of_the_gateway(gateway: GatewayProcess, site: str) -> None:
    assert got(gateway, "/", {"Sec-Fetch-Site": site, **LINK}) == 200


@pytest.mark.parametrize("path", ["/sse", "/health"])
@pytest.mark.parametrize("site", [None, "same-origin", "none"])
def test_own_pages_and_programs_need_no_origin(gateway: GatewayProcess, path: str, site: str | None) -> None:
    assert got(gateway, path, {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors"}) == 200


def test_a_page_of_an_allowed_origin_may_call_across_sites(start_gateway: Start) -> None:
    settings = {"allowedOrigins": ["http://app.example"]}
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE}, "proxySettings": settings})
    page: Sent = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    assert got(gateway, "/sse", {**page, "Origin": "http://app.example"}) == 200
    assert got(gateway, "/sse", page) == 403


# How many JSON values a request may have, which each cost much more than their bytes.


def call_of(arguments: bytes) -> bytes:
    params = b'{"name":"own_echo","arguments":%s}' % arguments
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}' % params


def items(count: int, item: bytes) -> bytes:
    return b'{"x":[' + b",".join([item] * count) + b"]}"


@pytest.mark.parametrize(
    "arguments",
    [
        items(250_000, b"1"),
        items(130_000, b"{}"),
        items(130_000, b'{"a":"b"}'),
        items(9_000, b"[" * 30 + b"]" * 30),
    ],
    ids=["numbers", "empty objects", "members", "lists in lists"],
)
def test_a_message_of_too_many_values_is_400(gateway: GatewayProcess, arguments: bytes) -> None:
    answer = Session(gateway).post(call_of(arguments))
    assert answer.status == 400
    assert answer.json()["error"]["message"] == (
        "The message has more than 250000 values; send less at once, or send it as text"
    )


@pytest.mark.parametrize(
    "arguments",
    [items(240_000, b"1"), b'{"x":"' + b'[{,\\"' * 600_000 + b'"}'],
    ids=["fewer", "in a text"],
)
def test_one_of_fewer_values_passes_and_a_text_may_hold_anything(
    gateway: GatewayProcess, arguments: bytes
) -> None:
    assert "result" in json.loads(Session(gateway).post(call_of(arguments)).body)


@pytest.mark.parametrize("value", [b"1", b"{}", b'{"a":[1]}'])
def test_arguments_of_too_many_members_are_400(gateway: GatewayProcess, value: bytes) -> None:
    members = b"{" + b",".join(b'"%x":%s' % (number, value) for number in range(20_001)) + b"}"
    answer = Session(gateway).post(call_of(members))
    assert answer.status == 400
    assert answer.json()["error"]["message"] == (
        "Invalid params: arguments has more than 20000 members; send less at once"
    )


@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/of/something/new"])
def test_a_notification_that_is_sent_as_a_request_is_refused_at_once(
    gateway: GatewayProcess, method: str
) -> None:
    answer = Session(gateway).post(request(method, {"requestId": 1}, id=7))
    assert (last_message(answer)["id"], last_message(answer)["error"]["code"]) == (7, -32601)
