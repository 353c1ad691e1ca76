"""Clients that return the source text of each result, for comparisons that no parser may disturb."""

import json
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.real.listing_text import members

ANSWER_SECONDS = 30
LEGACY, MODERN = "2025-11-25", "2026-07-28"
VISITOR = {"name": "raw", "version": "1"}
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": VISITOR}
# What a request of the modern era says about its sender.
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": VISITOR,
}


class RawClient(Protocol):
    """Sends one request and returns the source text of its result."""

    def ask(self, method: str, params: dict[str, Any]) -> str:
        """Raises AssertionError when the answer is an error."""


class StdioClient:
    """Speaks one era to a child process."""

    def __init__(self, process: subprocess.Popen[bytes], era: str) -> None:
        self._process = process
        self._envelope = {"_meta": ENVELOPE} if era == "modern" else {}
        self._next_id = 0

    def ask(self, method: str, params: dict[str, Any]) -> str:
        self._next_id += 1
        params = params | self._envelope
        self.tell({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        while True:
            line = self._line()
            message = json.loads(line)
            if message.get("id") == self._next_id and "method" not in message:
                return result_of(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hang_up(self) -> None:
        """Close the server's input, as a client that leaves does."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        # Enough for servers that answer one request with one write, as all of them here do.
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        assert ready, f"no answer within {ANSWER_SECONDS} s"
        line = self._process.stdout.readline().decode()
        assert line, "the server closed its output"
        return line


@contextmanager
def stdio_client(
    command: Sequence[str], environment: Mapping[str, str], era: str = "legacy"
) -> Iterator[StdioClient]:
    """Start the server, and in the legacy era shake hands; it ends with the block."""
    with subprocess.Popen(
        command,
        env=environment,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            client = StdioClient(process, era)
            if era == "legacy":
                client.ask("initialize", HELLO)
                client.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield client
        finally:
            process.kill()


class HttpClient:
    """Speaks either era to a streamable HTTP endpoint, on one connection."""

    def __init__(self, connection: HTTPConnection, path: str, headers: dict[str, str]) -> None:
        self._connection = connection
        self._path = path
        self._headers = headers
        self._next_id = 0

    def ask(self, method: str, params: dict[str, Any]) -> str:
        self._next_id += 1
        text, _ = self.post({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return result_of(text)

    def post(self, message: dict[str, Any]) -> tuple[str, HTTPResponse]:
        self._connection.request("POST", self._path, json.dumps(message), self._headers_for(message))
        response = self._connection.getresponse()
        body = response.read().decode()
        assert response.status < 300, f"{message['method']} was answered with {response.status}: {body}"
        streamed = response.headers.get_content_subtype() == "event-stream"
        return (last_event(body) if streamed else body), response

    def _headers_for(self, message: dict[str, Any]) -> dict[str, str]:
        both = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return both | self._headers


class LegacyHttpClient(HttpClient):
    """Speaks the legacy era, in a session."""

    def shake_hands(self) -> None:
        _, response = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
        self._headers = {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})


class ModernHttpClient(HttpClient):
    """Speaks the modern era, each request on its own."""

    def ask(self, method: str, params: dict[str, Any]) -> str:
        return super().ask(method, params | {"_meta": ENVELOPE | params.get("_meta", {})})

    def _headers_for(self, message: dict[str, Any]) -> dict[str, str]:
        headers = super()._headers_for(message) | {"Mcp-Method": message["method"]}
        name = message["params"].get("name")
        return headers if name is None else headers | {"Mcp-Name": name}


@contextmanager
def legacy_http_client(url: str) -> Iterator[LegacyHttpClient]:
    with connection_to(url) as connection:
        client = LegacyHttpClient(connection, urlsplit(url).path, {})
        client.shake_hands()
        yield client


@contextmanager
def modern_http_client(url: str) -> Iterator[ModernHttpClient]:
    with connection_to(url) as connection:
        yield ModernHttpClient(connection, urlsplit(url).path, {"MCP-Protocol-Version": MODERN})


def connection_to(url: str) -> "closing[HTTPConnection]":
    return closing(HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_SECONDS))


def last_event(body: str) -> str:
    """The data of the last event of a stream: the answer, after whatever was said on the way to it."""
    data = [line.removeprefix("data:").strip() for line in body.splitlines() if line.startswith("data:")]
    return data[-1]


def result_of(text: str) -> str:
    """The source text of a response's result."""
    for key, start, end in members(text):
        if key == "result":
            return text[start:end]
    raise AssertionError(f"not a result: {text[:500]}")


def pages(client: RawClient) -> Iterator[str]:
    """Each page of tools/list, by its cursor."""
    cursor: dict[str, Any] = {}
    while True:
        page = client.ask("tools/list", cursor)
        yield page
        following = json.loads(page).get("nextCursor")
        if following is None:
            return
        cursor = {"cursor": following}
