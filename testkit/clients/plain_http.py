"""Clients that speak plain HTTP, so that every header and every byte is the test's own."""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from testkit.gateway_process import HOST, GatewayProcess, HttpAnswer
from testkit.upstreams import server_command, stdio_entry
from testkit.waiting import wait_until

SECONDS = 10.0
# Longer than the gateway waits for more changes before it tells of them.
QUIET_SECONDS = 0.3
MODERN, LEGACY = "2026-07-28", "2025-11-25"
BOTH = "application/json, text/event-stream"
JSON_HEADERS = {"Content-Type": "application/json", "Accept": BOTH}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
EXAMPLE = {"builtin": "example"}


def scripted(journal: Path, **environment: str) -> dict[str, Any]:
    """The entry of the scripted server in a configuration."""
    env = {"JOURNAL": str(journal), **environment}
    return stdio_entry(server_command("servers.scripted"), env=env)


def settle(gateway: GatewayProcess, *servers: str) -> None:
    """Wait until the servers are ready and no more list changes are sent."""
    gateway.wait_until_ready(*servers)
    told, since = -1.0, time.monotonic()

    def quiet() -> bool:
        nonlocal told, since
        now = gateway.metrics()["headgate_list_changes"]
        if now != told:
            told, since = now, time.monotonic()
        return time.monotonic() - since > QUIET_SECONDS

    wait_until(quiet, SECONDS, "the lists are told")


def send(
    gateway: GatewayProcess, method: str, path: str, headers: Mapping[str, str | None], body: bytes = b""
) -> HttpAnswer:
    """One request on a connection of its own; a header that is None is left out."""
    connection = HTTPConnection(HOST, gateway.port, timeout=SECONDS)
    try:
        given = {name: value for name, value in headers.items() if value is not None}
        connection.request(method, path, body, given)
        response = connection.getresponse()
        return HttpAnswer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def post(
    gateway: GatewayProcess, message: Any, headers: Mapping[str, str | None] | None = None, path: str = "/mcp"
) -> HttpAnswer:
    """POST a message, or bytes as they are."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return send(gateway, "POST", path, {**JSON_HEADERS, **(headers or {})}, body)


def request(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    """A JSON-RPC request."""
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else message | {"params": params}


def modern_request(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    """A request of the stateless era."""
    params = dict(params or {})
    return request(method, params | {"_meta": {**META, **params.get("_meta", {})}}, id)


def modern_headers(method: str, name: str | None = None) -> dict[str, str | None]:
    """What the headers of such a request must say."""
    return {**JSON_HEADERS, "MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": name}


def modern(
    gateway: GatewayProcess, method: str, params: dict[str, Any] | None = None, id: Any = 1
) -> HttpAnswer:
    """Send a request of the stateless era and return whatever comes."""
    headers = modern_headers(method, (params or {}).get("name"))
    return post(gateway, modern_request(method, params, id), headers)


def modern_call(
    gateway: GatewayProcess, name: str, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Call a tool and return its result."""
    answer = modern(gateway, "tools/call", {"name": name, "arguments": arguments or {}})
    assert answer.status == 200, answer
    result: dict[str, Any] = last_message(answer)["result"]
    return result


def last_message(answer: HttpAnswer) -> dict[str, Any]:
    """The answer in a body of either kind."""
    if answer.headers["content-type"] == "application/json":
        found: dict[str, Any] = answer.json()
        return found
    return messages_in(answer.body)[-1]


def messages_in(stream: bytes) -> list[dict[str, Any]]:
    """Every message of an event stream."""
    lines = stream.decode().splitlines()
    told = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    # An event without data only gives an id.
    return [json.loads(line) for line in told if line]


class Session:
    """A client of the handshake era."""

    def __init__(
        self, gateway: GatewayProcess, version: str = LEGACY, capabilities: dict[str, Any] | None = None
    ) -> None:
        self.gateway = gateway
        info = {"name": "x", "version": "1"}
        hello = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
        self.greeting = post(gateway, request("initialize", hello, id=0))
        assert self.greeting.status == 200, self.greeting
        self.version: str = self.greeting.json()["result"]["protocolVersion"]
        self.headers = {
            "Mcp-Session-Id": self.greeting.headers["mcp-session-id"],
            "MCP-Protocol-Version": self.version,
        }

    def post(self, message: Any) -> HttpAnswer:
        return post(self.gateway, message, self.headers)

    def ask(self, method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
        answer = self.post(request(method, params, id))
        assert answer.status == 200, answer
        return last_message(answer)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> HttpAnswer:
        message = {"jsonrpc": "2.0", "method": method}
        return self.post(message if params is None else message | {"params": params})

    def call(self, name: str, arguments: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
        answered = self.ask("tools/call", {"name": name, "arguments": arguments or {}}, id)
        assert "result" in answered, answered
        result: dict[str, Any] = answered["result"]
        return result


class Stream:
    """An event stream that is being read; every read has a bound."""

    def __init__(self, response: HTTPResponse, seconds: float = SECONDS) -> None:
        self.response = response
        self._seconds = seconds
        # The last id that came.
        self.id = ""

    def event(self) -> tuple[str, str]:
        """The name and the data of the next event; raises TimeoutError, or EOFError at the end."""
        name, data = "message", ""
        give_up_at = time.monotonic() + self._seconds
        while True:
            line = self.response.readline().decode()
            if not line:
                raise EOFError("the stream has ended")
            field, _, value = line.rstrip("\r\n").partition(":")
            if field == "event":
                name = value.strip()
            elif field == "id":
                self.id = value.strip()
            elif field == "data":
                data += value.strip()
            elif not field and not value and data:
                return name, data
            if time.monotonic() > give_up_at:
                # Comments keep the timeout of the socket from firing.
                raise TimeoutError(f"no event within {self._seconds:g} s")

    def message(self) -> dict[str, Any]:
        """The next message."""
        message: dict[str, Any] = json.loads(self.event()[1])
        return message


@contextmanager
def opened(
    gateway: GatewayProcess, method: str, path: str, headers: Mapping[str, str | None], body: bytes = b""
) -> Iterator[Stream]:
    """Send a request and read its answer piece by piece; leaving the block hangs up."""
    connection = HTTPConnection(HOST, gateway.port, timeout=SECONDS)
    try:
        given = {name: value for name, value in headers.items() if value is not None}
        connection.request(method, path, body, given)
        response = connection.getresponse()
        assert response.status == 200, (response.status, response.read())
        assert response.getheader("content-type") == "text/event-stream"
        yield Stream(response)
    finally:
        connection.close()


def listening(session: Session, last_event_id: str | None = None) -> "Any":
    """The GET stream of a session, or what it missed of another stream."""
    headers = {**session.headers, "Accept": "text/event-stream", "Last-Event-ID": last_event_id}
    return opened(session.gateway, "GET", "/mcp", headers)


def asking(session: Session, message: dict[str, Any]) -> "Any":
    """The stream that answers a request."""
    body = json.dumps(message).encode()
    return opened(session.gateway, "POST", "/mcp", {**JSON_HEADERS, **session.headers}, body)


@contextmanager
def open_socket(gateway: GatewayProcess) -> Iterator[socket.socket]:
    """A bare connection."""
    with socket.create_connection((HOST, gateway.port), timeout=SECONDS) as connection:
        yield connection


def until_closed(connection: socket.socket) -> bytes:
    """Everything that comes until the gateway hangs up."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        # It hung up while some of our bytes were on their way.
        pass
    return received


def status_of(received: bytes) -> int:
    """The status of the first response in the bytes."""
    assert received.startswith(b"HTTP/1.1 "), received[:200]
    return int(received[9:12])
